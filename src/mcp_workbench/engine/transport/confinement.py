"""What is taken from a server before it starts, and from everything it starts: the kernel hands it down.

The calls that do it (`prctl`, `capset`, Landlock, seccomp) change the calling thread alone, and a process inherits from
the thread that starts it. So a thread confines itself, starts the server and ends: no wrapper program, no code between
fork and exec. Its children become those of the main thread when it ends.

Owns what is taken and how. Knows nothing about which servers there are. Linux only; elsewhere nothing is taken.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from mcp_workbench.engine.transport import landlock, seccomp
from mcp_workbench.engine.transport.open_files import room_for_many

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger(__name__)

IS_LINUX: Final = sys.platform.startswith("linux")
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_FILTER_MODE: Final = 2
_SET_MODE_FILTER: Final = 1
# Linux before 5.16 slows filtered programs down, to keep what they run from reading memory of their own process by
# speculation. Kernels before 4.17, which know no flag for it, take the filter by `prctl`.
_SPEC_ALLOW: Final = 4
_INSTRUCTION_BYTES: Final = 8
_CAPABILITY_VERSION: Final = 0x20080522
_MAX_CAPABILITIES: Final = 64
# What makes root the owner of all files and users: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID and SETUID. In a
# container a server runs as root among files of other users. Without DAC_OVERRIDE the published filesystem server can
# write nothing in a project of theirs, git cannot commit and npm cannot install; `cp -a` and `tar` need the other
# ones for files, `gosu` and `setpriv` those for users. What root may do to its own files needs none of them.
ROOT_CAPABILITIES: Final = frozenset({0, 1, 3, 4, 5, 6, 7})
# Of those, what a server needs that is limited to some files: they may be another user's. Landlock does not limit the
# changing of owners and modes, which could open all other files to somebody else.
FILE_CAPABILITIES: Final = frozenset({1})

_Result = TypeVar("_Result")


class Confinement(NamedTuple):
    """What is taken from a server."""

    # It can never gain rights by starting a program (`sudo`, file capabilities). It also tells its processes from ours:
    # our sockets refuse whoever has it (`socket_peers`). The kernel requires it for everything below.
    no_new_privileges: bool = True
    # The capabilities that it keeps if we are root.
    root_capabilities: frozenset[int] = ROOT_CAPABILITIES
    # It cannot reach into processes that it did not start: signals, abstract sockets, memory, environment.
    is_apart: bool = True
    # Calls that reach into the kernel and other processes fail.
    filters_calls: bool = True
    # The only families of sockets that it can create; None: all.
    families: frozenset[int] | None = None
    # What it can read, and what it can write as well: paths without links; None: as its user.
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] = ()
    has_tcp: bool = True
    # Start without what this machine cannot enforce.
    is_best_effort: bool = False


# What every server is started with unless its user says otherwise.
GUARDED: Final = Confinement(is_best_effort=True)
UNCONFINED: Final = Confinement(
    no_new_privileges=False, root_capabilities=frozenset(range(_MAX_CAPABILITIES)), is_apart=False, filters_calls=False
)


class Companion(Protocol):
    """What runs beside a server for as long as it does: in our own process, or in one that cleans up after it."""

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The one that cleans up after it, even if we are gone."""

    def begin(self) -> None:
        """The server was started. Called on the event loop."""

    def abandon(self) -> None:
        """The server was not started."""

    async def close(self) -> None:
        """Nothing is left of the server. Bounded."""


class Launch(NamedTuple):
    """How a server's process is started: by a thread that is confined, or by a program that confines it, or both."""

    confinement: Confinement = GUARDED
    # A program and its arguments, which starts the server's command line that follows.
    wrapper: tuple[str, ...] = ()
    # Descriptors that the wrapper inherits.
    descriptors: tuple[int, ...] = ()
    companion: Companion | None = None
    # The environment of a wrapper that has the server started elsewhere, in a container: it names the program itself,
    # and the server's own variables are among its arguments. None: the wrapper becomes the server.
    client_environment: Mapping[str, str] | None = None

    def close(self) -> None:
        """Close the descriptors, once it has started or failed to."""
        for each in self.descriptors:
            os.close(each)

    def abandon(self) -> None:
        """Close everything: it is not started."""
        self.close()
        if self.companion is not None:
            self.companion.abandon()


