"""Handles of tasks: each leads to the server that gave it out, whatever servers call theirs."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import Manifest, ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face import tasks as tasks_module
from mcp_workbench.engine.face.base import FaceSettings
from mcp_workbench.engine.face.decisions import Decision, Forward, Load, Reject
from mcp_workbench.engine.face.flat import FlatFace
from mcp_workbench.engine.face.tasks import DEFAULT_LIFE, MAX_TASK_LIFETIME, Tasks
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.lasting_state import TASK
from mcp_workbench.engine.protocol.revisions import newest
from tests.support.shared_state import SharedServer

CLIENT = newest("modern")
NOTHING = WorkbenchConfig(path="plain.json", toolboxes={}, plain=True)
FACE = FlatFace(Catalog(NOTHING, ManifestStore(lambda: None)), FaceSettings())
VIEW, STRANGER = View("me", FACE), View("stranger", FACE)


@pytest.fixture
def entries() -> list[ServerEntry]:
    configs = {name: ServerConfig(name=name, command="none") for name in ("one", "two")}
    box = ToolboxConfig(name="default", description="", servers=configs)
    config = WorkbenchConfig(path="plain.json", toolboxes={"default": box}, plain=True)
    return list(Catalog(config, ManifestStore(lambda: None)).entries())


@pytest.fixture
def tasks(entries: list[ServerEntry]) -> Tasks:
    return Tasks()


def handle_of(tasks: Tasks, entry: ServerEntry, own: str, view: View = VIEW) -> str:
    _, given = tasks.remember(view, entry, json.dumps({"resultType": "task", "taskId": own, "x": 1}).encode(), CLIENT)
    members = json.loads(given)
    assert members == {"resultType": "task", "taskId": members["taskId"], "x": 1}, "all else is as the server said it"
    return str(members["taskId"])


def asked(tasks: Tasks, handle: str, view: View = VIEW) -> tuple[str, object] | None:
    """Which server is asked about a handle, and what it is asked about."""
    decision = tasks.resolve(view, "tasks/get", {"taskId": Raw(json.dumps(handle).encode())}, CLIENT)
    if isinstance(decision, Reject):
        return None
    assert isinstance(decision, Forward)
    return decision.entry.name, json.loads(decision.body + b"}")["taskId"]


def test_two_servers_may_choose_the_same_handle(tasks: Tasks, entries: list[ServerEntry]) -> None:
    first, second = (handle_of(tasks, entry, "task-1") for entry in entries)
    assert first == "task-1" and second != first
    assert asked(tasks, first) == ("one", "task-1")
    assert asked(tasks, second) == ("two", "task-1")
    assert handle_of(tasks, entries[1], "task-1") == second, "the same one when the server says it again"


def test_task_notifications_carry_the_clients_handle(tasks: Tasks, entries: list[ServerEntry]) -> None:
    first, second = (handle_of(tasks, entry, "task-1") for entry in entries)
    told = b'{"taskId":"task-1","status":"working"}'
    assert tasks.shown(VIEW, entries[0], told, CLIENT) == told, "untouched where nothing has to be changed"
    assert json.loads(tasks.shown(VIEW, entries[1], told, CLIENT)) == {"taskId": second, "status": "working"}
    for strange in (b'{"status":"working"}', b"[]", b'{"taskId":5}', b"{"):
        assert tasks.shown(VIEW, entries[1], strange, CLIENT) == strange
    assert first in told.decode()


def test_task_handle_belongs_to_its_principal(tasks: Tasks, entries: list[ServerEntry]) -> None:
    handle = handle_of(tasks, entries[0], "mine")
    assert asked(tasks, handle, STRANGER) is None
    assert asked(tasks, handle) == ("one", "mine")
    tasks.drop({STRANGER.principal})
    assert asked(tasks, handle) == ("one", "mine")
    tasks.drop({VIEW.principal})
    assert asked(tasks, handle) is None and not tasks._given


def test_the_oldest_handles_are_forgotten_first(
    tasks: Tasks, entries: list[ServerEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "MAX_TASK_HANDLES", 3)
    handle_of(tasks, entries[0], "task-0")
    other = handle_of(tasks, entries[1], "task-0")
    for number in (1, 2, 3):
        handle_of(tasks, entries[0], f"task-{number}")
    assert asked(tasks, "task-0") is None and asked(tasks, other) is None
    assert [asked(tasks, f"task-{number}") for number in (1, 2, 3)] == [("one", f"task-{n}") for n in (1, 2, 3)]
    assert not tasks._others, "what went with them as well"


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [({}, DEFAULT_LIFE), (None, MAX_TASK_LIFETIME), (5000, 5.0), (-1, 0.0), (10**15, MAX_TASK_LIFETIME), ("long", 0.0)],
)
def test_a_server_stays_up_for_as_long_as_its_task_lives(
    tasks: Tasks, entries: list[ServerEntry], ttl: object, seconds: float
) -> None:
    result = json.dumps({"taskId": "a"} if ttl == {} else {"taskId": "a", "ttlMs": ttl}).encode()
    assert tasks.remember(VIEW, entries[0], result, CLIENT) == (seconds, result)


def remote_view() -> View:
    """Of a server with an address, whose tasks outlive an instance."""
    box = ToolboxConfig(
        name="default", description="", servers={"one": ServerConfig(name="one", url="http://127.0.0.1:1/mcp")}
    )
    config = WorkbenchConfig(path="plain.json", toolboxes={"default": box}, plain=True)
    return View("me", FlatFace(Catalog(config, ManifestStore(lambda: None)), FaceSettings()))


async def test_handle_that_another_instance_may_know_is_looked_for_before_it_is_called_unknown() -> None:
    view, server = remote_view(), SharedServer()
    (entry,) = view.face.catalog.entries()
    view.face.catalog.take({entry: Manifest(None, asks=False)})
    here, there = Tasks(server.instance()), Tasks(server.instance())
    handle = handle_of(here, entry, "task-1", view)
    server.settle()

    async def decided(handle: str) -> Decision:
        decision = there.resolve(view, "tasks/get", {"taskId": Raw(json.dumps(handle).encode())}, CLIENT)
        assert isinstance(decision, Load) and decision.recall is not None
        await decision.recall()
        return decision.decide()

    server.is_away = True
    decision = await decided(handle)
    assert isinstance(decision, Reject) and "cannot be looked up now" in decision.message
    server.come_back()
    assert isinstance(await decided(handle), Forward)
    decision = await decided("nonsense")
    assert isinstance(decision, Reject) and decision.message == "task `nonsense` is not known"


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1/mcp"])
async def test_another_instance_knows_the_task_of_a_server_with_an_address_and_says_why_not_of_a_process(
    url: str | None,
) -> None:
    configs = {"one": ServerConfig(name="one", command=None if url else "none", url=url)}
    box = ToolboxConfig(name="default", description="", servers=configs)
    config = WorkbenchConfig(path="plain.json", toolboxes={"default": box}, plain=True)
    view = View("me", FlatFace(Catalog(config, ManifestStore(lambda: None)), FaceSettings()))
    (entry,) = view.face.catalog.entries()
    server = SharedServer()
    here, state = Tasks(server.instance()), server.instance()
    handle = handle_of(here, entry, "task-1", view)
    server.settle()
    there = Tasks(state)
    there.take_over(view, (await state.find_all(TASK, "me")).values())
    assert asked(here, handle, view) == ("one", "task-1")
    decision = there.resolve(view, "tasks/get", {"taskId": Raw(json.dumps(handle).encode())}, CLIENT)
    if url is not None:
        assert isinstance(decision, Forward)
    else:
        assert isinstance(decision, Reject) and "process of another instance" in decision.message
        # It lists it all the same: it keeps its tasks elsewhere.
        there.listed(view, entry, [Raw(b'{"taskId":"task-1"}')], CLIENT)
        assert asked(there, handle, view) == ("one", "task-1")
    assert await state.find_all(TASK, "stranger") == {}
