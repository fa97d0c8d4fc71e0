"""Requests that are waiting for their response.

Owns outgoing ids, which exchange each belongs to, and its deadline. Knows nothing about how messages travel or what
they contain.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Final

from msgspec import Raw, Struct, field

from mcp_workbench.engine.jsonrpc.messages import ErrorObject, read_error
from mcp_workbench.errors import WorkbenchError

# How often deadlines are checked, with one timer for all requests of a connection: one for each would cost more than
# the rest of the call. A timeout is late by at most twice this interval: a request that is found overdue fails only at
# the next check, after everything that has arrived in the meantime was read.
DEADLINE_CHECK_INTERVAL: Final = 0.25
# How often a waiting client is notified that its request is still running. Clients time out after a minute at the
# earliest, so the second notification is in time even if the first is lost.
REMIND_INTERVAL: Final = 15.0
# A check that is later than this was not delayed by work: the process was stopped (a debugger, a snapshot, no memory
# left) and has yet to read what arrived meanwhile. That time does not count towards any deadline.
STOPPED_PROCESS_THRESHOLD: Final = 1.0


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Like `asyncio.timeout`, which expires before pending input is read: here, what has arrived by the deadline
    counts, and time during which the process was stopped does not."""
    loop = asyncio.get_running_loop()
    looked_at = loop.time()
    due = looked_at + seconds
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as verdict:

        def look() -> None:
            nonlocal due, looked_at, timer
            now = loop.time()
            stopped = now - looked_at - DEADLINE_CHECK_INTERVAL
            if stopped > STOPPED_PROCESS_THRESHOLD:
                due += stopped
            if due <= looked_at:
                # Overdue at the previous check already, and everything that arrived since has been read.
                verdict.reschedule(now)
                return
            looked_at = now
            timer = loop.call_later(DEADLINE_CHECK_INTERVAL, look)

        timer = loop.call_later(DEADLINE_CHECK_INTERVAL, look)
        try:
            yield
        finally:
            timer.cancel()


class Exchange(Struct, eq=False, kw_only=True):
    """One request in progress. Ends with exactly one of `on_result`, `on_error` and `on_failure`.

    A `Struct`, because there is one for each call and structs are created in C.
    """

    wire_id: int = 0
    timeout: float = 0.0
    deadline: float = 0.0
    # Progress extends the deadline, but never beyond this time.
    latest: float = 0.0

    def on_result(self, result: Raw) -> None: ...

    def on_error(self, error: Raw) -> None:
        """The peer answered with a JSON-RPC error."""

    def on_failure(self, error: WorkbenchError) -> None:
        """There will be no response: timeout, crash, shutdown."""

    def on_progress(self, params: Raw) -> None:
        """The peer reported progress on this request."""

    def on_waiting(self, now: float) -> None:
        """Called from time to time while the request is running."""


class RemoteError(WorkbenchError):
    """A JSON-RPC error that the peer answered with."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.error = error
        self.code = error.code


def _future() -> asyncio.Future[Raw]:
    return asyncio.get_running_loop().create_future()


class AwaitedExchange(Exchange):
    """An exchange whose response can be awaited."""

    future: asyncio.Future[Raw] = field(default_factory=_future)

    def on_result(self, result: Raw) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def on_error(self, error: Raw) -> None:
        self.on_failure(RemoteError(read_error(error)))

    def on_failure(self, error: WorkbenchError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            # Mark it as retrieved: the waiter may have been cancelled, and asyncio would log it.
            self.future.exception()


# One counter for all tables: HTTP connections are shared, and a duplicate or late response must never be mistaken for
# the response to another request.
new_id: Final = count(1).__next__


class PendingRequests:
    """The requests in progress on one connection."""

    __slots__ = ("_new_id", "_reminded_at", "by_id", "unmatched")

    def __init__(self, new_id: Callable[[], int] = new_id) -> None:
        self._new_id = new_id
        # By id on the wire. Whoever adds an exchange here directly has set its id and deadline.
        self.by_id: dict[int, Exchange] = {}
        # Counts responses without a request: late, duplicate, or with an id that we never used.
        self.unmatched = 0
        self._reminded_at = 0.0

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def waiting_count(self) -> int:
        """How many have not been sent yet, because their client has too many requests in progress."""
        return 0

    def values(self) -> list[Exchange]:
        """All exchanges, oldest first."""
        return list(self.by_id.values())

    def add(self, exchange: Exchange, now: float, timeout: float, latest: float, id: int | None = None) -> int:
        """Add an exchange, and return its id on the wire: a new one, unless its sender has chosen one."""
        exchange.wire_id = id = self._new_id() if id is None else id
        exchange.timeout = timeout
        exchange.deadline = now + timeout
        exchange.latest = now + latest
        self.by_id[id] = exchange
        return id

    def take(self, id: Raw | bytes) -> Exchange | None:
        """Remove and return the exchange that a response belongs to. The first response wins; `"1"` is not `1`."""
        try:
            found = self.by_id.pop(int(bytes(id)), None)
        except ValueError:
            found = None
        if found is None:
            self.unmatched += 1
        return found

    def find(self, id: int) -> Exchange | None:
        """The exchange with this id, without removing it."""
        return self.by_id.get(id)

    def remove(self, exchange: Exchange) -> bool:
        """Remove an exchange; a later response is dropped."""
        return self.by_id.pop(exchange.wire_id, None) is not None

    def extend(self, exchange: Exchange, now: float) -> None:
        """Restart the timeout after progress, up to `latest`."""
        exchange.deadline = min(now + exchange.timeout, exchange.latest)

    def postpone(self, seconds: float) -> None:
        """Extend all deadlines by the time during which the process was stopped."""
        for exchange in self.by_id.values():
            exchange.deadline += seconds
            exchange.latest += seconds

    def remind(self, now: float) -> None:
        """Call `on_waiting` on all exchanges every `REMIND_INTERVAL`."""
        if now - self._reminded_at >= REMIND_INTERVAL:
            self._reminded_at = now
            for exchange in self.values():
                exchange.on_waiting(now)

    def expired(self, now: float) -> list[Exchange]:
        """Remove and return all exchanges whose deadline has passed."""
        late = [exchange for exchange in self.by_id.values() if exchange.deadline <= now]
        for exchange in late:
            del self.by_id[exchange.wire_id]
        return late

    def drain(self) -> list[Exchange]:
        everything = self.values()
        self.by_id.clear()
        return everything


class DeadlineTimer:
    """Checks the deadlines of one connection's requests, while there are any."""

    __slots__ = ("_check", "_loop", "_timer", "is_running", "looked_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, check: Callable[[float, float], bool]) -> None:
        """`check` gets the time of the previous check, and for how long the process was stopped since: what was overdue
        then is overdue still, since everything that has arrived in the meantime was read. It returns whether there is
        anything left to check."""
        self._loop = loop
        self._check = check
        self._timer: asyncio.TimerHandle | None = None
        self.is_running = False
        self.looked_at: float

    def start(self) -> None:
        if not self.is_running:
            self.is_running = True
            self.looked_at = self._loop.time()
            self._timer = self._loop.call_later(DEADLINE_CHECK_INTERVAL, self.look)

    def stop(self) -> None:
        """There is nothing left to check."""
        if self._timer is not None:
            self._timer.cancel()
        self.is_running = False

    def look(self) -> None:
        self.is_running = False
        looked_at = self.looked_at
        stopped = self._loop.time() - looked_at - DEADLINE_CHECK_INTERVAL
        if self._check(looked_at, stopped if stopped > STOPPED_PROCESS_THRESHOLD else 0.0):
            self.start()
