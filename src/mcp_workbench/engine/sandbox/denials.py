"""What a server that failed in a sandbox was denied, as far as its own output shows. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mcp_workbench.engine.sandbox.decide import NPM_REGISTRY
from mcp_workbench.engine.sandbox.sandbox import Sandbox

_DENIAL: Final = re.compile(
    r"EACCES|EPERM|EROFS|Permission denied|Operation not permitted|Read-only file system|PermissionError", re.IGNORECASE
)
# How it looks where what is not granted is not there at all.
_HIDDEN: Final = re.compile(r"ENOENT|No such file or directory|FileNotFoundError|not found", re.IGNORECASE)
_QUOTED_PATH: Final = re.compile(r"""['"`‘]?(/[^'"`’:,;()\[\]{}<>\n]+)""")
_NETWORK: Final = re.compile(
    r"EAI_AGAIN|ENOTFOUND|ENETUNREACH|getaddrinfo|name resolution|Could not resolve|ENOTCACHED|"
    r"only-if-cached|only be read from the cache|Network connectivity is disabled|offline",
    re.IGNORECASE,
)
_MEMORY: Final = re.compile(r"out of memory|MemoryError|Cannot allocate memory|allocation failed|ENOMEM", re.IGNORECASE)
# What programs print whom `guard` has refused something.
_REFUSED_IN_GUARD: Final = re.compile(
    r"no usable sandbox|failed to move to new namespace|no permissions to create (?:a )?new namespace|"
    r"no new privileges\W+flag is set|cannot set up namespace|must be (?:setuid|suid)",
    re.IGNORECASE,
)
# What it takes, by name: also in the logs of servers that failed for other reasons, so that only a line counts that
# speaks of an error as well.
_TAKEN_BY_GUARD: Final = re.compile(
    r"ptrace|io_uring|no_new_privs|namespace|unshare|\bclone\b|bwrap:|new[ug]idmap", re.IGNORECASE
)
_NOT_PERMITTED: Final = re.compile(r"\bEPERM\b|not permitted|permission denied|prevent", re.IGNORECASE)
_RAN_IN: Final = "it ran in the sandbox `"
_CLAUSE_SEPARATOR: Final = "; "
_MAX_PATHS: Final = 3
_MAX_HOSTS: Final = 3


def denied_paths(said: str) -> list[str]:
    """Paths in lines that speak of a missing permission."""
    return _paths(said, _DENIAL)


def hidden_paths(said: str, sandbox: Sandbox) -> list[str]:
    """Paths that are said to be missing, and were not granted."""
    granted = (*sandbox.read, *sandbox.write)
    return [
        path
        for path in _paths(said, _HIDDEN)
        if not any(path == each or path.startswith(each.rstrip("/") + "/") for each in granted)
    ]


def _paths(said: str, about: re.Pattern[str]) -> list[str]:
    found: dict[str, None] = {}
    for line in said.splitlines():
        if about.search(line):
            for path in _QUOTED_PATH.findall(line):
                found[path.rstrip(" .'\"")] = None
    return list(found)


def explanation(
    sandbox: Sandbox, said: str, label: str, *, hides: bool = False, refused: Sequence[str] = ()
) -> str | None:
    """What to tell the user of a server that failed in this sandbox; None if the sandbox has probably nothing to do
    with it. `hides`: whether what is not granted is not there at all. `refused`: what was said about each host that it
    was refused."""
    if sandbox.profile == "off":
        return None
    if not sandbox.limits_files:
        if not any(map(_is_refused_by_guard, said.splitlines())):
            return None
        return (
            "it ran in the sandbox `guard`, which refuses setuid programs, namespaces, debuggers and io_uring; if you "
            'trust it, write `"sandbox": "off"` for it'
        )
    told = [f"{_RAN_IN}{sandbox.profile}`"]
    if paths := denied_paths(said):
        told.append(f"it was denied {', '.join(f'`{path}`' for path in paths[:_MAX_PATHS])}")
    if hides and (paths := hidden_paths(said, sandbox)):
        told.append(f"it was not shown {', '.join(f'`{path}`' for path in paths[:_MAX_PATHS])}")
    if refused:
        told += refused[:_MAX_HOSTS]
        if any(NPM_REGISTRY in each for each in refused):
            told.append(f"or install its package once: `mcp-workbench doctor --sandbox prepare {label}`")
    elif isinstance(sandbox.network, tuple) and _NETWORK.search(said):
        told.append("it reaches the hosts in its `network` alone, and those only through the proxy that is set for it")
    if sandbox.network == "none" and _NETWORK.search(said):
        told.append(f"it has no network: `mcp-workbench doctor --sandbox prepare {label}` installs a package once")
    if sandbox.memory is not None and _MEMORY.search(said):
        told.append(f"each of its processes may use {sandbox.memory >> 20} MiB")
    return _CLAUSE_SEPARATOR.join((*told, f"try `mcp-workbench doctor --sandbox try {label}`"))


def _is_refused_by_guard(line: str) -> bool:
    return bool(_REFUSED_IN_GUARD.search(line) or (_NOT_PERMITTED.search(line) and _TAKEN_BY_GUARD.search(line)))


def denied(explained: str) -> str:
    """What such an explanation names, without the sandbox and the advice to try others; empty if it names nothing."""
    ran_in, *named = explained.split(_CLAUSE_SEPARATOR)
    return _CLAUSE_SEPARATOR.join(named[:-1]) if ran_in.startswith(_RAN_IN) and ran_in.endswith("`") else ""
