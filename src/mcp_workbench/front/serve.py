"""`mcp-workbench serve` that has joined: copies, and gets over the death of the workbench.

Owns the order of things when the workbench is gone: what was under way fails, another one is joined or started and
takes the client over; where that cannot be, the client is served by this process alone, and it is said why.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

from mcp_workbench.front.copying import CLIENT_GONE, DIED, HANGS, STOPPED, Copying, Handover
from mcp_workbench.front.joining import CannotJoin, Joined, NotRunning, join
from mcp_workbench.process_context import has_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# A workbench that dies more often than this within a minute dies of something that would befall the next one, too.
MOST_DEATHS: Final = 3
_MINUTE: Final = 60.0


def serve(arguments: Sequence[str], *, may_start: bool) -> int | Handover | None:
    """Serve the client through the shared workbench; the exit status, or the client for whoever serves it alone; None
    where no shared workbench is running."""
    if not _has_standard_streams():
        return None
    try:
        joined = join(arguments, may_start=may_start)
    except NotRunning:
        return None
    except CannotJoin as reason:
        if not reason.is_expected:
            say(f"{reason}; serving alone")
        return Handover()
    copying = Copying()
    signals = _Signals(copying)
    try:
        return _serve(arguments, joined, copying, signals)
    finally:
        signals.close()


def _serve(arguments: Sequence[str], joined: Joined, copying: Copying, signals: _Signals) -> int | Handover:
    deaths: list[float] = []
    while True:
        signals.workbench = joined.pid
        end = copying.run(joined.descriptor)
        signals.workbench = 0
        if end is CLIENT_GONE:
            return 0
        copying.fail_what_is_under_way(end)
        if end is DIED:
            deaths = [*(at for at in deaths if time.monotonic() - at < _MINUTE), time.monotonic()]
        try:
            if end is STOPPED or end is HANGS:
                raise CannotJoin(end)
            if len(deaths) > MOST_DEATHS:
                raise CannotJoin(f"the shared workbench died {len(deaths)} times within a minute")
            joined = join(arguments, copying.resume, may_start=True, is_patient=True)
        except (NotRunning, CannotJoin) as reason:
            # First: it may wait for the end of a line, and a signal may come meanwhile.
            handover = copying.handover()
            if copying.is_client_done:
                return 0
            say(f"{reason}; serving alone from now on")
            return handover
        say(f"{end}; joined the one of process {joined.pid}")


def _has_standard_streams() -> bool:
    """Without them, what is opened next would get their numbers. Whoever serves alone knows what to do then."""
    try:
        for descriptor in (0, 1, 2):
            os.fstat(descriptor)
    except OSError:
        return False
    return True


class _Signals:
    """What signals do to a front end: the same as to a workbench that serves alone."""

    def __init__(self, copying: Copying) -> None:
        # Where a configuration is to be read again on SIGHUP.
        self.workbench = 0
        self._copying = copying
        # `nohup` and shells that start things in the background have it ignored: then it never ends us.
        self._ends_with_terminal = _signal.getsignal(_signal.SIGHUP) != _signal.SIG_IGN
        self._had_terminal = has_terminal()
        # A wait that a signal interrupts is begun again, for as long as before: this one ends it.
        copying.signalled, self._wake = os.pipe()
        for descriptor in (copying.signalled, self._wake):
            os.set_blocking(descriptor, False)
        _signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        handlers = {_signal.SIGINT: self._end, _signal.SIGTERM: self._end, _signal.SIGHUP: self._on_hang_up}
        self._before = {number: _signal.signal(number, handler) for number, handler in handlers.items()}

    def close(self) -> None:
        """Whoever serves alone is woken in another way, and looks at what signals did when the process started."""
        for number, handler in self._before.items():
            _signal.signal(number, handler)
        _signal.set_wakeup_fd(-1)
        os.close(self._wake)
        os.close(self._copying.signalled)
        self._copying.signalled = -1

    def _end(self, number: int, frame: object) -> None:
        # Another one ends us at once.
        _signal.signal(number, _signal.SIG_DFL)
        self._copying.begin_to_end()

    def _on_hang_up(self, number: int, frame: object) -> None:
        if self._had_terminal and not has_terminal():
            if self._ends_with_terminal:
                self._end(number, frame)
        elif self.workbench:
            try:
                os.kill(self.workbench, number)
            except OSError:
                pass


def say(text: str) -> None:
    """To the person who reads what the client keeps of our stderr."""
    try:
        os.write(2, f"mcp-workbench: {text}\n".encode())
    except OSError:
        pass
