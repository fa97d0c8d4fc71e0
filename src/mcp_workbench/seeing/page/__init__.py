"""The page: what waits for a person, live calls, tools, servers, in the user's browser.

`site.py` answers requests, `sign_in.py` knows who they come from, `streams.py` tells open pages what happens, and
`captured_calls.py` keeps what was called meanwhile. What a workbench is and does is behind `shown_workbench.py`. Loaded
with the first request for it.
"""
