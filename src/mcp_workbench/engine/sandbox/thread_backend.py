"""Landlock and seccomp in the thread that starts the server: needs no program and costs no time.

It cannot tell hosts or Unix sockets apart, and cannot take anything out of a folder that it grants.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from mcp_workbench.engine.sandbox.resource_limits import limiting
from mcp_workbench.engine.sandbox.sandbox import Capabilities, OnRefused, Sandbox
from mcp_workbench.engine.transport import seccomp
from mcp_workbench.engine.transport.confinement import (
    FILE_CAPABILITIES,
    GUARDED,
    UNCONFINED,
    Confinement,
    Launch,
    missing,
)

_NETLINK_ALONE: Final = frozenset({seccomp.AF_NETLINK})
_INTERNET: Final = frozenset({seccomp.AF_INET, seccomp.AF_INET6})


class ThreadBackend:
    name = "landlock"

    def trouble(self, machine: Capabilities) -> str | None:
        return None

    def missing(self, sandbox: Sandbox, machine: Capabilities) -> list[str]:
        found = missing(confinement_of(sandbox), landlock_abi=machine.landlock_abi, has_filters=machine.has_filters)
        if isinstance(sandbox.network, tuple):
            found.append("cannot limit its network to hosts (Landlock knows none)")
        if sandbox.unix_sockets:
            found.append("cannot limit its Unix sockets to those named (Landlock knows none)")
        return found

    def keeps_read_only(self) -> bool:
        return False

    def launch(self, sandbox: Sandbox, refused: OnRefused) -> Launch:
        make_private_folders(sandbox)
        return Launch(confinement_of(sandbox), limiting(sandbox))


def confinement_of(sandbox: Sandbox) -> Confinement:
    """What the thread gives up."""
    if sandbox.profile == "off":
        return UNCONFINED
    basic = GUARDED._replace(is_best_effort=sandbox.is_best_effort)
    if not sandbox.limits_files:
        return basic
    has_tcp = sandbox.network != "none"
    # Each is a rule, and covers what is in it.
    write = outermost(sandbox.write)
    inside = tuple(f"{path.rstrip('/')}/" for path in write)
    read = tuple(path for path in outermost(sandbox.read) if not f"{path}/".startswith(inside))
    return basic._replace(
        root_capabilities=FILE_CAPABILITIES,
        read=read,
        write=write,
        families=families_of(sandbox),
        has_tcp=has_tcp,
    )


def families_of(sandbox: Sandbox) -> frozenset[int] | None:
    """The families of sockets that it can create; None: all."""
    if not sandbox.limits_files:
        return None
    families = _NETLINK_ALONE
    if sandbox.network != "none":
        families |= _INTERNET
    if sandbox.unix_sockets:
        families |= {seccomp.AF_UNIX}
    return families


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths without those that are in another one."""
    found: list[str] = []
    around = ""
    # So sorted, what is in a folder follows it.
    for path in sorted({path if path.endswith("/") else f"{path}/" for path in paths}):
        if not around or not path.startswith(around):
            around = path
            found.append(path[:-1] or "/")
    return tuple(found)


def is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in folders)


def make_private_folders(sandbox: Sandbox) -> None:
    for folder in (sandbox.home, sandbox.temporary):
        if folder is not None and not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
