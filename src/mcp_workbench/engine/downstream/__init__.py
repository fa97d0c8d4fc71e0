"""Connections to servers: their life cycle, their messages, and who shares them.

- `pool`, `sharing`: which connection a caller uses; `connection`, `lifecycle`: its state, restarts, waits and lists.
- `server_run`: one run of the server, in one task, and what it lists in it; `server_link`: the interface to the
  process or address.
- `traffic`, `server_questions`, `clients`: the messages on one link, the server's requests, and which client can be
  asked.
- `fair_requests`: the order of requests to a server that several clients share.
- `server_subscriptions`: what clients subscribe to, and what the server announces.
- `server_status`, `quoted_output`: reports about a server.
Clients are known only as `Caller`; sessions and faces are unknown.
"""
