"""Connections to servers: their life, what is said on them, and who shares them.

- `pool`, `sharing`: which connection a caller takes; `connection`, `lifecycle`: its state, restarts and waits.
- `server_run`: one run of the server, in one task; `server_link`: how it is reached, as far as we have to know.
- `traffic`, `server_questions`, `clients`: the messages on one link, the server's own questions, and who can be asked;
  `cancelled_calls`: whose questions must not be put to anybody else; `traffic_owner`: whom a traffic reports to.
- `fair_requests`: in which order requests go to a server that several clients share.
- `listing`, `list_refresh`: what the server offers, and when that is fetched again.
- `server_subscriptions`: what clients subscribe to, and what the server announces.
- `server_status`, `quoted_output`: what is said of a server.
Who is calling is a `Caller` here; sessions and faces are unknown.
"""
