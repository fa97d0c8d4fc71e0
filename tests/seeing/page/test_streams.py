"""Open pages learn what happens; one that does not read loses events, is told how many, and slows nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp_workbench.engine.observe.call_record import CallListener
from mcp_workbench.seeing.page import streams
from mcp_workbench.seeing.page.sign_in import PageSession, PageUser
from mcp_workbench.seeing.page.streams import MAX_BACKLOG_BYTES, Streams
from tests.seeing.page.test_captured_calls import record

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
        self.listeners: list[CallListener] = []
        self.servers = [{"toolbox": "box", "server": name, "calls": 0} for name in ("one", "two")]
        self.measured = False
        self.lines = {("box", "one"): ["a", "b"], ("box", "two"): ["x"]}

    def subscribe(self, listener: CallListener, *, content: bool) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

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


async def test_nobody_listens_to_calls_while_no_page_is_open() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    assert not workbench.listeners
    first, second = opened(pages, workbench), opened(pages, workbench)
    assert len(workbench.listeners) == 1
    pages.ended(record(1))
    for writer in (first, second):
        assert writer.gone is not None
        assert [name for name, _ in writer.events()] == ["state", "call-end"]
        writer.gone()
    assert not workbench.listeners and pages.calls.find(1, lambda principal: True) is None


async def test_a_page_that_does_not_read_is_told_how_much_it_lost() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    quick, slow = opened(pages, workbench), opened(pages, workbench)
    slow.unsent_bytes = MAX_BACKLOG_BYTES + 1
    for id in (1, 2):
        pages.ended(record(id))
    slow.unsent_bytes = 0
    pages.begun(record(3))
    assert slow.events()[1:] == [("gap", {"lost": 2}), ("call-begin", record(3).as_json())]
    assert [name for name, _ in quick.events()] == ["state", "call-end", "call-end", "call-begin"]
    pages.close()


async def test_a_later_page_gets_the_latest_calls_first_and_each_its_own() -> None:
    workbench = Workbench()
    pages = Streams(workbench)  # type: ignore[arg-type]
    opened(pages, workbench)
    pages.ended(record(1, principal="ada"))
    pages.ended(record(2, principal="bob"))
    assert [data["id"] for name, data in opened(pages, workbench).events() if name == "call-end"] == [1, 2]
    assert [data["id"] for name, data in opened(pages, workbench, BOB).events() if name == "call-end"] == [2]
    pages.close()


async def test_only_what_has_changed_is_told_and_output_to_the_owner_alone() -> None:
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


async def test_a_server_more_or_less_is_a_whole_state_with_what_belongs_to_the_session() -> None:
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
