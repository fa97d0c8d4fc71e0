"""Which backend starts a server, and what to say where none can.

A new way to enforce sandboxes is a class with the interface `Backend`, and an entry in `_BACKENDS_OF_PLATFORMS`: the
first that can enforce all of a sandbox is used, so the cheapest comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from mcp_workbench.engine.sandbox.bwrap_backend import BwrapBackend
from mcp_workbench.engine.sandbox.sandbox import Backend, Capabilities, Sandbox
from mcp_workbench.engine.sandbox.seatbelt_backend import SeatbeltBackend
from mcp_workbench.engine.sandbox.thread_backend import ThreadBackend
from mcp_workbench.errors import DownstreamError

_BACKENDS_OF_PLATFORMS: Final[dict[str, tuple[Backend, ...]]] = {"darwin": (SeatbeltBackend(),)}
_OTHER_BACKENDS: Final[tuple[Backend, ...]] = (ThreadBackend(), BwrapBackend())


class Chosen(NamedTuple):
    backend: Backend
    # What it cannot enforce here, each as what follows "this machine".
    missing: tuple[str, ...]
    # What stays writable inside of granted folders, although other programs run or trust it.
    unprotected: tuple[str, ...] = ()


def choose(sandbox: Sandbox, machine: Capabilities, platform: str = sys.platform) -> Chosen:
    """The first backend that enforces all of a sandbox, or else the one that enforces most of it. Raises
    `DownstreamError` if something would be missing, unless the sandbox is best effort."""
    if sandbox.image is not None:
        from mcp_workbench.engine.sandbox.container_backend import ContainerBackend

        # Podman first: it needs no daemon that runs as root.
        known: tuple[Backend, ...] = tuple(map(ContainerBackend, ("podman", "docker")))
    else:
        known = _BACKENDS_OF_PLATFORMS.get(platform, _OTHER_BACKENDS)
    asked = [each for each in known if sandbox.backend in ("auto", each.name)]
    if not asked:
        raise DownstreamError(
            f"sandbox: the backend `{sandbox.backend}` does not exist here",
            hint=f"leave `backend` out, or use `{known[0].name}`",
        )
    troubles: list[str] = []
    found: list[Chosen] = []
    for each in asked if sandbox.is_asked else asked[:1]:
        if sandbox.profile != "off" and (trouble := each.trouble(machine)) is not None:
            troubles.append(trouble)
            continue
        unprotected = () if each.keeps_read_only() else sandbox.read_only
        found.append(Chosen(each, tuple(each.missing(sandbox, machine)), unprotected))
        if not found[-1].missing and not unprotected:
            return found[-1]
    if not found and sandbox.image is not None:
        raise DownstreamError(
            f"sandbox: the image `{sandbox.image}` cannot be run: {'; '.join(troubles)}", hint=NO_ENGINE
        )
    if not found:
        # What was asked for cannot be used, and what can be enforces something at least.
        instead = known[0]
        missing = tuple(instead.missing(sandbox, machine)) or (f"cannot use `{sandbox.backend}`",)
        found.append(Chosen(instead, missing, sandbox.read_only))
    chosen = min(found, key=lambda one: (len(one.missing), len(one.unprotected)))
    if chosen.missing and not sandbox.is_best_effort:
        could = "".join(f"; {trouble}" for trouble in troubles)
        raise DownstreamError(f"sandbox: this machine {'; it '.join(chosen.missing)}{could}", hint=_hint(troubles))
    return chosen


NO_ENGINE: Final = (
    "install Podman (`apt install podman`, `dnf install podman`), or start Docker (`sudo systemctl start docker`) and "
    "become a member of its group; or remove `image` and run the program itself"
)
WEAKER_HINT: Final = (
    'ask for less, such as `"sandbox": "guard"`, or start it without what is missing: `"sandbox": {"profile": …, '
    '"bestEffort": true}`'
)
NO_BWRAP: Final = "bwrap is not installed"
# What the kernel and AppArmor say where users may not have namespaces.
_NO_NAMESPACES: Final = ("Permission denied", "Operation not permitted", "No permissions to create", "user namespace")
_APPARMOR: Final = (
    "Ubuntu 24.04 keeps programs from user namespaces; allow bwrap to have them: `sudo apt install apparmor-profiles "
    "&& sudo cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && sudo apparmor_parser -r "
    "/etc/apparmor.d/bwrap-userns-restrict`; elsewhere see `sysctl user.max_user_namespaces`; or "
)


def _hint(troubles: Sequence[str]) -> str:
    said = "; ".join(troubles)
    if NO_BWRAP in said:
        return f"install it (`apt install bubblewrap`, `dnf install bubblewrap`), or {WEAKER_HINT}"
    if any(each in said for each in _NO_NAMESPACES):
        return _APPARMOR + WEAKER_HINT
    return WEAKER_HINT
