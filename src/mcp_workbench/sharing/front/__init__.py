"""The front end: `mcp-workbench serve` after it has joined the user's shared workbench.

- `serve`: copies, and survives the death of the workbench; `copying`: the loop.
- `joining`: finds or starts the workbench and introduces the client; `tracking`: which requests are in progress.
- `handing_over`: gives a client that is served alone from now on to a fresh process.
- `line_protocol`: the messages between the two; `commanding`: commands to the workbench from a terminal.

It copies bytes between the client and a Unix socket, and costs hardly more than an interpreter. So nothing here imports
asyncio, or anything of the package except `process_context`, `socket_peers` and `version`; modules of the standard
library that take long to import (`socket`, `signal`, `json`, `subprocess`) are replaced by the C modules below them.
"""
