"""Calls are timed while somebody looks, and a traffic that is not watched is as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec import UNSET, Raw

from mcp_workbench.downstream.call_watch import MOST_LAST_CALLS, CallWatch
from mcp_workbench.jsonrpc.messages import read


class Traffic:
    """As far as it is watched."""

    def __init__(self) -> None:
        self.pending: dict[int, object] = {}
        self.answered: list[bytes] = []

    def forward(self, call: object, method: bytes, item: str, *rest: object) -> int:
        id = len(self.answered) + len(self.pending) + 1
        if item == "gone":
            return 0
        self.pending[id] = call
        return id

    def on_answer(self, line: bytes, message: Any) -> None:
        self.answered.append(line)
        if message.id is not UNSET:
            self.pending.pop(int(bytes(message.id)), None)


def connection(traffic: Traffic, toolbox: str = "box", server: str = "s") -> Any:
    names = SimpleNamespace(toolbox=toolbox), SimpleNamespace(name=server)
    return SimpleNamespace(entry=names[0], config=names[1], traffic=traffic)


def call(traffic: Traffic, item: str = "tool", answer: bytes | None = b'"result":{}') -> None:
    id = traffic.forward(None, b'"tools/call"', item, b"{", None, None, 1.0)
    if answer is not None and id:
        line = b'{"jsonrpc":"2.0","id":%d,%b}' % (id, answer)
        traffic.on_answer(line, read(line))


def test_calls_are_counted_timed_and_remembered_while_watched() -> None:
    traffic, watch = Traffic(), CallWatch()
    call(traffic)
    assert watch.figures() == {}
    watch.watch([connection(traffic)])
    for answer in (b'"result":{}', b'"error":{"code":1,"message":"x"}', b'"result":{"content":[],"isError":true}'):
        call(traffic, answer=answer)
    call(traffic, item="gone")
    call(traffic, item="", answer=b'"result":{}')
    figures = watch.figures()["box/s"]
    assert (figures["calls"], figures["errors"]) == (4, 2)
    assert 0 <= figures["p50"] <= figures["p95"] and figures["perSecond"] == 4.0
    assert [(each["item"], each["end"]) for each in watch.last_calls()] == [
        ("tool", "ok"), ("tool", "error"), ("tool", "error"), ("tools/call", "ok")
    ]  # fmt: skip
    assert len(traffic.answered) == 5, "everything is passed on"


def test_what_never_gets_an_answer_is_an_error_once_nothing_is_under_way() -> None:
    traffic, watch = Traffic(), CallWatch()
    watch.watch([connection(traffic)])
    call(traffic, answer=None)
    watch.watch([connection(traffic)])
    assert watch.figures() == {}, "it may still come"
    traffic.pending.clear()
    watch.watch([connection(traffic)])
    assert watch.figures()["box/s"]["errors"] == 1 and watch.figures()["box/s"]["p50"] is None
    assert watch.last_calls()[0]["end"] == "no answer" and watch.last_calls()[0]["seconds"] is None


def test_nobody_who_looks_leaves_nothing_behind() -> None:
    traffic, other, watch = Traffic(), Traffic(), CallWatch()
    watch.watch([connection(traffic), connection(other, server="t")])
    assert "forward" in vars(traffic) and "on_answer" in vars(other)
    watch.watch([connection(other, server="t")])
    assert "forward" not in vars(traffic), "its connection is gone"
    watch.end()
    assert "forward" not in vars(other) and "on_answer" not in vars(other)
    call(other)
    assert watch.figures() == {}


def test_what_is_remembered_is_bounded_and_noise_passes() -> None:
    traffic, watch = Traffic(), CallWatch()
    watch.watch([connection(traffic)])
    for _ in range(MOST_LAST_CALLS + 10):
        call(traffic)
    assert len(watch.last_calls()) == MOST_LAST_CALLS
    traffic.on_answer(b"{}", SimpleNamespace(id=UNSET, error=UNSET))
    traffic.on_answer(b"{}", SimpleNamespace(id=Raw(b"999"), error=UNSET))
    assert watch.figures()["box/s"]["calls"] == MOST_LAST_CALLS + 10
