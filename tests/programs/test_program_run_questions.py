"""Programs whose user is asked meanwhile, by a policy or a server of either era: their time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.programs import program_run
from mcp_workbench.programs.program_run import MAX_ASKED_SECONDS, ProgramTime
from mcp_workbench.team.lock.lock_file import written
from tests.engine.session.test_relayed_inputs import Asking
from tests.faces.harness import ERAS
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with
from tests.team.lock.test_definition_lock import lock_of

pytestmark = pytest.mark.processes
pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")
every_client = pytest.mark.parametrize("era", ERAS)
ASK: Json = {"elicitation": {"form": {}}}
ALLOWED: Json = {"programs": {"writes": "allow"}}
FORM: Json = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


HELLO: Json = {"content": [{"type": "text", "text": "hello Ada"}]}


class Virtual:
    """A time limit on a clock that the test sets (`asyncio.Timeout`)."""

    def __init__(self, limit: float) -> None:
        self.now, self.due = 0.0, limit
        self.is_over = False

    def when(self) -> float | None:
        return None if self.due == float("inf") else self.due

    def reschedule(self, when: float | None) -> None:
        assert not self.is_over
        self.due = float("inf") if when is None else when

    def expired(self) -> bool:
        return self.is_over

    def clock(self) -> float:
        return self.now


def test_time_stands_still_while_the_user_is_asked() -> None:
    bound: Any = Virtual(1.0)
    time = ProgramTime(bound, bound.clock)
    bound.now = 0.1
    time.note_asked(True)
    bound.now = 0.9
    assert bound.when() == pytest.approx(1.0 + MAX_ASKED_SECONDS)
    time.note_asked(False)
    assert bound.when() == pytest.approx(1.8)
    bound.now = 1.7
    time.note_asked(True)
    time.note_asked(True)
    bound.now = 100.0
    time.note_asked(False)
    time.note_asked(False)
    assert bound.when() == pytest.approx(100.1), "asked twice, and long after the limit"


def test_all_questions_together_hold_the_time_only_so_long() -> None:
    bound: Any = Virtual(1.0)
    time = ProgramTime(bound, bound.clock)
    time.note_asked(True)
    assert bound.when() == pytest.approx(MAX_ASKED_SECONDS + 1.0)
    bound.now = MAX_ASKED_SECONDS - 1.0
    time.note_asked(False)
    assert bound.when() == pytest.approx(bound.now + 1.0)
    bound.now += 0.25
    assert not time.is_asked_out
    time.note_asked(True)
    time.note_asked(True)
    assert bound.when() == pytest.approx(bound.now + 1.75)
    bound.now += 1.5
    time.note_asked(False)
    assert bound.when() == pytest.approx(bound.now + 0.25), "a second of it was left for the question"
    assert time.is_asked_out
    time.note_asked(True)
    assert bound.when() == pytest.approx(bound.now + 0.25)


def test_program_that_is_over_gets_no_other_deadline() -> None:
    bound: Any = Virtual(1.0)
    time = ProgramTime(bound, bound.clock)
    time.note_asked(True)
    bound.is_over = True
    time.note_asked(False)


class LegacyAsking(Server):
    """A server with a handshake that asks in the middle of a call."""

    def __init__(self) -> None:
        super().__init__(tool("greet"), answer=self._ask)
        # What it answers waits for the answer of the client.
        self.held = []
        self.on_answer = lambda answer: self.held.pop()() if self.held else None

    def _ask(self, name: str, arguments: Json) -> Json:
        self.links[-1].say({"id": "q", "method": "elicitation/create", "params": FORM})
        return HELLO


async def run(seen: ConnectedClient, era: str, code: str, reply: Callable[[Json], Json]) -> tuple[str, list[str]]:
    """The answer of a program, and what was asked meanwhile."""
    asked: list[str] = []

    def answer(params: Json) -> Json:
        asked.append(params["message"])
        return reply(params)

    call: Json = {"name": "run_program", "arguments": {"code": code}}
    seen.client.handlers["elicitation/create"] = answer
    result = await seen.client.request("tools/call", call)
    while result.get("resultType") == "input_required":
        answers = {key: answer(each["params"]) for key, each in result["inputRequests"].items()}
        retry = {"inputResponses": answers, "requestState": result["requestState"]}
        result = await seen.client.request("tools/call", {**call, **retry})
    return text_of(result), asked


def asking(kind: str) -> tuple[Server, Json, Json]:
    """A server about whose tool the user is asked, the settings of the workbench, and the answer."""
    if kind == "policy":
        server = Server(tool("greet"), answer=lambda name, arguments: HELLO)
        return server, {"programs": True}, {"action": "accept", "content": {"allow": "once"}}
    server = LegacyAsking() if kind == "legacy" else Asking()
    return server, ALLOWED, {"action": "accept", "content": {"name": "Ada"}}


@every_client
@pytest.mark.parametrize("kind", ["policy", "legacy", "modern"])
async def test_a_program_waits_for_its_user_and_its_time_stands_still(
    tmp_path: Path, era: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[asyncio.Timeout] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        bounds.append(asyncio.Timeout(asyncio.get_running_loop().time() + seconds))
        return bounds[-1]

    monkeypatch.setattr(program_run, "timeout", timeout)
    server, settings, user = asking(kind)
    during: list[float] = []

    def reply(params: Json) -> Json:
        during.append((bounds[0].when() or 0.0) - asyncio.get_running_loop().time())
        return user

    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, abilities=ASK, **settings) as seen:
        code = "[call('box/server/greet') for _ in range(2)]"
        said, asked = await run(seen, era, code, reply)
        assert said == '["hello Ada","hello Ada"]'
        assert len(during) == 2 and min(during) > MAX_ASKED_SECONDS / 2, "its time does not end it meanwhile"
        assert bounds[0].when() is not None, "it goes on afterwards"
        assert len(asked) == 2 and all("box/server" in each for each in asked)


@every_client
async def test_a_program_does_not_reach_a_tool_that_the_lock_withholds(tmp_path: Path, era: str) -> None:
    def boxes(description: str) -> dict[str, dict[str, Server]]:
        return {"box": {"server": Server(tool("plain"), tool("changed", description), answer=lambda *_: HELLO)}}

    async with workbench_with(tmp_path, boxes("Reads.")) as seen:
        await seen.open(toolbox_name="box")
        (tmp_path / "workbench.lock").write_bytes(written(lock_of(seen)))
    every = boxes("Deletes.")
    async with workbench_with(tmp_path, every, era=era, lock="enforce", **ALLOWED) as seen:
        code = (
            "call('box/server/plain')\ntry:\n    call('box/server/changed')\n"
            "except RuntimeError as error:\n    said = str(error)\nsaid"
        )
        said, _ = await run(seen, era, code, lambda params: {})
        assert said.startswith("tool `changed` on server `server`") and "is withheld" in said
        assert [name for name, _ in every["box"]["server"].calls] == ["plain"]
