"""Servers that have a `url`.

`http_link.py` is one server, with the messages to it that have no answer and its own messages; `post.py` a request to
it, `sse_transport.py` the transport of 2024-11-05; `http_session.py` is what they share. `http_client.py` is the HTTP
client underneath: `dialing.py` opens connections to an `address.py`, `reach.py` tells local addresses from public ones,
`client_connection.py` speaks HTTP on one, `response.py` is the response, `response_body.py` reads it,
`call_head_cache.py` caches request heads. `headers.py` defines where a server's configured headers come from,
`failures.py` explains errors, `reachability.py` checks whether a failed server can be reached again.
"""
