"""The latest calls, for `top`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.json import decode, encode

from mcp_workbench.engine.observe.call_figures import CallFigures
from mcp_workbench.engine.observe.recent_calls import MAX_RECENT_CALLS, MAX_UNSEEN_CALLS, RecentCalls
from mcp_workbench.engine.steps import EndKind, UncheckedPassage
from tests.engine.observe.test_call_figures import OK, origin


class Observed:
    """Figures whose calls `top` is shown."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self.figures, self.recent = CallFigures(), RecentCalls(redact)
        self.figures.collect(self.recent.ended)

    def call(self, item: str, server: str = "s", kind: EndKind = "result", payload: bytes = OK) -> None:
        request = origin(item, server=server)
        UncheckedPassage(None, self.figures, request, b"x" * 1000, None, 1.0).end(kind, payload)

    def shown(self) -> list[dict[str, Any]]:
        """As `top` gets them."""
        found: list[dict[str, Any]] = decode(encode(self.recent.calls()))
        return found


def test_calls_are_recorded_with_caller_and_failure() -> None:
    observed = Observed(lambda text: text.replace("secret", "***"))
    observed.call("one")
    observed.call("to all servers", server="")
    observed.call(f"memo://a/ghp_{'a' * 36}", kind="error", payload=b'{"code":5,"message":"no such key: secret"}')
    first, second = observed.shown()
    assert (first["item"], first["client"], first["end"], "reason" in first) == ("one", "an editor", "ok", False)
    assert first["seconds"] > 0 and first["bytesIn"] == 1001
    assert second["reason"] == "no such key: ***" and second["errorCode"] == 5 and "ghp_a" not in second["item"]
    assert [each["id"] for each in observed.shown()] == [first["id"], second["id"]]


def test_only_recent_calls_are_kept_without_their_contents() -> None:
    observed = Observed()
    for number in range(calls := MAX_UNSEEN_CALLS + 10):
        observed.call(str(number), kind="error", payload=b'{"code":5,"message":"no"}')
    found = observed.shown()
    assert [each["item"] for each in found] == [str(number) for number in range(calls - MAX_RECENT_CALLS, calls)]
    assert "x" * 100 not in str(found) and not observed.recent.ended.take()


def test_of_a_flood_the_first_calls_after_a_look_are_shown_and_all_that_failed() -> None:
    observed = Observed()
    for look in ("a", "b"):
        for number in range(MAX_RECENT_CALLS + 10):
            observed.call(f"{look}{number}")
        observed.call("failed", kind="error", payload=b'{"code":5,"message":"no"}')
        assert [each["item"] for each in observed.shown()] == [
            *(f"{look}{number}" for number in range(1, MAX_RECENT_CALLS)),
            "failed",
        ]
        assert not observed.recent.ended.missed


def test_requests_to_all_servers_displace_no_calls() -> None:
    observed = Observed()
    observed.call("one")
    for _ in range(MAX_RECENT_CALLS + 10):
        observed.call("level", server="")
    assert [each["item"] for each in observed.shown()] == ["one"]
