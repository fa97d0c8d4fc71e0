"""How messages travel, not what they mean.

`link.py` is the boundary: a `Link` sends messages, a `Receiver` is told what arrives.
`stdio.py` is the client's end over stdio; `child.py` a server as a child process, on `pipes.py` and `lines.py`.
`processes.py`, `process_tag.py`, `environment_block.py`: no server outlives us, none reads our secrets.
`http/` is streamable HTTP on both ends.
`stderr.py` keeps the end of what a server wrote there.
Shared: `write_batch.py`, `shared_timer.py`, `backlog.py` (what may wait), `pieces.py` (long messages), `allocator.py`.
"""
