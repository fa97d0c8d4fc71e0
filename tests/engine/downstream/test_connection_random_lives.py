"""Whatever happens to a connection, in whatever order, its life stays in the table and everybody who waits is told.

The real `Connection` and its owner tasks, with a server that lives in memory and does what Hypothesis wants.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.downstream import lifecycle
from mcp_workbench.engine.downstream.lifecycle import TRANSITIONS, Event, State
from mcp_workbench.engine.transport.link import SESSION_LOST
from mcp_workbench.errors import DownstreamError
from tests.engine.downstream.fakes import INITIALIZED, NEVER, TOOLS, FakeServer
from tests.support.examples import examples

# A handshake or a list that never comes ends after this long.
STARTUP = 0.02

steps = st.lists(
    st.one_of(
        st.tuples(st.just("use"), st.booleans()),
        st.tuples(st.just("list"), st.booleans()),
        st.tuples(st.just("start in background"), st.none()),
        st.tuples(st.just("give up waiting"), st.integers(0, 5)),
        st.tuples(st.just("die"), st.integers(0, 5)),
        st.tuples(st.just("forget"), st.integers(0, 5)),
        st.tuples(st.just("stop"), st.none()),
        st.tuples(st.just("list changed"), st.none()),
        st.tuples(st.just("initialize"), st.sampled_from([INITIALIZED, NEVER, {}, {"protocolVersion": 5}])),
        st.tuples(st.just("tools/list"), st.sampled_from([TOOLS, NEVER, {}, {"tools": 5}])),
        st.tuples(st.just("may stop"), st.booleans()),
        st.tuples(st.just("may open"), st.booleans()),
        st.tuples(st.just("turns"), st.integers(1, 12)),
        st.tuples(st.just("time"), st.none()),
    ),
    max_size=30,
)


class Life:
    """One connection's, as far as it goes."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.waiting: list[asyncio.Task[None]] = []
        self.moves: list[tuple[State, Event, State]] = []
        self._may_open = True
        server.before_opening = self._open
        move = server.connection._move

        def watched(event: Event) -> None:
            before = server.connection.state
            move(event)
            self.moves.append((before, event, server.connection.state))

        server.connection._move = watched  # type: ignore[method-assign]

    async def _open(self) -> None:
        await asyncio.sleep(0)
        if not self._may_open:
            raise DownstreamError("command `fake` does not exist")

    async def step(self, what: str, detail: Any) -> None:
        server, connection = self.server, self.server.connection
        match what:
            case "use":
                self.waiting.append(asyncio.create_task(connection.ensure_ready(asked=detail)))
            case "list":
                self.waiting.append(asyncio.create_task(connection.ensure_listed(asked=detail)))
            case "start in background":
                # As the pool does: only what is not running.
                if connection.state in (State.CONFIGURED, State.KNOWN, State.STOPPED):
                    connection.start_in_background()
            case "give up waiting" if self.waiting:
                self.waiting[detail % len(self.waiting)].cancel()
            case "die" if server.links:
                server.links[detail % len(server.links)].die()
            case "forget" if server.links:
                server.links[detail % len(server.links)].die(SESSION_LOST)
            case "stop":
                connection.request_stop()
            case "list changed":
                connection.on_list_changed("tools")
            case "initialize" | "tools/list":
                server.answers[what] = detail
            case "may stop":
                (server.may_stop.set if detail else server.may_stop.clear)()
            case "may open":
                self._may_open = detail
            case "turns":
                for _ in range(detail):
                    await asyncio.sleep(0)
            case "time":
                # One more event, not a wait for something: deadlines may pass or not, and both must be right.
                await asyncio.sleep(2 * STARTUP)

    async def recover(self) -> None:
        """All is well again: everybody who waited has been told, and whoever comes gets a server."""
        self.server.answers.update({"initialize": INITIALIZED, "tools/list": TOOLS})
        self._may_open = True
        self.server.may_stop.set()
        for outcome in await asyncio.gather(*self.waiting, return_exceptions=True):
            assert outcome is None or isinstance(outcome, DownstreamError | asyncio.CancelledError), repr(outcome)
        for _ in range(3):
            try:
                await self.server.connection.ensure_listed(asked=True)
                break
            except DownstreamError:
                # Somebody had asked it to stop, or it was just on its way down.
                continue
        else:
            raise AssertionError(f"it cannot be had again: {self.server.connection!r}")
        assert self.server.connection.state is State.READY
        assert [link for link in self.server.links if not link.stopping.is_set()] == self.server.links[-1:]


async def _live(script: list[tuple[str, Any]]) -> None:
    async with asyncio.timeout(30), FakeServer(startup_timeout=STARTUP) as server:
        life = Life(server)
        for what, detail in script:
            await life.step(what, detail)
        await life.recover()
    for task in server.tasks:
        assert task.cancelled() or task.exception() is None, repr(task.exception())
    assert all(TRANSITIONS[before, event] is after for before, event, after in life.moves)
    assert [after for _, _, after in life.moves[:-1]] == [before for before, _, _ in life.moves[1:]]


@settings(examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_any_sequence_stays_in_the_table_and_answers_every_waiting_caller(script: list[tuple[str, Any]]) -> None:
    # How long crashed servers are left alone is the policy's business, which has tests of its own.
    with patch.object(lifecycle, "FIRST_DELAY", 0.0):
        asyncio.run(_live(script))
