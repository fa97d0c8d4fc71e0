"""What is taken from a server before it starts, and from everything it starts: the kernel hands it down.

The calls that do it (`prctl`, `capset`) change the calling thread alone, and a process inherits from the thread that
starts it. So a thread confines itself, starts the server and ends: no wrapper program, no code between fork and exec.
Its children become those of the main thread when it ends.

Owns what is taken and how. Knows nothing about which servers there are. Linux only; elsewhere nothing is taken.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

IS_LINUX: Final = sys.platform.startswith("linux")
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITY_VERSION: Final = 0x20080522
_MOST_CAPABILITIES: Final = 64
# What makes root the owner of all files, users and low ports: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID
# and NET_BIND_SERVICE. In a container a server runs as root among files of other users. What reaches into other
# processes, the kernel and the network's packets is not among them.
ROOT_CAPABILITIES: Final = frozenset({0, 1, 3, 4, 5, 6, 7, 10})

# What `sudo`, rootless containers and `mount` helpers print when they do not get their privileges.
_SIGNS_OF_SETUID: Final = ("no new privileges", "no_new_privs", "newuidmap", "must be setuid", "must be suid")

_Result = TypeVar("_Result")


class Confinement(NamedTuple):
    """What is taken from a server."""

    # It can never gain rights by starting a program (`sudo`, file capabilities). It also tells its processes from ours:
    # our sockets refuse whoever has it (`socket_peers`).
    no_new_privileges: bool = True
    # The capabilities that it keeps if we are root.
    root_capabilities: frozenset[int] = ROOT_CAPABILITIES


GUARDED: Final = Confinement()


def start_confined(confinement: Confinement, start: Callable[[], _Result]) -> _Result:
    """Call `start` in a thread that is confined. Returns what it returns and raises what it raises."""
    if not IS_LINUX:
        return start()
    results: list[_Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            _confine_this_thread(confinement)
            results.append(start())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="start-server", daemon=True)
    thread.start()
    thread.join()
    if errors:
        try:
            raise errors[0]
        finally:
            # Its traceback refers to this frame.
            errors.clear()
    return results[0]


def privilege_hint(said: str) -> str | None:
    """What to do for a server that failed because it relies on a setuid program, by what it wrote to stderr."""
    text = said.lower()
    if not any(sign in text for sign in _SIGNS_OF_SETUID):
        return None
    return (
        "servers run with no_new_privs, so `sudo` and other setuid programs fail in them; run it as a service of its "
        "own, and give its `url`"
    )


@cache
def _library() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def _confine_this_thread(confinement: Confinement) -> None:
    library = _library()
    if os.geteuid() == 0:
        _limit_capabilities(library, confinement.root_capabilities)
    if confinement.no_new_privileges:
        library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _limit_capabilities(library: Any, kept: frozenset[int]) -> None:
    import ctypes
    import struct

    for number in range(_MOST_CAPABILITIES):
        if number not in kept:
            # Fails for numbers that the kernel does not have, and without CAP_SETPCAP. What follows suffices then, as
            # long as no privileges can be gained.
            library.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable, for the first 32 capabilities and for the others.
    held = ctypes.create_string_buffer(24)
    if library.capget(header, held):
        return
    sets = struct.unpack("=6I", held.raw)
    mask = sum(1 << number for number in kept)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    left = [value & part for value, part in zip(sets, (low, low, 0, high, high, 0), strict=True)]
    library.capset(header, struct.pack("=6I", *left))
