"""The front end: what `mcp-workbench serve` is while it has joined the user's shared workbench.

- `serve`: copies, and gets over the death of the workbench; `copying`, `lane`: the loop, and one direction of it.
- `joining`: finds or starts the workbench and introduces the client; `tracking`: which requests are under way.
- `line_protocol`: what the two say to each other; `commanding`: commands to it from a terminal.

It copies bytes between the client and a Unix socket, and hardly costs more than an interpreter. So nothing here imports
asyncio, or anything of the package beside `process_context`; modules of the standard library that take long to import
(`socket`, `signal`, `json`, `subprocess`) are replaced by the C modules below them.
"""
