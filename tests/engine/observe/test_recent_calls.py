"""The latest calls, for `top`."""

from __future__ import annotations

from typing import Any

from mcp_workbench.engine.observe.call_record import CallRecord
from mcp_workbench.engine.observe.recent_calls import MAX_RECENT_CALLS, RecentCalls


def ended(recent: RecentCalls, item: str, **more: Any) -> None:
    found = {"server": "s", "end": "ok", **more}
    recent.ended(
        CallRecord(
            id=1, at=100.0, arrived=0.5, sent=1.0, ended=1.5, principal="", client="cursor", session=0, peer="",
            toolbox="box", method="tools/call", item=item, state="ended", meta=b"x" * 1000, **found,
        )
    )  # fmt: skip


def test_calls_are_remembered_with_who_made_them_and_why_they_failed() -> None:
    recent = RecentCalls()
    ended(recent, "one")
    ended(recent, "to all servers", server="")
    ended(recent, f"memo://a/ghp_{'a' * 36}", end="error", reason="no such key: secret")
    first, second = recent.calls(lambda text: text.replace("secret", "***"))
    assert (first["item"], first["client"], first["seconds"], first["reason"]) == ("one", "cursor", 1.0, "")
    assert second["reason"] == "no such key: ***" and "ghp_a" not in second["item"]


def test_only_the_latest_are_kept_and_nothing_of_what_was_sent() -> None:
    recent = RecentCalls()
    for number in range(MAX_RECENT_CALLS + 10):
        ended(recent, str(number))
    found = recent.calls(str)
    assert [each["item"] for each in found] == [str(number) for number in range(10, MAX_RECENT_CALLS + 10)]
    assert "x" * 100 not in str(found)
