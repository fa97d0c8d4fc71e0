"""Everything that a client can ask for, under each decision, in both eras, over stdio and HTTP, in every face: one
policy, one answer."""

from __future__ import annotations

import asyncio
import itertools
import json
from functools import partial
from pathlib import Path

import pytest

from mcp_workbench.engine.config.model import FaceName
from tests.support.client import Json
from tests.support.policy_rig import (
    NOWHERE,
    PATIENCE,
    SECRET,
    HttpClient,
    PolicyClient,
    Rig,
    StdioClient,
    nothing,
    rigged,
)

pytestmark = pytest.mark.processes

DECISIONS = ("allow", "deny", "hide", "ask")
ERAS = ("legacy", "modern")
TRANSPORTS = ("stdio", "http")
KINDS = (
    "list",
    "search",
    "call",
    "prompt",
    "resource",
    "subscription",
    "completion",
    "task",
    "kept result",
    "parked call",
)
FACES: tuple[FaceName, ...] = ("proxy", "flat", "dynamic")
# Only this face searches, and keeps what is left of a result.
OF_PROXY = ("search", "kept result")
REACHED = {
    "call": "tools/call",
    "prompt": "prompts/get",
    "resource": "resources/read",
    "completion": "completion/complete",
}
CELLS = [
    pytest.param(kind, face, id=f"{kind}-{face}")
    for kind, face in itertools.product(KINDS, FACES)
    if face == "proxy" or kind not in OF_PROXY
]


def is_refused(answer: Json) -> bool:
    return "error" in answer or answer["result"].get("isError") is True


def said(answer: Json) -> str:
    return json.dumps({key: value for key, value in answer.items() if key != "id"})


@pytest.mark.requirement("team.policy")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("then", DECISIONS)
@pytest.mark.parametrize(("kind", "face"), CELLS)
async def test_one_policy_decides_about_everything(
    tmp_path: Path, kind: str, face: FaceName, then: str, era: str, transport: str
) -> None:
    # A modern client of a legacy server is the one whose calls are parked; tasks are those of the client's era.
    server_era = "legacy" if kind == "parked call" else era
    async with rigged(tmp_path, era, transport, server_era, face) as rig:
        if kind in REACHED:
            await _requested(rig, kind, then)
        elif kind in ("list", "search"):
            await rig.decide(then)
            await (_listed(rig, then) if kind == "list" else _searched(rig.client, then))
        else:
            await {
                "subscription": _subscribed,
                "task": _asked_about_task,
                "kept result": _read_on,
                "parked call": _came_back,
            }[kind](rig, then)


async def _requested(rig: Rig, kind: str, then: str) -> None:
    await rig.decide(then)
    client = rig.client
    answer = await client.request(*rig.requested(kind, SECRET))
    arrived = len(rig.gateway.reached(REACHED[kind]))
    asks = then == "ask" and kind != "completion"
    assert client.asked == asks
    passes = then == "allow" or asks
    assert is_refused(answer) is not passes, answer
    assert arrived == passes
    if then == "deny":
        assert "policy[0]" in said(answer)
    if then == "ask" and not asks:
        assert "needs the user's approval" in said(answer)
    if then == "hide":
        unknown = await client.request(*rig.requested(kind, NOWHERE))
        assert said(unknown).replace(NOWHERE, SECRET) == said(answer)
    if asks:
        client.answer = {"action": "decline"}
        assert "did not approve" in said(await client.request(*rig.requested(kind, SECRET)))
        assert len(rig.gateway.reached(REACHED[kind])) == 1


async def _listed(rig: Rig, then: str) -> None:
    # In the face `proxy` tools are found by a search.
    for kind in ("prompts", "resources", *(() if rig.gateway.face.name == "proxy" else ("tools",))):
        listed = said(await rig.client.request(f"{kind}/list"))
        assert "open" in listed and (SECRET in listed) is (then != "hide")


