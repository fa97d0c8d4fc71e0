"""The router and what few calls need: tasks, skills, apps, and calls that are only counted."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.offer import SKILLS_EXTENSION
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.face.decisions import Answer, Load, Open, Reject
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.router import task_runs
from mcp_workbench.engine.steps import Denial
from mcp_workbench.errors import DownstreamError
from tests.engine.router.router_stage import LEGACY, MODERN, Call, Stage, ended, settle, stage
from tests.engine.router.test_router_steps import Steps

# ── tasks ──


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls that are run as tasks: call, decision, connection and what created each."""
    noted: list[tuple[Any, ...]] = []

    class Run:
        def __init__(self, router: Any, *about: Any) -> None:
            self._about = about

        async def run(self, created: Raw | None) -> None:
            noted.append((*self._about, created))

    monkeypatch.setattr(task_runs, "TaskRun", Run)
    return noted


@pytest.mark.parametrize(
    ("tools", "revision", "method", "params", "is_run"),
    [
        (("other", "work"), LEGACY, "tools/call", {}, True),
        (("other",), LEGACY, "tools/call", {}, False),
        ((), LEGACY, "tools/call", {}, False),
        (("other", "work"), MODERN, "tools/call", {}, False),
        (("other", "work"), None, "tools/call", {}, False),
        (("other", "work"), LEGACY, "prompts/get", {}, False),
        (("other", "work"), LEGACY, "tools/call", {"task": Raw(b"{}")}, False),
    ],
)
async def test_which_calls_are_run_as_tasks(
    runs: list[tuple[Any, ...]], tools: tuple[str, ...], revision: Any, method: str, params: Any, is_run: bool
) -> None:
    async with stage() as at:
        connection = at.connection(at.other)
        at.other.task_tools, connection.revision = frozenset(tools), revision
        call = at.call(decision := at.forward())
        call.method, call.params = method, params
        call.route.wire_id = 7
        at.router.call_tool(call, {})
        await settle()
        assert runs == ([(call, decision, connection, None)] if is_run else [])
        assert len(connection.traffic.forwarded) == int(not is_run) and call.ends == []
        assert (call.route.is_task, call.route.wire_id) == ((True, 0) if is_run else (False, 41))


async def test_a_call_that_its_server_refused_is_run_as_a_task(runs: list[tuple[Any, ...]]) -> None:
    async with stage() as at:
        call = at.call(decision := at.forward())
        at.router.call_tool(call, {})
        at.router.run_refused_as_task(call)
        assert call.route.task is not None and (call.route.is_task, call.route.wire_id) == (True, 0)
        await settle()
        assert runs == [(call, decision, at.connection(at.other), None)]


def asked_for_a_task(at: Stage, cancelled: list[str]) -> Call:
    call = at.call(at.forward())
    at.router.call_tool(call, {})
    decision, connection = at.face.decisions[0], at.connection(at.other)
    at.router.ask_for_task_result(call, decision, connection, "seven", lambda: cancelled.append("task"))
    return call


@pytest.mark.parametrize("way", ["cancel", "stop"])
async def test_the_result_of_a_task_is_asked_for_and_its_task_cancelled_with_the_call(way: str) -> None:
    async with stage() as at:
        cancelled: list[str] = []
        call = asked_for_a_task(at, cancelled)
        traffic = at.connection(at.other).traffic
        assert traffic.forwarded[1] == (call, b'"tasks/result"', "work", b'{"taskId":"seven"', None, LEGACY, 12.5)
        assert call.route.wire_id == 42 and cancelled == []
        about: Any = {} if way == "cancel" else Denial(-32000, "too long")
        getattr(at.router, way)(call, about)
        assert cancelled == ["task"] and [id for id, _ in traffic.cancelled] == [42]
        assert call.ends == ([] if way == "cancel" else [("refused", "too long")])


# ── skills and further servers ──


@pytest.mark.parametrize("extensions", [((), ()), ((), ("other",)), ((), (SKILLS_EXTENSION,))])
async def test_only_servers_with_the_skills_extension_are_asked(extensions: Sequence[Sequence[str]]) -> None:
    async with stage() as at:
        for entry, names in zip((at.one, at.other), extensions, strict=True):
            entry.extensions = dict.fromkeys(names, Raw(b"{}"))
        at.face.servers = [at.one, at.other]
        call = at.call(Answer(b"{}"))
        call.method = "skills/get"
        at.router.ask_about_skill(call, {})
        has_skills = SKILLS_EXTENSION in extensions[1]
        assert at.face.asked == [("skill", ("skills/get", LEGACY)) if has_skills else ("unknown", "skills/get")]
        assert call.ends == [("result", b"{}")] and at.lists.prepared == ["skills"]


