"""What is kept between requests, and that the gate is asked before any of it is used."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench.engine.face.gate import OPEN, Gate
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.steps import Denial, Subject
from tests.support.client import Json
from tests.support.policy_rig import PATIENCE, SECRET, Rig, StdioClient, rigged

ENGINE = Path(mcp_workbench.__file__).parent / "engine"
RESULT, TASK, PARKED, SUBSCRIPTION = "kept result", "task", "parked call", "subscription"
TASK_SUBSCRIPTION = "task subscription"
VIEW = "settled by the face that the gate chooses, again with each change of the rules"
IN_FLIGHT = "belongs to a request in flight, which ends as it began"
DEFINITIONS = "computed from the catalogue of a face, which the gate has chosen"
BOOKKEEPING = "counts, times or names, and nothing that a server has said"

# Every container that an object of these packages has, and why nothing in it gets past the gate: the kind under which
# the test below shows that the gate is asked, or the reason why it need not be. What the HTTP server keeps are bytes of
# answers that have been let through, for the client that they are for: it knows no items.
KEPT: dict[str, str] = {
    "face.app_tools.AppTools._servers": DEFINITIONS,
    "face.app_tools._Capabilities.extensions": IN_FLIGHT,
    "face.app_tools._AppMeta.ui": IN_FLIGHT,
    "face.argument_check.ArgumentChecker._ready": DEFINITIONS,
    "face.auto.AutoFace._flat": DEFINITIONS,
    "face.base.Face._holders": DEFINITIONS,
    "face.base.Face._kept": DEFINITIONS,
    "face.base.Face._reported": BOOKKEEPING,
    "face.base.Face._reserved": BOOKKEEPING,
    "face.base.FaceSettings.clients": "settings",
    "face.client_behaviour.Recogniser._found": "what is known about programs, whoever uses them",
    "face.gate.Gate._followers": "those who are told",
    "face.kept_results.Keeper._found": IN_FLIGHT,
    "face.kept_results.KeptResults._kept": RESULT,
    "face.kept_results.KeptResults._takers": RESULT,
    "face.links.Links._seen": "says whose a resource is; reading it is a request, which passes the steps",
    "face.restricted_face.RestrictedFace._for_clients": DEFINITIONS,
    "face.tasks.Tasks._given": TASK,
    "face.tasks.Tasks._of_one": TASK,
    "face.tasks.Tasks._others": TASK,
    "face.tasks._Declared.requests": IN_FLIGHT,
    "face.view.View.changed": VIEW,
    "face.view.View.missing": VIEW,
    "face.view.View.opened": VIEW,
    "face.view.Views._of_clients": VIEW,
    "face.view.Views._of_principals": VIEW,
    "face.view.Views.of_sessions": VIEW,
    "router.call_list._List._failed": IN_FLIGHT,
    "router.call_list._List.origins": IN_FLIGHT,
    "router.call_list._List.restarted": IN_FLIGHT,
    "face.use.ViewUse._called": "names of tools for a later search, whose face must have them",
    "router.lists.Lists._considered": BOOKKEEPING,
    "router.lists.Lists._waited_for": BOOKKEEPING,
    "router.step_runner.StepRunner._origins": "descriptions of calls for observers",
    "router.toolbox_summaries.ToolboxSummaries._timers": BOOKKEEPING,
    "session.notifications.ListChangeNotifier._not_before": BOOKKEEPING,
    "session.notifications.ListChangeNotifier._pending": BOOKKEEPING,
    "session.notifications.ListenStream._early": BOOKKEEPING,
    "session.notifications.ListenStream._stamp": IN_FLIGHT,
    "session.notifications.ListenStream.subscriptions": SUBSCRIPTION,
    "session.notifications.ListenStream.tasks": TASK_SUBSCRIPTION,
    "session.parking.Parked.questions": PARKED,
    "session.parking.Parking._bytes": BOOKKEEPING,
    "session.parking.Parking._counts": BOOKKEEPING,
    "session.parking.Parking._parked": PARKED,
    "session.parking.Parking._unused": "of calls that were not sent, and pass the steps when they are made again",
    "session.questions.Questions._timers": BOOKKEEPING,
    "session.relayed_inputs._Asker.answers": IN_FLIGHT,
    "session.resuming._Lasting.listed": "of a client that moves to another process, whose gate is asked about each",
    "session.resuming._Lasting.listening": "of a client that moves to another process, which subscribes again",
    "session.resuming._Lasting.opened": "of a client that moves to another process, whose face must have them",
    "session.resuming._Lasting.subscriptions": "of a client that moves to another process, which subscribes again",
    "session.rounds.Round._answers": IN_FLIGHT,
    "session.rounds.Round._questions": IN_FLIGHT,
    "session.session.Session.calls": IN_FLIGHT,
    "session.session.Session.listed": BOOKKEEPING,
    "session.session.Session.streams": SUBSCRIPTION,
    "session.session.Session.subscriptions": SUBSCRIPTION,
    "session.session_registry.SessionRegistry._sessions": "who is connected",
}
CONTAINERS = {"Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set"}


def is_container(value: ast.expr | None) -> bool:
    made = isinstance(value, ast.Call) and ast.unparse(value.func).partition("[")[0] in CONTAINERS
    return made or isinstance(value, ast.Dict | ast.List | ast.Set)


def containers() -> Iterator[str]:
    for package in ("face", "router", "session"):
        for path in sorted((ENGINE / package).glob("*.py")):
            for owner in ast.walk(ast.parse(path.read_text())):
                if isinstance(owner, ast.ClassDef):
                    yield from (f"{package}.{path.stem}.{owner.name}.{name}" for name in attributes(owner))


def attributes(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not is_container(node.value):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr
            elif isinstance(target, ast.Name) and node in owner.body:
                yield target.id


def test_everything_that_is_kept_between_requests_asks_the_gate_or_says_why_not() -> None:
    assert set(containers()) == KEPT.keys()
    assert SCENARIOS.keys() <= set(KEPT.values())


class Asked:
    """A gate's answers: refuses the requests about one item, and writes down what it was asked."""

    def __init__(self, item: str) -> None:
        self._item = item
        self.requests: list[Subject] = []

    def refuses(self, request: Subject) -> Denial | None:
        self.requests.append(request)
        return Denial(-32010, "not any more", hides=True) if request.item == self._item else None


