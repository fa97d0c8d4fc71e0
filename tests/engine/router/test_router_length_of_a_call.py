"""A plain call takes a fixed number of steps. Its time is the number of them, so they are counted and not timed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

import mcp_workbench
from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.observe.ended_calls import EndedCalls
from mcp_workbench.seeing.trace_context import Sampler
from mcp_workbench.seeing.tracing import CallTracer
from tests.bridge.conversation import Conversation
from tests.bridge.in_process import in_process_workbench

if TYPE_CHECKING:
    from mcp_workbench.seeing.span_sender import SpanSender

PACKAGE = str(Path(mcp_workbench.__file__).parent)
# Functions of ours that one call runs, from the client's message to the server and from the server's answer back; pipes
# and sockets not counted. One more is a decision, not an accident: `docs/internals/design.md` says what a call costs.
MAX_STEPS: dict[tuple[str, str, FaceName], int] = {
    ("legacy", "legacy", "flat"): 22,
    ("modern", "legacy", "flat"): 26,
    ("legacy", "legacy", "proxy"): 27,
    ("modern", "legacy", "proxy"): 31,
    # Members of modern results are taken out.
    ("legacy", "modern", "proxy"): 37,
    ("modern", "modern", "proxy"): 33,
    # Which face a client sees is decided when it introduces itself.
    ("legacy", "legacy", "auto"): 27,
    ("modern", "legacy", "auto"): 31,
}


class Steps:
    """Writes down the functions of ours that are called while it is entered."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.paths: list[str] = []

    def __enter__(self) -> Steps:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.names.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
            self.paths.append(frame.f_code.co_filename)


@pytest.mark.parametrize(("client_era", "server_era", "face"), MAX_STEPS)
async def test_a_plain_call_takes_no_more_steps_than_it_needs(client_era: str, server_era: str, face: FaceName) -> None:
    async with in_process_workbench(server_era, face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        # What is loaded, looked up or set up with the first calls.
        for _ in range(2):
            Conversation(client, server, "tool").finish()
        with Steps() as steps:
            Conversation(client, server, "tool").finish()
        assert "traffic.forward" in steps.names, "otherwise this test looks at nothing"
        assert len(steps.names) <= MAX_STEPS[client_era, server_era, face], "\n".join(steps.names)


# Where several clients share a server: whether it is this one's turn, and whose turn it is when the answer has come.
FAIRNESS_STEPS = 2


async def test_a_fair_order_among_clients_takes_few_steps_and_none_where_there_is_one_client() -> None:
    counts = []
    for serves_many in (False, True):
        async with in_process_workbench("legacy") as workbench:
            if serves_many:
                workbench.gateway.runtime.pool.serve_many()
            client = workbench.client("legacy")
            server = await workbench.connect(client)
            Conversation(client, server, "tool").finish()
            with Steps() as steps:
                Conversation(client, server, "tool").finish()
            counts.append(len(steps.names))
    assert counts[1] - counts[0] <= FAIRNESS_STEPS


# It begins, it ends, and that is counted.
COUNTING_STEPS = 3


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_counting_takes_few_steps_and_none_unless_somebody_wants_figures(era: str) -> None:
    counts = []
    for is_counting in (False, True):
        async with in_process_workbench(era) as workbench:
            if is_counting:
                workbench.gateway.runtime.count_calls()
            client = workbench.client(era)
            server = await workbench.connect(client)
            for _ in range(2):
                Conversation(client, server, "tool").finish()
            with Steps() as steps:
                Conversation(client, server, "tool").finish()
            counts.append(len(steps.names))
            figures = workbench.gateway.runtime.figures
            assert bool([name for name in steps.names if name.startswith("call_figures.")]) is is_counting
            if figures is not None:
                assert {row.item: row.calls for row in figures.totals().rows}["work"] == 3
    assert counts[1] - counts[0] <= COUNTING_STEPS


# What has ended is added to what somebody takes later, and described then.
COLLECTING_STEPS = 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_collecting_calls_takes_one_step(era: str) -> None:
    counts = []
    for is_collecting in (False, True):
        async with in_process_workbench(era) as workbench:
            figures, collector = workbench.gateway.runtime.count_calls(), EndedCalls(lambda: None)
            if is_collecting:
                figures.collect(collector)
            client = workbench.client(era)
            server = await workbench.connect(client)
            for _ in range(2):
                Conversation(client, server, "tool").finish()
            collector.take()
            with Steps() as steps:
                Conversation(client, server, "tool").finish()
            counts.append(len(steps.names))
            assert len(collector.take()) == is_collecting
    assert counts[1] - counts[0] <= COLLECTING_STEPS, counts


# Whether it is traced is decided, by its `_meta` and by chance; a traced one notes what it did.
UNTRACED_STEPS, TRACED_STEPS = 7, 36


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_tracing_takes_few_steps_and_fewer_for_calls_that_are_not_traced(era: str) -> None:
    counts = []
    for traced in (None, 0.0, 1.0):
        sent: list[object] = []
        async with in_process_workbench(era) as workbench:
            gateway = workbench.gateway
            gateway.runtime.count_calls()
            if traced is not None:
                sender = cast("SpanSender", SimpleNamespace(put=sent.append))
                gateway.gate.trace(CallTracer(Sampler(traced), sender))
            client = workbench.client(era)
            server = await workbench.connect(client)
            for _ in range(2):
                Conversation(client, server, "tool").finish()
            with Steps() as steps:
                Conversation(client, server, "tool").finish()
            counts.append(len(steps.names))
            assert bool(sent) is (traced == 1.0)
            # Only `_meta` could say that it belongs to a trace.
            is_asked = "tracing.begin_trace" in steps.names
            assert is_asked is (traced == 1.0 or (traced is not None and era == "modern"))
    assert counts[1] - counts[0] <= UNTRACED_STEPS, counts
    assert counts[2] - counts[0] <= TRACED_STEPS, counts
