"""Requests that wait for their answer.

Owns outgoing ids, who waits for which, and until when. Refuses to know how messages travel or what they ask.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Final

from msgspec import Raw, Struct, field

from mcp_workbench.errors import WorkbenchError
from mcp_workbench.jsonrpc.messages import ErrorObject, read_error

# A deadline is checked this often: one timer for all requests of a connection instead of one for each of them, which
# would cost more than the rest of a call. A timeout is late by at most twice this much: what a look finds late is
# judged by the next one, after everything that has arrived meanwhile was read.
DEADLINE_CHECK_INTERVAL: Final = 0.25
# How often whoever waits for an answer is notified that it is still on its way. Clients time out after a minute at the
# earliest, so the second of these is in time even where the first is lost.
REMIND_INTERVAL: Final = 15.0
# A look that comes later than this was not made late by work: we were stopped (a debugger, a snapshot, no memory left),
# and wake up with everything unread that came meanwhile. That time counts for no deadline.
STOPPED_SECONDS: Final = 1.0


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Like `asyncio.timeout`, which judges before anything is read: here what has arrived at the deadline counts, and
    time in which we were stopped does not."""
    loop = asyncio.get_running_loop()
    looked_at = loop.time()
    due = looked_at + seconds
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as verdict:

        def look() -> None:
            nonlocal due, looked_at, timer
            now = loop.time()
            stopped = now - looked_at - DEADLINE_CHECK_INTERVAL
            if stopped > STOPPED_SECONDS:
                due += stopped
            if due <= looked_at:
                # It was late at the look before: what has arrived since has been read.
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
    """One request under way. Ends with exactly one of `on_result`, `on_error` and `on_failure`.

    A `Struct` because there is one for each call, and it is made in C.
    """

    wire_id: int = 0
    timeout: float = 0.0
    deadline: float = 0.0
    # Progress may push the deadline out, never beyond this moment.
    latest: float = 0.0

    def on_result(self, result: Raw) -> None:
        """The peer answered."""

    def on_error(self, error: Raw) -> None:
        """The peer answered with a JSON-RPC error."""

    def on_failure(self, error: WorkbenchError) -> None:
        """No answer will come: deadline, crash, shutdown."""

    def on_progress(self, params: Raw) -> None:
        """The peer reported progress on this very request."""

    def on_waiting(self, now: float) -> None:
        """It is still under way; told now and then."""


class RemoteError(WorkbenchError):
    """A JSON-RPC error that the peer answered with."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.error = error
        self.code = error.code


def _future() -> asyncio.Future[Raw]:
    return asyncio.get_running_loop().create_future()


class AwaitedExchange(Exchange):
    """An exchange for code that wants to `await` its answer."""

    future: asyncio.Future[Raw] = field(default_factory=_future)

    def on_result(self, result: Raw) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def on_error(self, error: Raw) -> None:
        self.on_failure(RemoteError(read_error(error)))

    def on_failure(self, error: WorkbenchError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            # The waiter may be gone already (cancelled); an unread exception means nothing then.
            self.future.exception()


# One row of numbers for all tables: connections over HTTP are shared, and an answer that a server gives twice, or too
# late, must not pass for the answer to somebody else's request.
new_id: Final = count(1).__next__


class PendingRequests:
    """The table of requests under way on one connection."""

    __slots__ = ("_by_id", "_new_id", "_reminded_at", "unmatched")

    def __init__(self, new_id: Callable[[], int] = new_id) -> None:
        self._new_id = new_id
        self._by_id: dict[int, Exchange] = {}
        # Answers that nobody waited for: late, doubled, or with an id that was never ours.
        self.unmatched = 0
        self._reminded_at = 0.0

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def waiting_count(self) -> int:
        """How many are not under way yet, because too many of the same client are."""
        return 0

    def values(self) -> list[Exchange]:
        """Everything under way, oldest first."""
        return list(self._by_id.values())

    def add(self, exchange: Exchange, now: float, timeout: float, latest: float) -> int:
        """Enter an exchange; return the id that goes on the wire."""
        exchange.wire_id = id = self._new_id()
        exchange.timeout = timeout
        exchange.deadline = now + timeout
        exchange.latest = now + latest
        self._by_id[id] = exchange
        return id

    def enter(self, exchange: Exchange) -> None:
        """Enter an exchange that has its id and its deadline."""
        self._by_id[exchange.wire_id] = exchange

    def take(self, id: Raw | bytes) -> Exchange | None:
        """The exchange that an answer with this id belongs to. The first answer wins; `"1"` is not `1`."""
        try:
            found = self._by_id.pop(int(bytes(id)), None)
        except ValueError:
            found = None
        if found is None:
            self.unmatched += 1
        return found

    def find(self, id: int) -> Exchange | None:
        """The exchange with this id, left where it is."""
        return self._by_id.get(id)

    def remove(self, exchange: Exchange) -> bool:
        """Forget an exchange; its answer, should it come, is dropped."""
        return self._by_id.pop(exchange.wire_id, None) is not None

    def extend(self, exchange: Exchange, now: float) -> None:
        """Progress came: the clock starts again, up to the latest moment."""
        exchange.deadline = min(now + exchange.timeout, exchange.latest)

    def postpone(self, seconds: float) -> None:
        """So much time passed without our being there."""
        for exchange in self._by_id.values():
            exchange.deadline += seconds
            exchange.latest += seconds

    def remind(self, now: float) -> None:
        """Now and then, tell everything under way that it still is."""
        if now - self._reminded_at >= REMIND_INTERVAL:
            self._reminded_at = now
            for exchange in self.values():
                exchange.on_waiting(now)

    def expired(self, now: float) -> list[Exchange]:
        """Take out and return everything whose deadline has passed."""
        late = [exchange for exchange in self._by_id.values() if exchange.deadline <= now]
        for exchange in late:
            del self._by_id[exchange.wire_id]
        return late

    def drain(self) -> list[Exchange]:
        """Take out and return everything."""
        everything = self.values()
        self._by_id.clear()
        return everything