async def _searched(client: PolicyClient, then: str) -> None:
    for arguments in ({"query": SECRET}, {"toolbox_name": "box"}, {"tools": [f"box/server/{SECRET}"]}):
        answer = await client.request("tools/call", {"name": "open_toolbox", "arguments": arguments})
        found = f'"{SECRET}"' in said(answer).replace("\\", "") or f"server/{SECRET}" in said(answer)
        is_named = "tools" in arguments and then == "hide"
        assert found is (then != "hide") or is_named, answer
        if then == "hide":
            other = json.loads(json.dumps(arguments).replace(SECRET, NOWHERE))
            unknown = await client.request("tools/call", {"name": "open_toolbox", "arguments": other})
            assert said(unknown).replace(NOWHERE, SECRET) == said(answer)


async def _subscribed(rig: Rig, then: str) -> None:
    await rig.decide(then)
    client, uri = rig.client, f"test:///{SECRET}"
    if client.era == "legacy":
        answer = await client.request("resources/subscribe", {"uri": uri})
        assert is_refused(answer) is (then in ("deny", "hide"))
        assert client.asked == (then == "ask")
        assert bool(rig.gateway.reached("resources/subscribe")) is (then in ("allow", "ask"))
        return
    params: Json = {"notifications": {"resourceSubscriptions": [uri]}}
    if isinstance(client, HttpClient):
        told = await client.send("subscriptions/listen", params)
    else:
        assert isinstance(client, StdioClient)
        waiting = asyncio.ensure_future(client.send("subscriptions/listen", params))
        async with asyncio.timeout(PATIENCE):
            while not client.notified:
                await asyncio.sleep(0)
        waiting.cancel()
        (told,) = client.notified
    granted = told["params"]["notifications"].get("resourceSubscriptions", [])
    # Nobody can be asked in the middle of such a stream.
    assert granted == ([uri] if then == "allow" else [])


async def _asked_about_task(rig: Rig, then: str) -> None:
    client = rig.client
    if client.era == "modern":
        method, params = rig.use(SECRET, task=True)
    else:
        method, params = rig.use(SECRET)
        params["task"] = {"ttl": 60_000}
    created = await client.request(method, params)
    assert "t-1" in said(created), created
    await rig.decide(then)
    answer = await client.request("tasks/get", {"taskId": "t-1"})
    assert is_refused(answer) is (then in ("deny", "hide"))
    assert client.asked == 0, "it was approved as a call"
    if then == "hide":
        assert "task `t-1` is not known" in said(answer)


async def _read_on(rig: Rig, then: str) -> None:
    client = rig.client
    head = said(await client.request(*rig.use(SECRET, large=True)))
    uri = head[head.index("workbench://results/") :].partition("\\")[0].partition('"')[0]
    await rig.decide(then)
    read = await client.request(
        "tools/call", {"name": "use_tool", "arguments": {"tool": uri, "arguments": {"start": 0}}}
    )
    whole = await client.request("resources/read", {"uri": uri})
    keeps = then in ("allow", "ask")
    assert ("called" in said(read)) is keeps is ("called" in said(whole))
    assert client.asked == 0
    if not keeps:
        other = uri[:-3] + "zzz"
        missing = await client.request("resources/read", {"uri": other})
        assert said(missing).replace(other, uri) == said(whole)


async def _came_back(rig: Rig, then: str) -> None:
    client = rig.client
    if client.era == "legacy":
        # It is asked in the middle of its call. One that has reached its server is finished, whatever is decided since.
        client.answer = {"action": "accept", "content": {}}
        client.before_answer = partial(rig.decide, then)
        answer = await client.request(*rig.use(SECRET, ask=True))
        assert "asked" in said(answer) and client.asked == 1
        client.before_answer = nothing
        again = await client.request(*rig.use(SECRET))
        assert is_refused(again) is (then != "allow"), "the next one is judged anew"
        return
    method, params = rig.use(SECRET, ask=True)
    away = await client.send(method, params)
    assert away["result"]["resultType"] == "input_required"
    await rig.decide(then)
    accepted: Json = {"action": "accept", "content": {}}
    responses = dict.fromkeys(away["result"]["inputRequests"], accepted)
    back = await client.send(
        method, {**params, "inputResponses": responses, "requestState": away["result"]["requestState"]}
    )
    assert is_refused(back) is (then in ("deny", "hide")), back
    assert ("asked" in said(back)) is (then in ("allow", "ask"))
