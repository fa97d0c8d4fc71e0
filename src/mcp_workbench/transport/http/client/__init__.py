"""Servers that have a `url`.

`http_link.py` is one server; `post.py` a request to it, `one_way.py` a message without an answer,
`standalone_stream.py` what the server sends by itself, `sse_transport.py` the transport of 2024-11-05;
`http_session.py` is what they share. `http_client.py` is the HTTP client below: `dialing.py` opens connections to an
`address.py`, `client_connection.py` speaks HTTP on one, `response.py` is what came back, `response_body.py` and
`decompression.py` read it, `call_head_cache.py` keeps heads that were written before. `headers.py` says where a
server's own headers come from, `credential_refusal.py` whether it wants others; `failures.py` explains what went
wrong, `reachability.py` looks whether it still does.
"""
