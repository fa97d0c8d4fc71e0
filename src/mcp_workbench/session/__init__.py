"""One client: its era, its handshake, its requests in flight, and what servers ask of it.

- `session`: reads messages and answers them; `methods`: the methods that are not calls; `welcome`: the handshake.
- `client_call`: one request on its way to a server and back; `keeping_waiting`: what its client is sent meanwhile.
- `session_registry`, `notifications`: all sessions, and what they are told.
- `questions`, `attribution`: what servers ask of the client, and which of them asks; `signing_in`: a call that waits
  for its user to sign in; `pages_to_visit`: one whose server wants a page to be visited first;
  `own_questions`: what we ask the user ourselves.
- `resuming`: taking over a client of a workbench that is gone.
- `parking`, `rounds`: the same across eras, for modern and for legacy clients.
Does not know which face is shown or what is behind it.
"""
