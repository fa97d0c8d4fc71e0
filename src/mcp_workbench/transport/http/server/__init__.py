"""Our own HTTP endpoint: who is let in, and which answer leaves on which stream. Not what the messages mean.

`serving.py` starts and stops it, `listening.py` binds; `connection.py` and `request_reader.py` speak HTTP.
`endpoint.py` decides and serves: `admission.py`, `authentication.py` and `throttle.py` judge a head; `pages.py` is the
table of pages. A modern POST is a `modern_request.py`; a legacy one belongs to `sessions.py` and is answered by a
`legacy_response.py`, perhaps on a `resumable_stream.py`. `limits.py` has the bounds.
"""
