"""MCP itself: how its revisions differ, and how requests and responses are translated between them.

- `revisions`: one value for each revision, and the two eras; `constants`: names and error codes of the specification.
- `handshake`: the first exchange with a server, in either era.
- `meta`: what requests carry in `_meta`; `results`: results and errors as the client's revision defines them.
- `sealed_state`: `requestState` that only its own client can use; `logging_levels`: their order.
Knows nothing about who is at the other end of a connection or how messages travel.
"""
