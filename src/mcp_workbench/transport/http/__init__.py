"""Streamable HTTP on both ends, in both eras, and HTTP+SSE of 2024-11-05 as a client. Imported when it is needed.

`client/` reaches servers that have a `url`; `server/` is our own endpoint. They share no state, only what both speak:
`message_summary.py`, the few fields of a message that HTTP routes by; `sse.py`, server-sent events;
`header_parameters.py`, `parameter_cache.py`, `header_values.py`: arguments of tools that headers mirror;
`header_names.py`, which both need.
"""