def said(answer: Json) -> str:
    return json.dumps(answer)


async def read_result(rig: Rig, tool: str) -> Callable[[], Awaitable[bool]]:
    head = said(await rig.client.request(*rig.use(tool, large=True)))
    uri = head[head.index("workbench://results/") :].partition("\\")[0].partition('"')[0]

    async def read() -> bool:
        piece = {"tool": uri, "arguments": {"start": 0}}
        answers = [
            said(await rig.client.request("tools/call", {"name": "use_tool", "arguments": piece})),
            said(await rig.client.request("resources/read", {"uri": uri})),
        ]
        read = ["called" in answer for answer in answers]
        assert read[0] == read[1]
        return read[1]

    return read


async def ask_about_task(rig: Rig, tool: str) -> Callable[[], Awaitable[bool]]:
    assert "t-1" in said(await rig.client.request(*rig.use(tool, task=True)))

    async def ask() -> bool:
        before = len(rig.gateway.reached("tasks/get"))
        answer = await rig.client.request("tasks/get", {"taskId": "t-1"})
        assert (len(rig.gateway.reached("tasks/get")) > before) is ("error" not in answer)
        return "error" not in answer

    return ask


async def come_back(rig: Rig, tool: str) -> Callable[[], Awaitable[bool]]:
    method, params = rig.use(tool, ask=True)
    away = (await rig.client.send(method, params))["result"]

    async def return_with_answers() -> bool:
        responses: Json = {key: {"action": "accept", "content": {}} for key in away["inputRequests"]}
        retry = {**params, "inputResponses": responses, "requestState": away["requestState"]}
        back = said(await rig.client.send(method, retry))
        assert ("asked" in back) is not ("not any more" in back)
        return "asked" in back

    return return_with_answers


