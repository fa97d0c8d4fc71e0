"""Two versions of the workbench on one state: each finds what its own have left, and leaves the rest alone."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cluster.seal import SEAL_FORMAT
from mcp_workbench.engine.lasting_state import RESULT, SESSION
from tests.end_to_end.test_cluster_team import seconds_until, status_of
from tests.engine.transport.http.server.raw_client import LEGACY, initialize, legacy, raw_client
from tests.support.cluster_machines import PATIENCE, Instance, Machines, machines, needs_state_server
from tests.support.workbench import scripted_entry

pytestmark = [pytest.mark.processes, needs_state_server]

BOXES = {"box": {"server": scripted_entry(resultBudget=200)}}
NEXT = SEAL_FORMAT + 1
# To a busy machine the state is away for a moment.
AWAY = "cannot be looked up now"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the address of a Unix socket has hardly more than a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="wb") as name:
        yield Path(name)


class Visit:
    """A legacy session of a user, with a result that is read in pieces."""

    def __init__(self, rig: Machines, token: str) -> None:
        self._rig = rig
        self._token = token
        self._session_id = ""
        self._uri = ""

    async def begin(self, instance: Instance, format: int) -> None:
        call = {"tool": {"toolbox": "box", "server": "server", "tool": "big"}, "arguments": {"bytes": 50_000}}
        # Left open: the official client would end the session.
        async with raw_client(instance.port) as client:
            response = await client.request(body=initialize(), authorization=f"Bearer {self._token}")
            self._session_id = response.headers["mcp-session-id"]
        async with self._rig.client(instance.url, self._token, "legacy") as official:
            shown = await official.call_tool("use_tool", call)
        self._uri = next(str(each.uri) for each in shown.content if each.type == "resource_link")
        await self._rig.until_left(SESSION, "ann", self._session_id, format=format)
        await self._rig.until_left(RESULT, "ann", self._uri.rpartition("/")[2], format=format)

    async def session_at(self, instance: Instance) -> int:
        """The status of a request in this session."""
        headers: dict[str, Any] = {"authorization": f"Bearer {self._token}", "mcp_protocol_version": LEGACY}
        async with raw_client(instance.port) as client:
            asked = legacy("tools/list", {}, id=2)
            status = 503
            async with asyncio.timeout(PATIENCE):
                while status == 503:
                    status = (await client.request(body=asked, mcp_session_id=self._session_id, **headers)).status
            return status

    async def result_at(self, instance: Instance) -> str:
        """A piece of the result, or why there is none."""
        async with self._rig.client(instance.url, self._token, "legacy") as client:
            wanted = {"tool": self._uri, "arguments": {"start": 40_000}}
            text = AWAY
            async with asyncio.timeout(PATIENCE):
                while AWAY in text:
                    read = await client.call_tool("use_tool", wanted)
                    text = "".join(each.text for each in read.content if each.type == "text")
            return text


async def test_each_version_finds_its_own_and_leaves_the_others_alone(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", *"abcd")
        old = [await rig.start(name, BOXES) for name in "ab"]
        new = [await rig.start(name, BOXES, format=NEXT) for name in "cd"]
        visits = {format: Visit(rig, token) for format in (SEAL_FORMAT, NEXT)}
        await visits[SEAL_FORMAT].begin(old[0], SEAL_FORMAT)
        await visits[NEXT].begin(new[0], NEXT)
        # What the other version has left begins anew.
        for visit, instance in ((visits[SEAL_FORMAT], new[0]), (visits[NEXT], old[0])):
            assert await visit.session_at(instance) == 404
            assert "no longer kept" in await visit.result_at(instance)
        # It was left alone: the next instance of its own version finds it.
        for visit, (first, second) in ((visits[SEAL_FORMAT], old), (visits[NEXT], new)):
            await first.kill()
            assert await visit.session_at(second) == 200
            assert "xxxx" in await visit.result_at(second)
        for instance in (*old, *new):
            assert "state was refused" not in instance.process.stderr, instance.process.stderr
            assert "another key" not in instance.process.stderr


async def test_machines_move_to_the_next_version_one_after_another(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", *"ab")
        a, b = [await rig.start(name, BOXES) for name in "ab"]
        await rig.until_listening(2)
        before = Visit(rig, token)
        await before.begin(a, SEAL_FORMAT)
        await b.stop()
        b = await rig.start("b", BOXES, format=NEXT)
        await rig.until_listening(2)
        # Its users go on with the keys of the machine; what they do is left for later instances of this version.
        after = Visit(rig, token)
        await after.begin(b, NEXT)
        assert await before.session_at(a) == 200, "who is still there stays there"
        # What is changed meanwhile counts for the version that it was changed on, and comes along with its machine.
        late = await a.run("team", "key", "create", "late")
        await seconds_until(200, late, a)
        assert await status_of(b, late) == 401
        await a.run("team", "key", "revoke", "ann")
        await seconds_until(401, token, a)
        assert await status_of(b, token) == 200
        await a.stop()
        a = await rig.start("a", BOXES, format=NEXT)
        await seconds_until(200, late, a, b)
        await seconds_until(401, token, a, b)


async def test_session_goes_on_between_instances_of_the_next_version(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", *"ab")
        a, b = await rig.start("a", BOXES), await rig.start("b", BOXES, format=NEXT)
        visit = Visit(rig, token)
        await visit.begin(b, NEXT)
        await a.stop()
        a = await rig.start("a", BOXES, format=NEXT)
        await b.stop()
        assert await visit.session_at(a) == 200
        assert "xxxx" in await visit.result_at(a)
