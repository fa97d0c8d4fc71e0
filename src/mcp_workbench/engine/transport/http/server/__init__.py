"""Our HTTP endpoint: which requests are admitted, and which response leaves on which stream. Not what messages mean.

- `http_server.py` starts and stops it, `listening.py` binds, `tls.py` has the certificate; `limits.py` has the bounds.
- HTTP: `server_connection.py`, `request_reader.py`, `request_head.py`, `head_cache.py`, `response_writer.py`;
  `connections.py` owns all connections and their turns to upload, `unauthenticated_connections.py` and
  `body_budget.py` bound what unauthenticated clients may cost.
- `endpoint.py` decides and serves: `admission.py`, `authentication.py` and `throttle.py` judge a head, `validation.py`
  a body against its head; `large_bodies.py` reads large ones in a thread, and lets principals take turns; `pages.py`
  is the table of pages.
- A modern POST is a `modern_request.py` with its `status_codes.py`; a legacy one belongs to `sessions.py`,
  possibly on a `resumable_stream.py`. `served_session.py` is the boundary to sessions.
"""
