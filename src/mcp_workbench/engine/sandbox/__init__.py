"""What a server may touch, and how this machine enforces it.

`sandbox.py`: the `Sandbox`, a value with everything that a server gets, and the `Backend`, which turns it into a start.
`decide.py` makes the value from the settings, the server and what is on the machine, `carve_outs.py` what stays
read-only in it; pure.
`server_sandbox.py` collects what it needs for a server of the catalogue: `program_files.py` finds the files that a
program consists of, `machine.py` asks what this machine can enforce.
`thread_backend.py`, `bwrap_backend.py` and `seatbelt_backend.py` enforce it, with `resource_limits.py`; so does
`container_backend.py` for a server in an image, `container_engine.py` asks Podman and Docker what they can do,
`container_filter.py` narrows what Podman lets containers call;
`backends.py` chooses between them. `egress_proxy.py` is the way out of a sandbox that may reach some hosts,
`egress_rules.py` decides which.
`created_paths.py` has what is created in repositories for that, and takes it away again.
`sandbox_runner.py` runs other programs in a server's sandbox, to verify what it is made of.
`denials.py` reads from a server's output what it was denied.
"""