AS_GUARDED: Final = Launch()


class CannotConfine(Exception):
    """The system refused to take something from a server, which therefore was not started."""


def start_confined(confinement: Confinement, start: Callable[[], _Result]) -> _Result:
    """Call `start` in a thread that is confined. Returns what it returns and raises what it raises; `CannotConfine` if
    it was not called."""
    with room_for_many():
        if not IS_LINUX or confinement == UNCONFINED:
            return start()
        return _start_in_thread(confinement, start)


def _start_in_thread(confinement: Confinement, start: Callable[[], _Result]) -> _Result:
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


def missing(confinement: Confinement, *, landlock_abi: int, has_filters: bool) -> list[str]:
    """What of this a machine with that much of Landlock and seccomp cannot enforce, in words. Pure."""
    found = []
    if confinement.is_apart and landlock_abi < landlock.RENAMES_ABI:
        found.append("cannot keep it from reading the memory and environment of your other programs (no Landlock)")
    if confinement.is_apart and landlock_abi < landlock.SCOPES_ABI:
        found.append("cannot keep it from signalling your other programs (Landlock ABI 6, Linux 6.12)")
    if confinement.read is not None and landlock_abi < landlock.RENAMES_ABI:
        found.append("cannot limit its files (Landlock ABI 2, Linux 5.19)")
    if confinement.filters_calls and not has_filters:
        found.append("cannot filter its system calls (seccomp, on x86-64 and aarch64)")
    if not confinement.has_tcp and not has_filters and landlock_abi < landlock.TCP_ABI:
        found.append("cannot keep it from the network")
    if confinement.families is not None and not has_filters:
        found.append("cannot keep it from Unix sockets and UDP (seccomp)")
    return found


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
    # The filter last: it must not be in the way of what comes before.
    for take in (_enter_domain, _filter_calls):
        try:
            take(confinement)
        except OSError as error:
            if not confinement.is_best_effort:
                raise CannotConfine(error.strerror) from None


def _enter_domain(confinement: Confinement) -> None:
    files, tcp = confinement.read is not None, not confinement.has_tcp
    if landlock.abi() < landlock.RENAMES_ABI or not (confinement.is_apart or files or tcp):
        return
    rules = landlock.Ruleset(files=files, tcp=tcp, scopes=confinement.is_apart)
    try:
        rules.grant(confinement.read or (), write=False, refused=_not_granted)
        rules.grant(confinement.write if files else (), write=True, refused=_not_granted)
        rules.apply()
    finally:
        rules.close()


def _not_granted(path: str) -> None:
    log.debug("`%s` is not granted: it does not exist any more, or a link has taken its place", path)


def _filter_calls(confinement: Confinement) -> None:
    if not confinement.filters_calls or not seccomp.is_supported():
        return
    import ctypes
    import struct

    program = seccomp.filter_program(confinement.families)
    code = ctypes.create_string_buffer(program, len(program))
    described = ctypes.c_char_p(struct.pack("HP", len(program) // _INSTRUCTION_BYTES, ctypes.addressof(code)))
    library = _library()
    if library.syscall(seccomp.call_number(), _SET_MODE_FILTER, _SPEC_ALLOW, described) and library.prctl(
        _PR_SET_SECCOMP, _FILTER_MODE, described, 0, 0
    ):
        raise OSError(None, "the system does not accept a filter of system calls (seccomp)")


def _limit_capabilities(library: Any, kept: frozenset[int]) -> None:
    import ctypes
    import struct

    for number in range(_MAX_CAPABILITIES):
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
