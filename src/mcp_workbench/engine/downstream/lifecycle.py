"""The life of a connection as a table, and when a crashed server may be started again. Pure.

configured ─┬─> starting ──> ready ──> stopping ──> stopped
  known ────┘      │           │                      │
                   └─> backoff <┘                     │
                       │  │                           │
           starting <──┘  └──> failed ──> starting    └──> starting
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from mcp_workbench.errors import SHORTAGE_HINTS, DownstreamError, shortage

if TYPE_CHECKING:
    import random

# How often a connection that is to end once it is idle checks whether it is. Polled: calls end on the hot path, which
# should not have to set events for this.
RETIRED_POLL_INTERVAL: Final = 0.2


class State(Enum):
    """The state of a connection."""

    CONFIGURED = "configured"  # never started, nothing known
    KNOWN = "known"  # never started here; what it offers is remembered
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"  # ended on purpose: idle, or shutting down
    BACKOFF = "backoff"  # failed; the next use starts it, not before a delay
    FAILED = "failed"  # failed too often; started again only when asked explicitly, or after a while


# Bound once: up to Python 3.11, a member of an enumeration is slow to read.
READY: Final = State.READY


class Event(Enum):
    """What can happen to a connection."""

    START = "start"
    STARTED = "started"
    CRASH = "crash"
    FAIL = "fail"
    STOP = "stop"
    STOPPED = "stopped"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.CONFIGURED, Event.START): State.STARTING,
    (State.KNOWN, Event.START): State.STARTING,
    (State.STOPPED, Event.START): State.STARTING,
    (State.BACKOFF, Event.START): State.STARTING,
    (State.FAILED, Event.START): State.STARTING,
    (State.STARTING, Event.STARTED): State.READY,
    (State.STARTING, Event.CRASH): State.BACKOFF,
    (State.READY, Event.CRASH): State.BACKOFF,
    (State.BACKOFF, Event.FAIL): State.FAILED,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.READY, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.STOPPED): State.STOPPED,
}


class ImpossibleTransition(Exception):
    """A bug of ours: an event that is impossible in this state."""


def next_state(state: State, event: Event) -> State:
    """Look the transition up."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ImpossibleTransition(f"{event.value} while {state.value}") from None


def unexpected(error: Exception) -> DownstreamError:
    """The error for a run that ended unexpectedly: because of a shortage, or a bug of ours."""
    what = shortage(error)
    if what is not None:
        return DownstreamError(f"the server cannot be used: {what}", hint=SHORTAGE_HINTS[what])
    text = f"the workbench failed to use this server ({type(error).__name__})"
    return DownstreamError(text, hint="the log of the workbench says why")


# It did not become ready, or it was and has ended.
FailureReason = Literal["start", "crash"]
MAX_CRASHES: Final = 5
CRASH_WINDOW: Final = 60.0
FIRST_DELAY: Final = 0.5
MAX_RESTART_DELAY: Final = 8.0


class RestartPolicy:
    """How long to wait before a crashed server is started again, and when to stop trying.

    One crash causes no delay: servers do crash, and the next call should simply work. From the second within a minute
    on, the delay doubles, with jitter so that servers that crashed together do not start together.
    """

    __slots__ = ("_crashes", "_random", "by_reason")

    def __init__(self, rng: random.Random | None = None) -> None:
        self._crashes: deque[float] = deque(maxlen=MAX_CRASHES)
        self._random = rng
        self.by_reason: dict[FailureReason, int] = {"start": 0, "crash": 0}

    @property
    def total(self) -> int:
        return sum(self.by_reason.values())

    def crashed(self, now: float, reason: FailureReason = "crash") -> None:
        """Record a crash or a failed start."""
        self.by_reason[reason] += 1
        self._crashes.append(now)

    def forgive(self) -> None:
        """Start counting again, because a restart was requested explicitly."""
        self._crashes.clear()

    def recent(self, now: float) -> int:
        """The number of crashes within the window."""
        return sum(1 for crash in self._crashes if now - crash < CRASH_WINDOW)

    def is_exhausted(self, now: float) -> bool:
        """Whether the next use must not start it."""
        return self.recent(now) >= MAX_CRASHES

    def rest(self, now: float) -> float:
        """Seconds until a use may start a server again that failed too often."""
        return max(1.0, self._crashes[0] + CRASH_WINDOW - now) if self._crashes else 0.0

    def refusal(self, last: DownstreamError, toolbox: str, now: float) -> DownstreamError:
        """The error for a use that does not start it. The last failure may be about another request that the server may
        have acted on; this one did not reach it."""
        return DownstreamError(
            f"{last.message}\n(not restarted after {self.recent(now)} failures within {CRASH_WINDOW:.0f} s; "
            "nothing was sent)",
            # Not every face has `open_toolbox`, but waiting works in all of them.
            hint=f"fix the cause, then call again in {self.rest(now):.0f} s, or open the toolbox `{toolbox}` to retry "
            "now",
        )

    def delay(self, now: float) -> float:
        """Seconds from now until the next start is allowed."""
        recent = self.recent(now)
        if recent < 2:
            return 0.0
        if self._random is None:
            # Imported after the first crash: starting up does not need it.
            import random

            self._random = random.Random()
        pause = min(FIRST_DELAY * 2.0 ** (recent - 2), MAX_RESTART_DELAY) * self._random.uniform(0.8, 1.2)
        return float(max(0.0, self._crashes[-1] + pause - now))


def quiet_future(loop: AbstractEventLoop) -> Future[None]:
    """A future for callers that wait until a server is ready or listed. It may fail while no caller waits: asyncio must
    not log that as an exception that was never retrieved."""
    future: Future[None] = loop.create_future()
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
    return future
