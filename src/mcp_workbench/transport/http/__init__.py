"""Streamable HTTP on both ends, in both eras, and the deprecated HTTP+SSE as a client.

`client/` reaches servers that have a `url`; `server/` is our own endpoint. Beside them lies what both speak: events,
header values, and the little that a carrier has to know of a message. Nothing here is imported before it is needed.
"""
