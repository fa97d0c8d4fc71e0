"""Streamable HTTP as client and server, in both eras, and HTTP+SSE of 2024-11-05 as a client. Imported when needed.

`client/` reaches servers that have a `url`; `server/` is our own endpoint. They share no state, only the protocol:
`message_summary.py`, the few fields of a message that HTTP routes by; `sse.py`, server-sent events;
`header_parameters.py`, `parameter_cache.py`, `header_values.py`: tool arguments that are mirrored into headers;
`header_names.py`.
"""
