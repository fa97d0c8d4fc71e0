"""Calls that wait before they come to the steps, because nobody knows yet what their server offers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec.json import decode

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.app.team_gate import TeamGate
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.steps import Denial, GuardedRequest, Outcome, Step, UncheckedPassage
from mcp_workbench.errors import SignInNeeded
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, InProcessGateway, Server, text_of, tool, workbench_with
from tests.support.processes import eventually

FRESH = {"use_cache": False}


class Onlooker:
    """Writes down how requests end (`steps.Observer`)."""

    is_asked = False

    def __init__(self) -> None:
        self.ended: list[tuple[GuardedRequest, Outcome]] = []

    def check(self, request: GuardedRequest) -> None:
        """Nothing is decided here."""

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        self.ended.append((request, outcome))

    def on_unchecked_end(
        self, passage: UncheckedPassage, kind: Any, payload: tuple[Part, ...], size: int, ended: float
    ) -> None:
        self.on_end(passage.origin, Outcome(kind, payload, passage.arrived, passage.sent, ended))


class Decider:
    """Lets everything pass, or nothing."""

    def __init__(self, verdict: Denial | None = None) -> None:
        self._verdict = verdict

    def check(self, request: GuardedRequest) -> Denial | None:
        return self._verdict

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        """Nothing is kept."""


@asynccontextmanager
async def watched(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    *steps: Step,
    era: str = "legacy",
    face: str = "proxy",
) -> AsyncIterator[ConnectedClient]:
    monkeypatch.setattr(TeamGate, "steps", lambda gate: steps)
    options = {"face": face, **FRESH}
    abilities: Json = {"elicitation": {"url": {}}}
    async with workbench_with(folder, {"box": {"slow": server}}, options=options, era=era, abilities=abilities) as at:
        yield at


def slow() -> Server:
    server = Server(tool("work"))
    server.prompts, server.gate = [{"name": "write"}], asyncio.Event()
    return server


USE: Json = {"name": "use_tool", "arguments": {"tool": "box/slow/work", "arguments": {}}}


@pytest.mark.requirement("audit.line")
@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("end", ["cancelled by the client", "client gone"])
@pytest.mark.parametrize(
    ("face", "method", "params", "seen_as"),
    [
        ("proxy", "tools/call", USE, ("box", "slow", "work")),
        ("flat", "prompts/get", {"name": "box:slow:write"}, ("", "", "box:slow:write")),
    ],
)
async def test_a_call_that_ends_while_its_server_starts_is_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    decides: bool,
    end: str,
    face: str,
    method: str,
    params: Json,
    seen_as: tuple[str, str, str],
) -> None:
    server, onlooker = slow(), Onlooker()
    steps: tuple[Step, ...] = (onlooker, Decider()) if decides else (onlooker,)
    async with watched(tmp_path, monkeypatch, server, *steps, face=face) as at:
        sent = monotonic()
        call = await at.client.start(method, {**params, "_meta": {"traceparent": "00-1-2-01"}})
        await eventually(lambda: server.starts > 0)
        started = monotonic()
        if end == "client gone":
            at.client.session.leave()
        else:
            await at.client.cancel(call)
        ((request, outcome),) = onlooker.ended
        assert (request.method, request.toolbox, request.server, request.item) == (method, *seen_as)
        assert request.meta is not None and decode(request.meta) == {"traceparent": "00-1-2-01"}
        assert (outcome.kind, outcome.sent, outcome.decision) == ("cancelled", None, "undecided")
        assert sent <= outcome.arrived <= started <= outcome.ended


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_requests_without_an_item_are_not_tracked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    server, onlooker = slow(), Onlooker()
    is_list = method == "tools/list"
    async with watched(tmp_path, monkeypatch, server, onlooker, face="flat" if is_list else "proxy") as at:
        opening = {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}}
        call = await at.client.start(method, {} if is_list else opening)
        await eventually(lambda: server.starts > 0)
        await at.client.cancel(call)
        assert onlooker.ended == [] and not call.answered


@pytest.mark.requirement("audit.line")
@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("name", ["work", "nothing"])
async def test_a_call_that_had_to_wait_arrived_when_its_client_sent_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decides: bool, name: str
) -> None:
    server, onlooker = slow(), Onlooker()
    assert server.gate is not None
    steps: tuple[Step, ...] = (onlooker, Decider()) if decides else (onlooker,)
    async with watched(tmp_path, monkeypatch, server, *steps) as at:
        params = {"name": "use_tool", "arguments": {"tool": f"box/slow/{name}", "arguments": {}}}
        call = await at.client.start("tools/call", params)
        await eventually(lambda: server.starts > 0)
        waited = monotonic()
        server.gate.set()
        await call.result()
        ((_, outcome),) = onlooker.ended
        assert outcome.arrived <= waited <= outcome.ended
        if name == "work":
            assert outcome.sent is not None and waited <= outcome.sent


async def test_a_call_that_fails_by_a_defect_of_ours_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, onlooker = Server(tool("work")), Onlooker()

    def fail(self: Gateway, *_: object) -> None:
        raise RuntimeError("a defect")

    async with watched(tmp_path, monkeypatch, server, onlooker) as at:
        monkeypatch.setattr(InProcessGateway, "_open_link", fail)
        monkeypatch.setattr(at.gateway.router._lists, "look_again", fail)
        answer = await (await at.client.start("tools/call", USE)).response()
        assert answer["error"]["code"] == -32603
    assert [(request.item, outcome.kind) for request, outcome in onlooker.ended] == [("work", "error")]


class SignedInAtOnce:
    """Sign-ins of a user who is done as soon as there is a page (`SignInService`)."""

    url = "https://example.test/sign-in"

    async def wait(self) -> None:
        """Done."""

    async def begin_sign_in(self, entry: ServerEntry, principal: str, introduction: object) -> SignedInAtOnce:
        return self

    def sign_in_under_way(self, entry: ServerEntry, principal: str) -> SignedInAtOnce:
        return self


@pytest.mark.requirement("team.policy")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("is_denied", [True, False])
async def test_a_call_whose_user_had_to_sign_in_first_passes_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str, is_denied: bool
) -> None:
    """Its server could not be asked what it offers: what was noted of it until then lets nothing pass."""
    server, onlooker = Server(tool("work")), Onlooker()
    opened, refusals = InProcessGateway._open_link, iter(range(1 if era == "legacy" else 2))

    async def open_link(gateway: InProcessGateway, *parts: object) -> object:
        if next(refusals, None) is not None:
            raise SignInNeeded("the server wants you to sign in")
        return await opened(gateway, *parts)  # type: ignore[arg-type]

    monkeypatch.setattr(InProcessGateway, "_open_link", open_link)
    monkeypatch.setattr(InProcessGateway, "sign_ins", lambda gateway: SignedInAtOnce())
    decider = Decider(Denial(-32000, "not today") if is_denied else None)
    async with watched(tmp_path, monkeypatch, server, onlooker, decider, era=era) as at:
        at.client.handlers["elicitation/create"] = lambda params: {"action": "accept"}
        result = await at.client.request("tools/call", USE)
        if era == "modern":
            answers = {"inputResponses": {"sign-in": {"action": "accept"}}, "requestState": result["requestState"]}
            result = await at.client.request("tools/call", {**USE, **answers})
        assert bool(server.calls) is not is_denied
        assert ("not today" in text_of(result)) is is_denied
    assert onlooker.ended[-1][1].decision == ("denied" if is_denied else "passed")
    assert len(onlooker.ended) == (1 if era == "legacy" else 2)
