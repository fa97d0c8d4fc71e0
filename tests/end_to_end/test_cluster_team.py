"""Several instances with a real state server: what counts for users on all of them, once one has decided it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from msgspec.structs import replace

from mcp_workbench.engine.lasting_state import SESSION
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.store import SignInRecord
from tests.app.page_client_of_tests import Browser
from tests.engine.transport.http.server.raw_client import LEGACY, initialize, legacy, raw_client
from tests.support.cluster_machines import PATIENCE, Instance, machines, needs_state_server
from tests.support.workbench import scripted_entry

pytestmark = [pytest.mark.processes, needs_state_server]

BOXES = {"box": {"server": scripted_entry()}}
# How long others may take to learn of a revocation. In a trial this is what is promised; a busy machine that runs other
# tests beside this one gets longer.
REVOCATION_LIMIT = 2.0 if int(os.environ.get("CLUSTER_REPETITIONS", "1")) > 1 else 20.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the address of a Unix socket has hardly more than a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="wb") as name:
        yield Path(name)


async def status_of(instance: Instance, token: str) -> int:
    """What a request with this token is answered with."""
    async with raw_client(instance.port) as client:
        return (await client.request(body=initialize(), authorization=f"Bearer {token}")).status


async def seconds_until(status: int, token: str, *instances: Instance) -> float:
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        for instance in instances:
            while await status_of(instance, token) != status:
                await asyncio.sleep(0.02)
    return time.monotonic() - began


async def test_key_is_valid_on_all_machines_and_refused_on_all_once_it_is_revoked(folder: Path) -> None:
    async with machines(folder) as rig:
        a, b, c = [await rig.start(name, BOXES) for name in "abc"]
        await rig.until_listening(3)
        token = await a.run("team", "key", "create", "ann")
        await seconds_until(200, token, a, b, c)
        assert (await c.run("team", "key", "list")).count("ann") == 1
        assert await b.run("team", "key", "revoke", "ann") == "revoked"
        took = await seconds_until(401, token, a, b, c)
        print(f"refused on three machines {took:.2f} s after the command has ended")
        assert took < REVOCATION_LIMIT
        again = await c.run("team", "key", "create", "ann")
        await seconds_until(200, again, a, b, c)
        assert [await status_of(each, token) for each in (a, b, c)] == [401, 401, 401]


async def test_key_stays_valid_and_a_revoked_one_refused_while_the_state_is_away(folder: Path) -> None:
    async with machines(folder) as rig:
        a, b = [await rig.start(name, BOXES) for name in "ab"]
        await rig.until_listening(2)
        kept, gone = [await a.run("team", "key", "create", name) for name in ("kept", "gone")]
        await seconds_until(200, gone, a, b)
        await rig.state.kill()
        await a.run("team", "key", "revoke", "gone")
        await seconds_until(401, gone, a)
        # One that starts without the state knows what its machine knew.
        await b.kill()
        b = await rig.start("b", BOXES)
        assert await status_of(b, kept) == 200
        assert await status_of(b, gone) == 200, "nobody could tell"
        await rig.state.start()
        await seconds_until(401, gone, b)
        assert await status_of(b, kept) == 200
        # Nothing was kept on the state server's disk: the instances have written it again, and a new machine reads it.
        c = await rig.start("c", BOXES)
        await seconds_until(200, kept, c)
        assert await status_of(c, gone) == 401


ASK = [{"who": ["*"], "tools": ["box/server/echo"], "then": "ask"}, {"then": "allow"}]


async def call(client: Client, text: str) -> tuple[bool, str]:
    path = {"toolbox": "box", "server": "server", "tool": "echo"}
    result: Any = await client.call_tool("use_tool", {"tool": path, "arguments": {"text": text}})
    return not result.is_error, result.content[0].text


def approval_in(told: str) -> str:
    found = re.search(r"mcp-workbench team approve ([0-9a-f]+)", told)
    assert found is not None, told
    return found[1]


async def until_seen(instance: Instance, id: str) -> None:
    """Until this waiting call is known there."""
    async with asyncio.timeout(PATIENCE):
        while id not in await instance.run("status"):
            await asyncio.sleep(0.1)


async def test_call_is_approved_and_denied_on_another_machine(folder: Path) -> None:
    async with machines(folder) as rig:
        a, b = [await rig.start(name, BOXES, policy=ASK) for name in "ab"]
        await rig.until_listening(2)
        token = await a.run("team", "key", "create", "ann")
        await seconds_until(200, token, a, b)
        async with rig.client(a.url, token, "auto") as client:
            passed, told = await call(client, "once")
            assert not passed
            id = approval_in(told)
            await until_seen(b, id)
            assert "once" in await b.run("approve", id, "--show")
            assert await b.run("approve", id) == "approved: box/server/echo for ann"
            assert (await call(client, "once"))[0]
            assert not (await call(client, "once"))[0], "it was for one call"
            passed, told = await call(client, "never")
            await until_seen(b, approval_in(told))
            assert await b.run("approve", approval_in(told), "--deny") == "denied: box/server/echo for ann"
            passed, told = await call(client, "never")
            assert not passed and "was denied by" in told


async def test_call_is_decided_on_the_page_of_another_machine(folder: Path) -> None:
    async with machines(folder) as rig:
        a, b = [await rig.start(name, BOXES, policy=ASK) for name in "ab"]
        await rig.until_listening(2)
        token = await a.run("team", "key", "create", "ann")
        await seconds_until(200, token, a, b)
        address = await b.run("page", "--no-browser")
        port = int(address.split(":")[2].partition("/")[0])
        async with rig.client(a.url, token, "auto") as client, raw_client(port) as http:
            page = Browser(http, port)
            await page.keep_cookie(await page.get("/login" + address.partition("/login")[2]))
            for text, decision in (("once", "once"), ("never", "deny")):
                passed, told = await call(client, text)
                assert not passed
                id = approval_in(told)
                await until_seen(b, id)
                assert id in json.dumps(await page.state()), "the page shows it"
                decided = await page.post("/api/approve", {"id": id, "decision": decision})
                assert decided.json == {"decided": decision, "call": "box/server/echo for ann"}
                again = await page.post("/api/approve", {"id": id, "decision": "once"})
                assert again.status == 409 and "already" in again.json["error"]
                passed, told = await call(client, text)
                assert passed if decision == "once" else "was denied by" in told


async def test_approval_for_an_hour_is_known_where_its_user_moves(folder: Path) -> None:
    async with machines(folder) as rig:
        a, b = [await rig.start(name, BOXES, policy=ASK) for name in "ab"]
        await rig.until_listening(2)
        token, stranger = [await a.run("team", "key", "create", name) for name in ("ann", "ben")]
        await seconds_until(200, stranger, a, b)
        async with rig.client(a.url, token, "auto") as client:
            _, told = await call(client, "text")
            assert await a.run("approve", approval_in(told), "--for", "3600")
            assert (await call(client, "text"))[0]
        await a.kill()
        # One that was not there when it was approved.
        c = await rig.start("c", BOXES, policy=ASK)
        for instance in (b, c):
            await seconds_until(200, stranger, instance)
            async with rig.client(instance.url, token, "auto") as client:
                assert (await call(client, "text"))[0]
                assert not (await call(client, "another"))[0]
            async with rig.client(instance.url, stranger, "auto") as client:
                assert not (await call(client, "text"))[0], "it is each user's own"


async def tools_of(client: Client) -> set[str]:
    result: Any = await client.call_tool("open_toolbox", {"toolbox_name": "box"})
    return set(re.findall(r'"name": ?"(\w+)"', result.content[0].text))


async def test_definition_accepted_on_one_machine_is_shown_on_all(folder: Path) -> None:
    async with machines(folder) as rig:
        # One that has never run locks what the servers offer; then one definition is taken out.
        first = await rig.start("first", BOXES)
        config = first.folder / "workbench-config.json"
        await first.run("team", "lock", "--config", str(config))
        (written,) = first.folder.glob("*.lock")
        lock = json.loads(written.read_text())
        del lock["toolboxes"]["box"]["server"]["tools"]["echo"]
        for name in "ab":
            (folder / name).mkdir()
            (folder / name / written.name).write_text(json.dumps(lock))
        a, b = [await rig.start(name, BOXES, lock="enforce") for name in "ab"]
        await rig.until_listening(3)
        async with rig.client(a.url, "operator", "auto") as here, rig.client(b.url, "operator", "auto") as there:
            for client in (here, there):
                assert "echo" not in await tools_of(client)
                assert not (await call(client, "text"))[0]
            await a.run("team", "lock", "accept", "--config", str(a.folder / "workbench-config.json"))
            began = time.monotonic()
            async with asyncio.timeout(PATIENCE):
                while "echo" not in await tools_of(there):
                    await asyncio.sleep(0.05)
            assert time.monotonic() - began < REVOCATION_LIMIT
            assert (await call(there, "text"))[0]
        assert json.loads((b.folder / written.name).read_text()) == lock


async def test_state_that_is_away_is_reported_once_and_shown(folder: Path) -> None:
    async with machines(folder) as rig:
        a = await rig.start("a", BOXES)
        config = str(a.folder / "workbench-config.json")

        async def metric(name: str) -> float:
            async with raw_client(a.port) as client:
                got = await client.request("GET", "/metrics", authorization="Bearer operator")
            (line,) = [each for each in got.body.decode().splitlines() if each.startswith(f"{name} ")]
            return float(line.split()[1])

        async def until_up(value: float) -> None:
            async with asyncio.timeout(PATIENCE):
                while await metric("workbench_state_up") != value:
                    await asyncio.sleep(0.05)

        await until_up(1)
        assert await metric("workbench_state_latency_seconds") > 0
        assert "the cluster's state is at valkey://127.0.0.1" in await a.run("status", "--long")
        await rig.state.kill()
        await until_up(0)
        assert "is away" in await a.run("status")
        assert "cannot be used" in (await a.fail("doctor", "--config", config))
        await rig.state.start()
        await until_up(1)
        assert await metric("workbench_state_outages_total") == 1
        assert "is away" not in await a.run("status")
        log = a.process.stderr
        assert log.count("the cluster's state at valkey://") == 2, log
        assert log.count("is away:") == 1 and log.count("/0 is back\n") == 1


async def test_next_holder_of_a_name_finds_nothing_of_the_former_one(folder: Path) -> None:
    async with machines(folder) as rig:
        a, b = [await rig.start(name, BOXES) for name in "ab"]
        await rig.until_listening(2)
        old = await a.run("team", "key", "create", "ann")
        await seconds_until(200, old, a, b)
        async with raw_client(a.port) as client:
            begun = await client.request(body=initialize(), authorization=f"Bearer {old}")
        id = begun.headers["mcp-session-id"]
        await rig.until_left(SESSION, "ann", id)
        await a.kill()

        async def listed(token: str) -> int:
            async with raw_client(b.port) as client:
                headers = {"authorization": f"Bearer {token}", "mcp_protocol_version": LEGACY, "mcp_session_id": id}
                return (await client.request(body=legacy("tools/list", {}, id=2), **headers)).status

        assert await listed(old) == 200, "the same user resumes it"
        await b.run("team", "key", "revoke", "ann")
        await seconds_until(401, old, b)
        new = await b.run("team", "key", "create", "ann")
        await seconds_until(200, new, b)
        assert await listed(new) == 404


async def test_users_never_share_a_process_on_any_instance(folder: Path) -> None:
    async with machines(folder) as rig:
        a, b = [await rig.start(name, BOXES) for name in "ab"]
        await rig.until_listening(2)
        tokens = [await a.run("team", "key", "create", name) for name in ("ann", "ben")]
        await seconds_until(200, tokens[1], a, b)
        processes = []
        path = {"toolbox": "box", "server": "server", "tool": "pid"}
        for instance in (a, b):
            for token in (*tokens, tokens[0]):
                async with rig.client(instance.url, token, "auto") as client:
                    result: Any = await client.call_tool("use_tool", {"tool": path, "arguments": {}})
                    processes.append(result.content[0].text)
        ann, ben, again, ann_there, ben_there, again_there = processes
        assert len({ann, ben, ann_there, ben_there}) == 4
        assert (again, again_there) == (ann, ann_there), "each user keeps theirs"


async def test_calls_that_need_others_are_refused_while_the_state_is_away_if_that_is_configured(folder: Path) -> None:
    limits = [{"servers": ["box/server"], "callsPerMinute": 100}]
    async with machines(folder) as rig:
        strict = await rig.start("a", BOXES, limits=limits, cluster={"whenAway": "refuse"})
        asking = await rig.start("b", BOXES, policy=ASK, cluster={"whenAway": "refuse"})
        lenient = await rig.start("c", BOXES, limits=limits)
        async with (
            rig.client(strict.url, "operator", "auto") as limited,
            rig.client(asking.url, "operator", "auto") as asked,
            rig.client(lenient.url, "operator", "auto") as counted,
        ):
            assert (await call(counted, "text"))[0]
            async with asyncio.timeout(PATIENCE):
                while not (told := await call(limited, "text"))[0]:
                    assert "the cluster's state is away" in told[1]
                    await asyncio.sleep(0.05)
            async with asyncio.timeout(PATIENCE):
                # To a busy machine the state is away for a moment.
                while "team approve" not in (told := await call(asked, "text"))[1]:
                    assert "the cluster's state is away" in told[1]
                    await asyncio.sleep(0.05)
            await rig.state.kill()
            for client in (limited, asked):
                async with asyncio.timeout(PATIENCE):
                    while "the cluster's state is away" not in (told := await call(client, "text"))[1]:
                        await asyncio.sleep(0.05)
                assert not told[0]
            assert (await call(counted, "text"))[0], "each instance counts alone"
            await rig.state.start()
            async with asyncio.timeout(PATIENCE):
                while not (await call(limited, "text"))[0]:
                    await asyncio.sleep(0.05)


async def test_sign_in_on_one_machine_is_known_on_all(folder: Path) -> None:
    boxes = {"box": {"server": {"url": "http://127.0.0.1:1/mcp"}}}
    client = OAuthClient(id="client", issuer="https://id.example.com", is_registered=True)
    record = SignInRecord(
        principal="ann",
        server="http://127.0.0.1:1/mcp",
        issuer=client.issuer,
        client=client,
        token_endpoint="https://id.example.com/token",
        access_token="the access token",
        refresh_token="the refresh token",
        signed_in_at=time.time(),
        obtained_at=time.time(),
    )
    async with machines(folder) as rig:
        a, b = [await rig.start(name, boxes) for name in "ab"]
        await rig.until_listening(2)
        stores = [a.sign_ins, b.sign_ins]
        token = await a.run("team", "key", "create", "ann")
        await seconds_until(200, token, a, b)

        async def until_known(count: int) -> float:
            began = time.monotonic()
            async with asyncio.timeout(PATIENCE):
                while len(stores[1].read().records) != count:
                    await asyncio.sleep(0.05)
            return time.monotonic() - began

        # As the command does; the user is at the other instance already.
        await stores[0].change(lambda contents: contents.put(record))
        assert await until_known(1) < 2 * REVOCATION_LIMIT
        assert stores[1].read().records == [record]
        await stores[1].change(lambda contents: contents.records.clear())
        async with asyncio.timeout(PATIENCE):
            while stores[0].read().records:
                await asyncio.sleep(0.05)
        # One that starts later, on a machine that knows nothing, learns of it when the user arrives.
        await stores[0].change(lambda contents: contents.put(replace(record, signed_in_at=time.time())))
        await until_known(1)
        c = await rig.start("c", boxes)
        await seconds_until(200, token, c)
        async with asyncio.timeout(PATIENCE):
            while not c.sign_ins.read().records:
                await asyncio.sleep(0.05)
