"""Open pages learn what happens; one that does not read loses events, is told how many, and slows nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp_workbench.engine.observe.ended_calls import MAX_ENDED_BYTES, MAX_ENDED_CALLS, EndedCall, EndedCalls
from mcp_workbench.engine.observe.shown_calls import CallDescriber, ShownCall
from mcp_workbench.engine.steps import AnyPassage
from mcp_workbench.seeing.page import streams
from mcp_workbench.seeing.page.sign_in import PageSession, PageUser
from mcp_workbench.seeing.page.streams import MAX_BACKLOG_BYTES, Streams
from tests.seeing.page.test_captured_calls import ended_call, running_call
from tests.support.processes import eventually

OWNER = PageSession(PageUser("", is_owner=True, name="ada"), "csrf", 1.0)
BOB = PageSession(PageUser("bob", is_owner=False, name="bob"), "csrf", 1.0)


class Writer:
    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.is_over = False
        self.gone: Callable[[], None] | None = None
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def finish(self, data: bytes = b"") -> None:
        self.is_over = True

    def events(self) -> list[tuple[str, Any]]:
        found = [block.split(b"\n") for block in self.written.split(b"\n\n") if block.startswith(b"id:")]
        self.written = b""
        return [(lines[1][7:].decode(), json.loads(lines[2][6:])) for lines in found]


class Workbench:
    capture = "redacted"

    def __init__(self) -> None:
        self.collectors: list[EndedCalls] = []
        self.in_flight: list[AnyPassage] = []
        self.servers = [{"toolbox": "box", "server": name, "calls": 0} for name in ("one", "two")]
        self.measured = False
        self.lines = {("box", "one"): ["a", "b"], ("box", "two"): ["x"]}

    def collect(self, collector: EndedCalls) -> Callable[[], None]:
        self.collectors.append(collector)
        return lambda: self.collectors.remove(collector)

    def running(self) -> list[AnyPassage]:
        return list(self.in_flight)

    def end(self, *calls: EndedCall) -> None:
        for each in calls:
            for collector in self.collectors:
                collector.add(each)

    def measure(self) -> None:
        self.measured = True

    def redact(self, text: str) -> str:
        return text.replace("secret", "…")

    def state(self, user: PageUser) -> Any:
        return {"now": 0, "servers": [dict(row) for row in self.servers], "waiting": [], "toolboxes": []}

    def log_lines(self) -> dict[tuple[str, str, int], list[str]]:
        # Of the second copy of each, one line that stays.
        copies = {(*place, 1): ["other"] for place in self.lines}
        return {**{(*place, 0): list(lines) for place, lines in self.lines.items()}, **copies}


def opened(pages: Streams, workbench: Workbench, session: PageSession = OWNER) -> Writer:
    writer = Writer()
    pages.open(writer, session, lambda: True, workbench.state(session.user))  # type: ignore[arg-type]
    return writer


async def test_calls_are_not_captured_while_no_page_is_open() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    assert not workbench.collectors
    first, second = opened(pages, workbench), opened(pages, workbench)
    assert len(workbench.collectors) == 1
    workbench.end(ended_call(1))
    pages._look_at_calls()
    for writer in (first, second):
        assert writer.gone is not None
        assert [name for name, _ in writer.events()] == ["state", "calls"]
        writer.gone()
    assert not workbench.collectors and pages.find_call(1, OWNER.user) is None


async def test_many_calls_are_one_event_that_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[int] = []
    whole = CallDescriber.ended

    def ended(describer: CallDescriber, call: EndedCall) -> tuple[str, ShownCall]:
        described.append(call[0].id)
        return whole(describer, call)

    monkeypatch.setattr(CallDescriber, "ended", ended)
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    tabs = [opened(pages, workbench) for _ in range(3)]
    workbench.end(*map(ended_call, range(1, 21)))
    assert described == [] and all([name for name, _ in tab.events()] == ["state"] for tab in tabs)
    pages._look_at_calls()
    assert described == list(range(1, 21))
    for tab in tabs:
        ((name, calls),) = tab.events()
        assert name == "calls" and [each["id"] for each in calls] == described
    pages._look_at_calls()
    assert tabs[0].events() == []
    pages.close()


async def test_a_running_call_is_told_when_it_begins_changes_and_ends() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    tab = opened(pages, workbench)
    passage = running_call(7)
    passage.is_waiting = True
    workbench.in_flight = [passage]
    pages._look_at_calls()
    pages._look_at_calls()
    passage.is_waiting, passage.reached = False, 0.75
    pages._look_at_calls()
    later = opened(pages, workbench)
    workbench.in_flight = []
    workbench.end((passage, "result", "ok", (b"{}",), 2, 1.0))
    pages._look_at_calls()
    told = [(each["id"], each["state"], each["sentAfter"]) for _, calls in tab.events()[1:] for each in calls]
    assert told == [(7, "waiting", None), (7, "sent", 0.25), (7, "ended", 0.25)]
    assert [each["state"] for _, calls in later.events()[1:] for each in calls] == ["sent", "ended"]
    pages.close()


async def test_running_calls_appear_within_a_quarter_of_a_second() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    tab = opened(pages, workbench)
    workbench.in_flight = [running_call(1)]
    tab.events()
    await eventually(lambda: bool(tab.written))
    assert tab.events()[0][1][0]["state"] == "sent" and streams.CALLS_INTERVAL <= 0.25
    pages.close()


async def test_number_of_unreported_ended_calls_is_bounded() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    tab = opened(pages, workbench)
    tab.events()
    workbench.end(*map(ended_call, range(1, MAX_ENDED_CALLS + 1)))
    told = [len(calls) for _, calls in tab.events()]
    assert MAX_ENDED_CALLS * 0.9 < sum(told) <= MAX_ENDED_CALLS, "nobody has looked"
    pages._look_at_calls()
    tab.events()
    workbench.end(ended_call(1000, result=b"x" * (MAX_ENDED_BYTES + 1)))
    assert [[each["id"] for each in calls] for _, calls in tab.events()] == [[1000]]
    pages.close()


async def test_a_call_is_found_as_soon_as_it_has_ended() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    opened(pages, workbench)
    workbench.end(ended_call(1, {"n": 7}))
    found = pages.find_call(1, OWNER.user)
    assert found is not None and '"n": 7' in found["arguments"]
    assert pages.find_call(1, BOB.user) is None
    pages.close()


async def test_a_page_that_does_not_read_is_told_how_much_it_lost() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    quick, slow = opened(pages, workbench), opened(pages, workbench)
    slow.unsent_bytes = MAX_BACKLOG_BYTES + 1
    workbench.end(ended_call(1), ended_call(2))
    pages._look_at_calls()
    slow.unsent_bytes = 0
    workbench.end(ended_call(3))
    pages._look_at_calls()
    (_, (gap, lost), (_, calls)) = slow.events()
    assert (gap, lost) == ("gap", {"lost": 2}) and [each["id"] for each in calls] == [3]
    assert [[each["id"] for each in calls] for _, calls in quick.events()[1:]] == [[1, 2], [3]]
    pages.close()


async def test_calls_that_were_too_many_to_show_are_told_as_lost_to_those_who_made_them() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    owner, bob = opened(pages, workbench), opened(pages, workbench, BOB)
    (collector,) = workbench.collectors
    for each in (owner, bob):
        each.events()
    workbench.end(*(ended_call(id, principal="bob") for id in range(streams.MAX_ORDINARY_CALLS)))
    assert collector.has_enough
    for principal in ("bob", "ada", "ada"):
        collector.miss(principal)
    pages._look_at_calls()
    assert not collector.has_enough and owner.events()[0] == ("gap", {"lost": 3})
    assert bob.events()[0] == ("gap", {"lost": 1})
    pages.close()


async def test_a_later_page_gets_the_latest_calls_first_and_each_its_own() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    opened(pages, workbench)
    workbench.end(ended_call(1, principal="ada"), ended_call(2, principal="bob"))
    owner, bob = opened(pages, workbench), opened(pages, workbench, BOB)
    pages._look_at_calls()
    for tab, seen in ((owner, [1, 2]), (bob, [2])):
        assert [[each["id"] for each in calls] for name, calls in tab.events() if name == "calls"] == [seen]
    workbench.end(ended_call(3, principal="ada"))
    pages._look_at_calls()
    assert bob.events() == [] and len(owner.events()) == 1
    pages.close()


async def test_only_changes_are_sent_and_output_to_the_owner_alone() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    owner, bob = opened(pages, workbench), opened(pages, workbench, BOB)
    for writer in (owner, bob):
        writer.events()
    workbench.servers[1]["calls"] = 1
    workbench.lines["box", "one"] = ["b", "c", "d secret"]
    pages._look()
    rest = {"waiting": [], "toolboxes": [], "now": 0}
    state = ("state", {"servers": [{"toolbox": "box", "server": "two", "calls": 1}], **rest})
    assert bob.events() == [state]
    logs = [("log", {"toolbox": "box", "server": "one", "line": line}) for line in ("c", "d …")]
    assert owner.events() == [state, *logs]
    pages._look()
    assert owner.events() == [] and workbench.measured
    pages.close()


async def test_added_or_removed_server_sends_the_whole_state_of_the_session() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    writer = Writer()
    state = {"you": {"principal": "x"}, **workbench.state(OWNER.user)}
    pages.open(writer, OWNER, lambda: True, state)  # type: ignore[arg-type]
    writer.events()
    del workbench.servers[0]
    pages._look()
    ((name, told),) = writer.events()
    assert (
        name == "state" and told["you"] == {"principal": "x"} and [row["server"] for row in told["servers"]] == ["two"]
    )
    pages.close()


async def test_a_quiet_stream_has_a_heartbeat_and_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_INTERVAL", 0.0)
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    kept = opened(pages, workbench)
    ended = Writer()
    is_valid = [True]
    pages.open(ended, BOB, lambda: is_valid[0], workbench.state(BOB.user))  # type: ignore[arg-type]
    kept.events()
    pages._look()
    assert kept.written == b": still here\n\n"
    is_valid[0] = False
    pages._look()
    assert ended.is_over and not kept.is_over
    pages.close()


async def test_a_running_call_has_its_arguments_and_they_are_those_of_its_user() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    workbench.in_flight = [running_call(7, body=b'{"arguments":{"n":7,"password":"x"}')]
    assert pages.find_call(7, OWNER.user) is None, "nobody looks"
    opened(pages, workbench)
    found = pages.find_call(7, OWNER.user)
    assert found is not None and (found["state"], found["result"], found["kept"]) == ("sent", None, "masked")
    assert '"n": 7' in found["arguments"] and '"x"' not in found["arguments"]
    assert pages.find_call(7, BOB.user) is None
    pages.close()
