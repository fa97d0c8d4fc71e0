"""One client: its era, its handshake, its requests in flight, and the questions of servers to it.

- `session`: reads messages and answers them; `methods`: one function for each method; `welcome`: the handshake.
- `client_call`: one request on its way to a server and back; `inner_call`: a call that is made for another one.
- `request_log`: a session that logs its requests; `client_name`: a client as people know it.
- `session_registry`, `notifications`: all sessions, and the notifications they get.
- `questions`, `attribution`: requests of servers to the client, and the name of the server in them; `signing_in`: a
  call that waits for its user to sign in or to visit a page; `own_questions`: our own questions to the user.
- `client_name`: the name that a client gives itself.
- `resuming`: takes over the client of a workbench that has ended.
- `parking`, `rounds`: questions across eras, for modern and for legacy clients; `relayed_inputs`: those of calls that
  their client does not know.
Uses the interface that all faces have, and never asks which one is in use. Reaches servers only through the router; of
the catalogue it reads what servers are capable of (`welcome`) and the names of toolboxes (`resuming`).
"""
