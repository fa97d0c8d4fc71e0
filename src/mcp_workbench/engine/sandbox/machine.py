"""What is on this machine, and what it can enforce."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

from mcp_workbench.engine.config.sandbox_settings import protected_folders
from mcp_workbench.engine.sandbox.container_engine import ContainerEngine
from mcp_workbench.engine.sandbox.sandbox import Capabilities, FoundPath, Machine
from mcp_workbench.engine.transport import landlock, seccomp

# `/run` has sockets of everything, so of it only what name resolution reads. `/proc` shows other processes' command
# lines, as it does to every user; their environment and memory are kept from it otherwise. Not `/dev/pts`: whoever
# reads a terminal there gets what the user types.
_SYSTEM: Final = {
    "linux": (
        *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys"),
        *("/nix/store", "/gnu/store", "/snap", "/var/lib/snapd", "/home/linuxbrew/.linuxbrew"),
        *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/etc/resolv.conf"),
        "/dev/fd",
    ),
    "darwin": (
        "/usr",
        "/bin",
        "/sbin",
        "/System",
        "/Library",
        "/opt",
        "/private/etc",
        "/private/var/db",
        "/Applications",
    ),
}
_HARMLESS_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
# What does not move while a machine runs: where names are resolved does.
_LASTING_PATHS: Final = (
    frozenset((*_SYSTEM["linux"][:11], "/dev/fd")) | frozenset(_SYSTEM["darwin"]) | frozenset(_HARMLESS_DEVICES)
)
# More than any path has, with its links.
_MAX_STEPS: Final = 10_000
# Of a folder that is granted, to find the repositories in it.
_MAX_ENTRIES: Final = 1000


def look(path: str) -> FoundPath | None:
    try:
        # Most of what is looked for is not there, and an exception takes longer than asking.
        if not os.access(path, os.F_OK):
            return None
        real, is_folder = _opened(path) or (os.path.realpath(path, strict=True), os.path.isdir(path))
        return FoundPath(real, is_folder, *(() if real == path else _links_on_the_way(path)))
    except (OSError, ValueError):
        return None


def _opened(path: str) -> tuple[str, bool] | None:
    """The path without links and whether it is a folder, in a few calls instead of one for each folder on the way;
    None where it has to be found out in that way. Raises `OSError` if nothing is there."""
    if sys.platform != "linux" or not path.startswith("/"):
        return None
    descriptor = os.open(path, os.O_PATH)
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    # What the kernel shows of files that were deleted meanwhile, or are in no folder.
    return (real, is_folder) if real.startswith("/") and not real.endswith(" (deleted)") else None


def _real(path: str) -> str:
    """The path without links, as far as it exists."""
    folder, name = os.path.split(path)
    try:
        found = _opened(path)
    except FileNotFoundError:
        if name not in ("", ".", "..") and not os.path.islink(path):
            return os.path.join(_real(folder), name)
        found = None
    except (OSError, ValueError):
        found = None
    return os.path.realpath(path) if found is None else found[0]


_lasting: Final[dict[str, FoundPath]] = {}


def _looking() -> Callable[[str], FoundPath | None]:
    """The same, for one decision: each path is looked at once. The system's folders, which no user can replace, are
    looked at once for all."""
    seen: dict[str, FoundPath | None] = {}

    def look_once(path: str) -> FoundPath | None:
        if path in _lasting:
            return _lasting[path]
        if path not in seen:
            seen[path] = found = look(path)
            if found is not None and path in _LASTING_PATHS:
                _lasting[path] = found
        return seen[path]

    return look_once


def _links_on_the_way(path: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The folders of links that this user can replace, and all links."""
    found: dict[str, None] = {}
    links: dict[str, str] = {}
    at, ahead = "/", os.path.abspath(path).split("/")[::-1]
    for _ in range(_MAX_STEPS):
        if not ahead:
            break
        part = ahead.pop()
        if part == "..":
            at = os.path.dirname(at)
        elif part not in ("", "."):
            try:
                target = os.readlink(os.path.join(at, part))
            except OSError:
                at = os.path.join(at, part)
                continue
            links[os.path.join(at, part)] = target
            if os.access(at, os.W_OK):
                found[at] = None
            at = "/" if target.startswith("/") else at
            ahead += target.split("/")[::-1]
    return tuple(found), tuple(links.items())


def _repositories_in(folder: str) -> list[str]:
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, _MAX_ENTRIES):
            if entry.is_dir(follow_symlinks=False) and os.path.lexists(os.path.join(entry.path, ".git")):
                found.append(entry.path)
    return sorted(found)


def this_machine(home: str) -> Machine:
    """`home` is that of the user whose server it is."""
    from platformdirs import user_data_dir

    data = user_data_dir("mcp-workbench", appauthor=False)
    protected = [(_real(folder), what) for folder, what in protected_folders(home)]
    return Machine(
        home=_real(home),
        homes=os.path.join(_real(data), "homes"),
        protected=tuple(protected),
        look=_looking(),
        system=_SYSTEM.get(sys.platform, ()),
        devices=_HARMLESS_DEVICES,
        repositories=_repositories_in,
    )


@cache
def capabilities() -> Capabilities:
    """What this machine can enforce. Asked once."""
    if sys.platform == "darwin":
        return Capabilities(has_seatbelt=os.path.exists("/usr/bin/sandbox-exec"), engine=_engine)
    if sys.platform != "linux":
        return Capabilities(engine=_engine)
    return Capabilities(
        landlock_abi=landlock.abi(),
        has_filters=seccomp.is_supported() and _kernel_has_filters(),
        why_no_bwrap=_why_no_bwrap,
        engine=_engine,
    )


@cache
def _why_no_bwrap() -> str | None:
    from mcp_workbench.engine.sandbox.bwrap_backend import why_not

    return why_not()


_engines: Final[dict[str, ContainerEngine]] = {}


def _engine(name: str) -> ContainerEngine:
    from mcp_workbench.engine.sandbox.container_engine import look as look_at_engine

    found = _engines.get(name)
    if found is None:
        found = look_at_engine(name)
        # One that does not work is asked again: its daemon may be started later.
        if found.trouble is None:
            _engines[name] = found
    return found


def described(machine: Capabilities) -> str:
    """What a machine can enforce, in words. Pure."""
    if machine.has_seatbelt:
        return "sandbox-exec"
    if machine.landlock_abi < landlock.RENAMES_ABI:
        files = "no Landlock: neither files nor processes can be kept from servers"
    elif machine.landlock_abi < landlock.SCOPES_ABI:
        files = f"Landlock ABI {machine.landlock_abi} (files and memory of other processes; not signals)"
    else:
        files = f"Landlock ABI {machine.landlock_abi} (files, other processes)"
    filters = "seccomp (system calls, network, Unix sockets)" if machine.has_filters else "no seccomp"
    trouble = machine.why_no_bwrap()
    namespaces = (
        "bwrap (hosts, single Unix sockets, read-only files in granted folders)"
        if trouble is None
        else f"no namespaces ({trouble})"
    )
    return f"{files}, {filters}, {namespaces}"


def _kernel_has_filters() -> bool:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return any(line.startswith("Seccomp:") for line in file)
    except OSError:
        return False
