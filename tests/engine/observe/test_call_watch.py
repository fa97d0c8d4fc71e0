"""Calls are timed while somebody looks, and without anybody there is no step for it."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any, Literal

import pytest

from mcp_workbench.engine.observe.call_watch import MOST_LAST_CALLS, CallWatch
from mcp_workbench.engine.steps import MOST_SEARCHED, GuardedRequest, Outcome, UncheckedPassage
from tests.support.in_process_workbench import Server, tool, workbench_with

OK = b'{"content":[]}'
FAILED = b'{"content":[],"isError":true}'


def ended(
    watch: CallWatch,
    kind: Literal["result", "error", "cancelled"] = "result",
    *payload: bytes | memoryview,
    item: str = "tool",
    sent: float | None = 1.0,
    server: str = "s",
) -> None:
    request = GuardedRequest(
        principal="", client=b"{}", session=0, method="tools/call", toolbox="box", server=server, item=item, body=b"{"
    )
    watch.on_end(request, Outcome(kind, payload, 0.5, sent, 1.5))


def test_calls_are_counted_timed_and_remembered() -> None:
    watch = CallWatch()
    ended(watch, "result", OK)
    ended(watch, "error", b'{"code":1,"message":"x"}')
    ended(watch, "result", b'{"resultType":"complete",', memoryview(FAILED)[1:])
    ended(watch, "result", OK, item="")
    figures = watch.figures()["box/s"]
    assert (figures["calls"], figures["errors"]) == (4, 2)
    assert figures["p50"] == figures["p95"] == 0.5
    assert [(each["item"], each["end"]) for each in watch.last_calls()] == [
        ("tool", "ok"), ("tool", "error"), ("tool", "error"), ("tools/call", "ok")
    ]  # fmt: skip


def test_what_was_cancelled_has_no_duration_and_what_reached_no_server_is_not_counted() -> None:
    watch = CallWatch()
    ended(watch, "cancelled")
    ended(watch, "error", b'{"code":1,"message":"refused"}', sent=None)
    ended(watch, "result", OK, server="")
    (call,) = watch.last_calls()
    assert (call["end"], call["seconds"]) == ("no answer", None)
    assert watch.figures()["box/s"]["errors"] == 1 and watch.figures()["box/s"]["p50"] is None


def test_a_wait_for_the_servers_first_list_is_none_of_the_servers_time() -> None:
    watch, now = CallWatch(), monotonic()
    request = GuardedRequest(
        principal="", client=b"{}", session=0, method="tools/call", toolbox="box", server="s", item="tool", body=b"{"
    )
    UncheckedPassage(watch, request, b"{", None, now - 1000, now).end("result", OK)
    (call,) = watch.last_calls()
    assert call["seconds"] < 1000


def test_what_is_remembered_is_bounded_and_errors_are_looked_for_at_both_ends() -> None:
    watch = CallWatch()
    for _ in range(MOST_LAST_CALLS + 10):
        ended(watch, "result", OK)
    assert len(watch.last_calls()) == MOST_LAST_CALLS
    assert watch.figures()["box/s"]["calls"] == MOST_LAST_CALLS + 10
    long = b" " * MOST_SEARCHED
    ended(watch, "result", FAILED + long)
    ended(watch, "result", long + FAILED)
    ended(watch, "result", long + FAILED + long)
    assert watch.figures()["box/s"]["errors"] == 2


@pytest.mark.parametrize("audited", [False, True])
async def test_a_workbench_has_the_step_while_somebody_looks(tmp_path: Path, audited: bool) -> None:
    def answer(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [], "isError": name == "fail"}

    servers = {"box": {"s": Server(tool("work"), tool("fail"), answer=answer)}}
    settings: dict[str, Any] = {"audit": {"file": str(tmp_path / "audit.jsonl")}} if audited else {}
    async with workbench_with(tmp_path, servers, **settings) as seen:
        runtime, without = seen.gateway.runtime, seen.gateway.gate.steps()
        assert bool(without) is audited
        await seen.use("box/s/work")
        watch = CallWatch()
        runtime._use_call_watch(watch)
        assert seen.gateway.gate.steps() == (watch, *without)
        await seen.use("box/s/work")
        await seen.use("box/s/fail")
        assert [(each["item"], each["end"]) for each in watch.last_calls()] == [("work", "ok"), ("fail", "error")]
        runtime._use_call_watch(None)
        assert seen.gateway.gate.steps() == without
        await seen.use("box/s/work")
        assert watch.figures()["box/s"]["calls"] == 2
    assert runtime.on_call_watch == []
