"""`mcp-workbench serve` after joining: copies, and survives the death of the workbench.

Owns what happens when the workbench is gone: requests in progress fail, and another workbench is joined or started and
takes the client over; if that fails, this process serves the client alone, and reports why.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

from mcp_workbench.engine.process_context import ON_TERMINAL, has_terminal, hide_memory
from mcp_workbench.sharing.front.copying import CLIENT_GONE, DIED, HANGS, STOPPED, Copying
from mcp_workbench.sharing.front.handing_over import Handover, hand_over
from mcp_workbench.sharing.front.joining import CannotJoin, Joined, NotRunning, join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# If it dies more often than this within a minute, the next one would die of the same cause.
MAX_WORKBENCH_DEATHS: Final = 3
_MINUTE: Final = 60.0


def serve(arguments: Sequence[str], *, may_start: bool) -> int | Handover | None:
    """Serve the client through the shared workbench. Returns the exit status, or the client to be served alone, or None
    if no shared workbench is running."""
    if not _has_standard_streams():
        return None
    hide_memory()
    try:
        joined = join(arguments, may_start=may_start)
    except NotRunning:
        return None
    except CannotJoin as reason:
        if not reason.is_expected:
            report(f"{reason}; serving alone")
        return Handover()
    if os.isatty(0):
        report(ON_TERMINAL)
    copying = Copying()
    signals = _Signals(copying)
    try:
        served = _serve(arguments, joined, copying, signals)
    finally:
        signals.close()
    if not isinstance(served, int):
        hand_over(served)
    return served


def _serve(arguments: Sequence[str], joined: Joined, copying: Copying, signals: _Signals) -> int | Handover:
    deaths: list[float] = []
    while True:
        signals.workbench = joined.pid
        end = copying.run(joined.descriptor)
        signals.workbench = 0
        if end is CLIENT_GONE:
            return 0
        copying.fail_requests(end)
        if end is DIED:
            deaths = [*(at for at in deaths if time.monotonic() - at < _MINUTE), time.monotonic()]
        try:
            if end is STOPPED or end is HANGS:
                raise CannotJoin(end)
            if len(deaths) > MAX_WORKBENCH_DEATHS:
                raise CannotJoin(f"the shared workbench died {len(deaths)} times within a minute")
            joined = join(arguments, copying.resume, may_start=True, is_patient=True)
        except (NotRunning, CannotJoin) as reason:
            # First, because it may wait for the end of a line, and a signal may arrive in the meantime.
            handover = copying.handover()
            if copying.is_client_done:
                return 0
            report(f"{reason}; serving alone from now on")
            return handover
        report(f"{end}; joined the one of process {joined.pid}")


def _has_standard_streams() -> bool:
    """Whether they are open. If not, files opened next would get their numbers; serving alone handles that."""
    try:
        for descriptor in (0, 1, 2):
            os.fstat(descriptor)
    except OSError:
        return False
    return True


class _Signals:
    """The signal handling of a front end: the same as that of a workbench that serves alone."""

    def __init__(self, copying: Copying) -> None:
        # The process to send SIGHUP to, which rereads the configuration.
        self.workbench = 0
        self._copying = copying
        # `nohup` and shells that start background jobs ignore it: then it never ends us.
        self._ends_with_terminal = _signal.getsignal(_signal.SIGHUP) != _signal.SIG_IGN
        self._had_terminal = has_terminal()
        # Python restarts a wait that a signal interrupts, with the same timeout: this pipe ends it.
        copying.signalled, self._wake = os.pipe()
        for descriptor in (copying.signalled, self._wake):
            os.set_blocking(descriptor, False)
        _signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        handlers = {_signal.SIGINT: self._end, _signal.SIGTERM: self._end, _signal.SIGHUP: self._on_hang_up}
        self._before = {number: _signal.signal(number, handler) for number, handler in handlers.items()}

    def close(self) -> None:
        """Restore the handlers: a process that serves alone is woken differently, and looks at the initial handlers."""
        for number, handler in self._before.items():
            _signal.signal(number, handler)
        _signal.set_wakeup_fd(-1)
        os.close(self._wake)
        os.close(self._copying.signalled)
        self._copying.signalled = -1

    def _end(self, number: int, frame: object) -> None:
        # A second one ends us at once.
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


def report(text: str) -> None:
    """Write to stderr, which the client may log for the user."""
    try:
        os.write(2, f"mcp-workbench: {text}\n".encode())
    except OSError:
        pass
