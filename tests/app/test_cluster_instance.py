"""How long an instance looks for what another one has left of a user while the state server does not answer."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec import Raw
from msgspec.json import encode

from mcp_workbench.app import cluster_instance as module
from mcp_workbench.app.cluster_instance import DOUBTED_RECALL_TIMEOUT, RECALL_TIMEOUT, ClusterInstance
from mcp_workbench.cluster.seal import new_key
from mcp_workbench.engine.config.cluster_settings import ClusterConfig, KeyFileConfig
from mcp_workbench.engine.lasting_state import OPENED, StateKind, StateUnavailable
from mcp_workbench.engine.transport.http.server.served_session import SessionUnknowable

pytest.importorskip("valkey")


class WithoutState:
    """An instance whose state server is away."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "number_questions_elsewhere", lambda: None)
        key = folder / "cluster.key"
        key.write_text(new_key())
        key.chmod(0o600)
        config = ClusterConfig(state="valkey://127.0.0.1:1/0", key=KeyFileConfig(file=str(key)))
        self.instance = ClusterInstance(config, str(folder), None)
        self.opened: list[str] = []
        views = Mock(tells_clients_apart=True, reopen=lambda view, names: self.opened.extend(names))
        self.instance._gateway = Mock(router=Mock(views=views))
        self.link = self.instance.state.link
        self.link._note("no answer within 200 ms")
        self.searches = 0
        monkeypatch.setattr(self.instance.state, "find", self._find)
        monkeypatch.setattr(self.instance.state, "find_all", self._find_all)
        monkeypatch.setattr(self.instance, "_shared_sign_ins", lambda: None)

    def has_been_away(self, seconds: float) -> None:
        self.link.away_since = time.monotonic() - seconds

    async def _find(self, kind: StateKind, principal: str, name: str, *, is_patient: bool) -> bytes | None:
        self.searches += 1
        if self.link.is_away:
            raise StateUnavailable("no answer within 200 ms")
        return encode(module._LeftSession("other", "2025-11-25", Raw(b"{}")))

    async def _find_all(self, kind: StateKind, principal: str, *, is_patient: bool) -> dict[str, bytes]:
        self.searches += 1
        if self.link.is_away:
            raise StateUnavailable("no answer within 200 ms")
        return {"": encode(module._LeftToolboxes(["other"]))} if kind is OPENED else {}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WithoutState:
    return WithoutState(tmp_path, monkeypatch)


async def test_session_is_found_once_a_state_that_was_slow_is_back(machine: WithoutState) -> None:
    machine.has_been_away(RECALL_TIMEOUT / 2)
    looking = [asyncio.create_task(machine.instance.find("id", "ann", is_here=False)) for _ in range(20)]
    while machine.searches < 20:
        await asyncio.sleep(0)
    machine.link._note(None)
    found = await asyncio.gather(*looking)
    assert [each is not None and each.revision for each in found] == ["2025-11-25"] * 20
    assert machine.searches == 40, "nobody asks again and again meanwhile"


async def test_a_lasting_outage_delays_no_request(machine: WithoutState) -> None:
    machine.has_been_away(RECALL_TIMEOUT)
    with pytest.raises(SessionUnknowable):
        await machine.instance.find("id", "ann", is_here=False)
    assert machine.searches == 1


async def test_session_that_is_served_here_waits_for_less(machine: WithoutState) -> None:
    machine.has_been_away(DOUBTED_RECALL_TIMEOUT)
    with pytest.raises(SessionUnknowable):
        await machine.instance.find("id", "ann", is_here=True)
    assert machine.searches == 1


async def test_user_is_served_once_a_state_that_was_slow_says_what_they_had_opened(machine: WithoutState) -> None:
    machine.has_been_away(RECALL_TIMEOUT / 2)
    assert machine.instance.is_arriving("ann")
    arriving = asyncio.create_task(machine.instance.arrive("ann"))
    while machine.searches < 3:
        await asyncio.sleep(0)
    machine.link._note(None)
    await arriving
    assert machine.opened == ["other"] and "ann" in machine.instance.here


async def test_user_who_arrives_in_an_outage_that_lasts_is_served_at_once(machine: WithoutState) -> None:
    machine.has_been_away(RECALL_TIMEOUT)
    assert not machine.instance.is_arriving("ann")
    await machine.instance.arrive("ann")
    assert "ann" not in machine.instance.here, "they arrive when it is back"


async def test_user_who_has_waited_in_vain_does_not_wait_again(machine: WithoutState) -> None:
    machine.has_been_away(RECALL_TIMEOUT)
    await machine.instance.arrive("ann")
    machine.has_been_away(0.0)
    machine.searches = 0
    await machine.instance.arrive("ann")
    assert machine.searches == 3
    machine.link._note(None)
    await machine.instance.arrive("ann")
    assert machine.opened == ["other"] and "ann" in machine.instance.here
