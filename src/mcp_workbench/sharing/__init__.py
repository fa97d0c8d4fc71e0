"""The shared workbench: one process that serves all clients of a user, each through its own front end.

- `workbench`: admits clients; `client`: one of them, `hello` its first line.
- `catalogs`: a gateway for each client context, on one runtime; `status`: the status of all of them.
- `commands`: requests of commands in a terminal; `budgets`: what all clients together may hold.

Owns the socket, the first lines of a connection, who is connected, and when to exit. Knows neither how a client is
served (`gateway`) nor how the process is started (`sharing.front.joining`).
"""
