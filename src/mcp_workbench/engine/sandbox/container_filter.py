"""The filter of system calls that Podman gives a container, without what `guard` refuses. Pure.

Podman's own lets every container have namespaces, keys and debuggers, so that containers can run in containers.
Docker's does not, and its daemon does not show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_workbench.engine.transport import seccomp

_ALLOW_ACTION: Final = "SCMP_ACT_ALLOW"
_ERROR_ACTION: Final = "SCMP_ACT_ERRNO"
# What a container has by itself: its Unix sockets are in its own files, or were named.
_CONTAINER_FAMILIES: Final = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6)


def narrowed(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's profile without those calls. Raises `KeyError`, `TypeError` or `AttributeError` if it is none."""
    refused, missing = frozenset(seccomp.REFUSED_CALLS), frozenset(seccomp.MISSING_CALLS)
    changed = refused | missing | {"clone", "socket"}
    rules = []
    for rule in profile["syscalls"]:
        names = [name for name in rule["names"] if name not in changed]
        # Those that refuse something stay as they are, but for calls that are refused in one way below.
        if rule["action"] != _ALLOW_ACTION:
            names = [name for name in rule["names"] if name not in refused | missing]
        if names:
            rules.append({**rule, "names": names})
    usual = profile.get("defaultErrnoRet", seccomp.EPERM)
    for calls, number in ((refused, seccomp.EPERM), (missing, seccomp.ENOSYS)):
        if number != usual:
            rules.append({"names": sorted(calls), "action": _ERROR_ACTION, "errnoRet": number})
    rules.append(_allowed("clone", (0, "SCMP_CMP_MASKED_EQ", seccomp.NEW_NAMESPACES, 0)))
    rules += (_allowed("socket", (0, "SCMP_CMP_EQ", family, 0)) for family in _CONTAINER_FAMILIES)
    netlink = (0, "SCMP_CMP_EQ", seccomp.AF_NETLINK, 0)
    rules.append(_allowed("socket", netlink, (2, "SCMP_CMP_EQ", seccomp.NETLINK_ROUTE, 0)))
    return {**profile, "syscalls": rules}


def _allowed(name: str, *conditions: Iterable[object]) -> dict[str, Any]:
    members = ("index", "op", "value", "valueTwo")
    return {
        "names": [name],
        "action": _ALLOW_ACTION,
        "args": [dict(zip(members, each, strict=True)) for each in conditions],
    }
