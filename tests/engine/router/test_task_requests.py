"""Requests about tasks: what is asked of other instances for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import Manifest
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face.base import FaceSettings
from mcp_workbench.engine.face.flat import FlatFace
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.lasting_state import TASK, StateKind
from mcp_workbench.engine.protocol.revisions import newest
from mcp_workbench.engine.router.task_requests import TaskRequests, TaskSubscription
from tests.support.shared_state import SharedServer, SharedState

SERVER = ServerConfig(name="one", url="http://127.0.0.1:1/mcp")
CONFIG = WorkbenchConfig(
    path="plain.json",
    toolboxes={"default": ToolboxConfig(name="default", description="", servers={"one": SERVER})},
    plain=True,
)


class CountedState(SharedState):
    """Notes what it is asked for."""

    def __init__(self, server: SharedServer) -> None:
        super().__init__(server)
        self.asked: list[StateKind] = []

    async def find_all(self, kind: StateKind, principal: str, *, is_patient: bool = False) -> dict[str, bytes]:
        self.asked.append(kind)
        return await super().find_all(kind, principal, is_patient=is_patient)


async def test_unknown_handles_of_one_subscription_are_looked_for_once_for_all() -> None:
    catalog = Catalog(CONFIG, ManifestStore(lambda: None))
    catalog.take({entry: Manifest(None, asks=False) for entry in catalog.entries()})
    state = CountedState(SharedServer())

    async def load(entries: object) -> None:
        assert not entries

    requests = TaskRequests(cast("Any", None), cast("Any", None), cast("Any", SimpleNamespace(load=load)), state)
    call = SimpleNamespace(view=View("me", FlatFace(catalog, FaceSettings())), revision=newest("modern"))
    kept: dict[str, TaskSubscription] = {}

    await requests.subscribe_all(cast("Any", call), ["one", "two", "three"], lambda *_: None, kept)
    assert state.asked == [TASK]
    assert kept == {}
