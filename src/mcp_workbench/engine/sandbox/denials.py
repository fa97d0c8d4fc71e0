"""What a server that failed in a sandbox was denied, as far as its own output shows. Pure."""

from __future__ import annotations

import re
from typing import Final

from mcp_workbench.engine.sandbox.sandbox import Sandbox

_DENIAL: Final = re.compile(
    r"EACCES|EPERM|EROFS|Permission denied|Operation not permitted|Read-only file system|PermissionError", re.IGNORECASE
)
_PATH: Final = re.compile(r"""['"`‘]?(/[^'"`’:,;()\[\]{}<>\n]+)""")
_NETWORK: Final = re.compile(
    r"EAI_AGAIN|ENOTFOUND|ENETUNREACH|getaddrinfo|name resolution|Could not resolve|ENOTCACHED|"
    r"only-if-cached|only be read from the cache|Network connectivity is disabled|offline",
    re.IGNORECASE,
)
_MEMORY: Final = re.compile(r"out of memory|MemoryError|Cannot allocate memory|allocation failed|ENOMEM", re.IGNORECASE)
# What programs print that rely on something that even `guard` takes.
_GUARDED: Final = re.compile(
    r"no usable sandbox|failed to move to new namespace|unshare failed|ptrace|bwrap:|user namespace|"
    r"io_uring|newuidmap|no new privileges|no_new_privs|must be setuid|must be suid",
    re.IGNORECASE,
)
_MAX_PATHS: Final = 3


def denied_paths(said: str) -> list[str]:
    """Paths in lines that speak of a missing permission."""
    found: dict[str, None] = {}
    for line in said.splitlines():
        if _DENIAL.search(line):
            for path in _PATH.findall(line):
                found[path.rstrip(" .'\"")] = None
    return list(found)


def explanation(sandbox: Sandbox, said: str, label: str) -> str | None:
    """What to tell the user of a server that failed in this sandbox; None if the sandbox has probably nothing to do
    with it."""
    if sandbox.profile == "off":
        return None
    if not sandbox.limits_files:
        if not _GUARDED.search(said):
            return None
        return (
            "it ran in the sandbox `guard`, which refuses setuid programs, namespaces, debuggers and io_uring; if you "
            'trust it, write `"sandbox": "off"` for it'
        )
    told = [f"it ran in the sandbox `{sandbox.profile}`"]
    if paths := denied_paths(said):
        told.append(f"it was denied {', '.join(f'`{path}`' for path in paths[:_MAX_PATHS])}")
    if sandbox.network == "none" and _NETWORK.search(said):
        told.append(f"it has no network: `mcp-workbench sandbox prepare {label}` installs a package once")
    if sandbox.memory is not None and _MEMORY.search(said):
        told.append(f"each of its processes may use {sandbox.memory >> 20} MiB")
    return "; ".join((*told, f"try `mcp-workbench sandbox try {label}`"))
