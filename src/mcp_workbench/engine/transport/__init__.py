"""How messages travel, not what they mean.

`link.py` is the boundary: a `Link` sends messages, a `Receiver` gets those that arrive.
`stdio.py` is the client's end over stdio; `child.py` a server as a child process, on `pipes.py` and `lines.py`.
`processes.py`, `process_tag.py`, `environment_block.py`: no server outlives us or reads our secrets.
`confinement.py`, with `landlock.py` and `seccomp.py`: what is taken from a server when it starts.
`open_files.py`: how many files we and they may open.
`http/` is streamable HTTP as client and server.
`stderr.py` keeps the last lines that a server wrote to stderr.
Shared: `write_batch.py`, `shared_timer.py`, `backlog.py` (limits on unsent data), `pieces.py` (long messages),
`allocator.py`.
"""