@pytest.mark.parametrize("entry", [None, object()])
async def test_whether_there_is_one_server(entry: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as at:
        monkeypatch.setattr(at.face, "sole_entry", lambda: entry)
        assert at.router.has_one_server(Call(at.face).view) is (entry is not None)


@pytest.mark.parametrize("method", ["get_prompt", "read_resource", "complete"])
async def test_which_lists_an_unknown_item_waits_for(method: str) -> None:
    async with stage() as at:
        getattr(at.router, method)(at.call(Reject(-32602, "unknown")), {})
        assert at.lists.prepared == ["resources" if method == "read_resource" else "prompts"]


# ── apps ──

APPS = (
    b'{"extensions":{"io.modelcontextprotocol/ui-of-another":{}}}',
    b'{"other":"io.modelcontextprotocol/ui"}',
    b'{"extensions":{"io.modelcontextprotocol/ui":{}}}',
)


@pytest.mark.parametrize("kind", ["prompts", "tools"])
@pytest.mark.parametrize("capabilities", APPS)
@pytest.mark.parametrize("lists_everything", [False, True])
async def test_tools_of_apps_are_listed_for_clients_that_show_them(
    kind: str, capabilities: bytes, lists_everything: bool
) -> None:
    async with stage() as at:
        at.face.lists_everything, at.face.listed = lists_everything, [b"a tool"]
        call = Call(at.face, f"{kind}/list")
        call.caller = Caller("", "modern", capabilities)
        answers: list[Sequence[bytes]] = []
        at.router.list(call, kind, answers.append)
        shows = kind == "tools" and capabilities == APPS[-1]
        assert answers == [[b"a tool", b"an app"] if shows else [b"a tool"]] and call.ends == []
        assert getattr(call.view, "shows_apps", False) is shows
        is_apart = kind == "tools" and not lists_everything and b"ui" in capabilities
        assert at.lists.prepared == ["apps" if is_apart else kind]


@pytest.mark.parametrize("kind", ["prompts", "tools"])
@pytest.mark.parametrize("is_counting", [False, True])
async def test_listed_tools_are_counted_if_anything_is(
    kind: str, is_counting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as at:
        counted: list[tuple[Any, ...]] = []
        monkeypatch.setattr(type(at.router.gate), "tracker", object() if is_counting else None)
        monkeypatch.setattr(at.router.gate, "on_listed", lambda *about: counted.append(about))
        at.face.listed = [b"a tool"]
        at.router.list(Call(at.face), kind, lambda definitions: None)
        assert counted == ([(at.face, [b"a tool"])] if is_counting and kind == "tools" else [])


# ── steps ──


@pytest.mark.parametrize("why", ["watched", "arrived", "has a passage", ""])
async def test_a_call_that_is_only_counted_passes_no_steps(why: str) -> None:
    async with stage() as at:
        steps: Any = Steps(at)
        steps.plain_tracker = tracker = SimpleNamespace(is_watched=why == "watched")
        call = at.call(at.forward())
        call.route.arrived = 1.0 if why == "arrived" else None
        call.route.passage = SimpleNamespace() if why == "has a passage" else None
        at.router.call_tool(call, {})
        assert steps.heard == (["lets pass"] if why else [])
        assert call.route.tracker is (None if why else tracker)
        assert (call.route.arrived is None) is (why in ("watched", "has a passage"))
        assert len(at.connection(at.other).traffic.forwarded) == 1


async def test_queued_call_acts_for_its_own_user() -> None:
    async def wait() -> None:
        pass

    async def open_toolbox(call: Call, decision: Open) -> Answer:
        return Answer(b"opened")

    async with stage() as at:
        steps = Steps(at)
        at.router.__dict__["_toolboxes"] = SimpleNamespace(open=open_toolbox)
        for decision, before in (
            (Open((), SimpleNamespace()), ["refuses"]),  # type: ignore[arg-type]
            (Load((), lambda: Answer(b"loaded"), wait), []),
        ):
            steps.heard.clear()
            call = at.call(decision)
            at.router.call_tool(call, {})
            assert len(await ended(call)) == 1
            assert steps.heard == [*before, "begins to wait", "recalls", "refuses", "notes"]
        for way in (at.router.when_listed, at.router.wait_for_list):
            steps.heard.clear()
            at.lists.waits = [wait]
            call = Call(at.face)
            if way == at.router.when_listed:
                way(call, "tools", lambda: None)
                await settle()
                assert steps.heard == ["begins to wait", "recalls"]
            else:
                await way(call, "tools")
                assert steps.heard == ["recalls"]


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_call_that_is_routed_again_is_that_of_its_user(is_replaced: bool) -> None:
    async with stage() as at:
        steps = Steps(at)
        connection = at.connection(at.other)
        connection.state, connection.failure = State.CONFIGURED, DownstreamError("gone")
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        if is_replaced:
            at.other.catalogs.clear()
        assert await ended(call) == [("routed again",) if is_replaced else ("failure", "gone")]
        assert ("recalls" in steps.heard) is is_replaced and connection.traffic.forwarded == []


@pytest.mark.parametrize("denies", [False, True])
@pytest.mark.parametrize("is_listed", [False, True])
async def test_repeated_request_is_judged_by_current_lists(denies: bool, is_listed: bool) -> None:
    async with stage() as at:
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        steps = Steps(at)
        steps.denies, steps.definition_steps = denies, (object(),)
        connection = at.connection(at.other)
        connection.lists.is_done = is_listed
        at.router.send_again(call, b'{"name":"work","more":1')
        await settle()
        assert connection.did == ([] if is_listed else ["ready", "listed"])
        assert [each[1] for each in connection.traffic.forwarded] == [TOOLS_CALL] * (1 if denies else 2)
        assert steps.heard[-1] == ("denies again" if denies else "sent") and call.ends == []
