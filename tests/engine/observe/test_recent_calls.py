"""Rates, percentiles and the latest calls, for `top`."""

from __future__ import annotations

from typing import Any

from mcp_workbench.engine.observe.call_record import CallRecord
from mcp_workbench.engine.observe.recent_calls import MOST_LAST_CALLS, MOST_SERVERS, RecentCalls


def ended(
    recent: RecentCalls, end: Any = "ok", *, item: str = "tool", sent: float | None = 1.0, server: str = "s"
) -> None:
    recent.ended(
        CallRecord(
            id=1, at=100.0, arrived=0.5, sent=sent, ended=1.5, principal="", client="", session=0, peer="",
            toolbox="box", server=server, method="tools/call", item=item, state="ended", end=end,
        )
    )  # fmt: skip


def test_calls_are_counted_timed_and_remembered() -> None:
    recent = RecentCalls()
    ended(recent)
    ended(recent, "error")
    ended(recent, "tool_error")
    ended(recent, item="")
    figures = recent.figures()["box/s"]
    assert (figures["calls"], figures["errors"]) == (4, 2)
    assert figures["p50"] == figures["p95"] == 0.5
    assert [(each["item"], each["end"]) for each in recent.last_calls()] == [
        ("tool", "ok"), ("tool", "error"), ("tool", "error"), ("tools/call", "ok")
    ]  # fmt: skip
    assert {each["at"] for each in recent.last_calls()} == {101.0}


def test_what_was_cancelled_or_refused_has_no_duration_and_requests_to_all_servers_are_left_out() -> None:
    recent = RecentCalls()
    ended(recent, "cancelled")
    ended(recent, "refused", sent=None)
    ended(recent, server="")
    assert [(call["end"], call["seconds"]) for call in recent.last_calls()] == [("no answer", None), ("refused", None)]
    assert recent.figures()["box/s"]["errors"] == 2 and recent.figures()["box/s"]["p50"] is None


def test_recent_calls_are_bounded() -> None:
    recent = RecentCalls()
    for _ in range(MOST_LAST_CALLS + 10):
        ended(recent)
    assert len(recent.last_calls()) == MOST_LAST_CALLS
    assert recent.figures()["box/s"]["calls"] == MOST_LAST_CALLS + 10
    for number in range(MOST_SERVERS + 10):
        ended(recent, "refused", server=f"made up {number}")
    assert len(recent.figures()) == MOST_SERVERS