async def stay_subscribed(rig: Rig, resource: str) -> Callable[[], Awaitable[bool]]:
    uri = f"test:///{resource}"
    await rig.client.request("resources/subscribe", {"uri": uri})

    async def is_subscribed() -> bool:
        rig.gateway.gate._tell_of_rules()
        (session,) = rig.gateway.sessions
        if uri in session.subscriptions:
            return True
        async with asyncio.timeout(PATIENCE):
            while not rig.gateway.reached("resources/unsubscribe"):
                await asyncio.sleep(0)
        return False

    return is_subscribed


async def stay_told_of_task(rig: Rig, tool: str) -> Callable[[], Awaitable[bool]]:
    assert "t-1" in said(await rig.client.request(*rig.use(tool, task=True)))
    client = rig.client
    assert isinstance(client, StdioClient)
    listening = asyncio.ensure_future(client.send("subscriptions/listen", {"notifications": {"taskIds": ["t-1"]}}))
    async with asyncio.timeout(PATIENCE):
        while not client.notified:
            await asyncio.sleep(0)
    listening.cancel()
    (stream,) = client.session.streams.values()
    assert "t-1" in stream.tasks

    async def is_told() -> bool:
        rig.gateway.gate._tell_of_rules()
        return "t-1" in stream.tasks

    return is_told


# By kind: the eras of client and server; what is kept, and what the gate is asked about it.
Scenario = Callable[[Rig, str], Awaitable[Callable[[], Awaitable[bool]]]]
SCENARIOS: dict[str, tuple[str, str, Scenario, str]] = {
    RESULT: ("legacy", "legacy", read_result, SECRET),
    TASK: ("modern", "modern", ask_about_task, "t-1"),
    PARKED: ("modern", "legacy", come_back, SECRET),
    TASK_SUBSCRIPTION: ("modern", "modern", stay_told_of_task, "t-1"),
    SUBSCRIPTION: ("legacy", "legacy", stay_subscribed, f"test:///{SECRET}"),
}


@pytest.mark.requirement("team.policy")
@pytest.mark.parametrize("kind", SCENARIOS)
async def test_nothing_is_used_that_the_gate_refuses_since_it_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    era, server_era, begin, item = SCENARIOS[kind]
    for name, is_used in (("another item", True), (item, False)):
        async with rigged(tmp_path, era, "stdio", server_era) as rig:
            use = await begin(rig, SECRET)
            asked = Asked(name)
            # The steps let everything pass: only the gate knows.
            monkeypatch.setattr(rig.gateway.gate, "refuses", asked.refuses)
            assert await use() is is_used
            assert {(request.principal, request.item) for request in asked.requests} == {("bob", item)}


class EmptyFace:
    """A face without toolboxes."""

    toolboxes: tuple[str, ...] = ()

    @property
    def catalog(self) -> EmptyFace:
        return self

    def for_client(self, view: View) -> EmptyFace:
        return self


async def test_changed_rules_choose_the_face_of_every_view_they_concern_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rigged(tmp_path, "legacy", "stdio", "legacy") as rig:
        gate, views = rig.gateway.gate, rig.gateway.router.views
        kept = [view for view in views if view.principal == "bob"]
        before = [view.face for view in kept]
        assert [view for view in kept if "box" in view.opened]
        monkeypatch.setattr(gate, "face_of", lambda principal, face: EmptyFace())
        gate._tell_of_rules("alice")
        assert [view.face for view in kept] == before
        gate._tell_of_rules("bob")
        assert all(isinstance(view.face, EmptyFace) and not view.opened for view in kept)


def test_a_gate_without_rules_allows_everything_and_has_no_steps() -> None:
    request = Subject(principal="bob", method="tools/call", toolbox="box", server="server", item="tool")
    assert Gate().refuses(request) is None and not Gate().steps() and not OPEN.has_rules and OPEN.recorder is None
