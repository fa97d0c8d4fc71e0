"""MCP itself: what its revisions have, and how requests and answers get from one to another.

- `revisions`: one value for each revision, and the two eras; `constants`: names and error codes of the specification.
- `handshake`: meeting a server, with or without a handshake.
- `meta`: what requests carry in `_meta`; `results`: results and errors in the words of the client's revision.
- `sealing`: `requestState` that only its client can use; `logging_levels`: their order.
Refuses to know who is behind a connection and how messages travel.
"""
