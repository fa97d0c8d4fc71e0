"""The shared workbench: one process that serves all clients of a user, each through a front end of its own.

- `workbench`: takes clients in; `client`: one of them, `hello` its first line, `client_link` the link to it.
- `catalogs`: a gateway for each client context, on one runtime; `status`: how all of them are doing.
- `commands`: what commands in a terminal ask of it; `budgets`: what all clients may hold together.

Owns the socket, the first lines of a connection, who is connected, and when it is time to end. Refuses to know how a
client is served (`gateway`) and how the process is started (`front.joining`).
"""
