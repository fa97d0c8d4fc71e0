"""What a modern server asks during a call of a list, asked of the client within its own call."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.session.relayed_inputs import answers_to, read_input_needed
from tests.faces.harness import ERAS
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

every_client = pytest.mark.parametrize("era", ERAS)
ASK: Json = {"elicitation": {}}


class Asking(Server):
    """A modern server that asks for a name before it answers, as often as `rounds` says."""

    def __init__(self, rounds: int = 1, method: str = "elicitation/create", **settings: Any) -> None:
        super().__init__(tool("greet"), tool("plain"), protocol="modern", **settings)
        self._rounds = rounds
        self._method = method
        self.others = {"tools/call": self._call}
        self.done: list[str] = []

    def _call(self, params: Json) -> Json:
        number = params.get("arguments", {}).get("n", 0)
        if params["name"] == "plain":
            return {"resultType": "complete", "content": [{"type": "text", "text": "plain"}]}
        given = int(params.get("requestState", "0"))
        if given < self._rounds:
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            asked = {"method": self._method, "params": {"message": f"Who is {number}?", "requestedSchema": schema}}
            return {"resultType": "input_required", "inputRequests": {"who": asked}, "requestState": str(given + 1)}
        name = params["inputResponses"]["who"].get("content", {}).get("name", "nobody")
        self.done.append(name)
        return {"resultType": "complete", "content": [{"type": "text", "text": f"hello {name}"}]}


async def greet(seen: ConnectedClient, era: str, calls: list[Json], answer: Json) -> tuple[list[Any], list[str]]:
    """The answers of a list of calls, and what was asked meanwhile."""
    asked: list[str] = []

    def reply(params: Json) -> Json:
        asked.append(params["message"])
        return answer

    call: Json = {"name": "use_tool", "arguments": {"calls": calls}}
    if era == "legacy":
        seen.client.handlers["elicitation/create"] = reply
        result = await seen.client.request("tools/call", call)
    else:
        result = await seen.client.request("tools/call", call)
        while result["resultType"] == "input_required":
            answers = {key: reply(each["params"]) for key, each in result["inputRequests"].items()}
            retry = {"inputResponses": answers, "requestState": result["requestState"]}
            result = await seen.client.request("tools/call", {**call, **retry})
    return json.loads(text_of(result)), asked


GREET = [{"tool": "box/server/greet", "arguments": {"n": n}} for n in range(3)]
PLAIN = {"tool": "box/server/plain"}


@every_client
@pytest.mark.parametrize("rounds", [1, 3])
async def test_each_call_of_a_list_asks_and_goes_on(tmp_path: Path, era: str, rounds: int) -> None:
    server = Asking(rounds)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, abilities=ASK) as seen:
        answer = {"action": "accept", "content": {"name": "Ada"}}
        said, asked = await greet(seen, era, [*GREET, PLAIN], answer)
        assert said == ["hello Ada"] * 3 + ["plain"]
        assert len(asked) == 3 * rounds
        # Each question names who asks.
        assert all("box/server" in each and "Who is" in each for each in asked)
        assert server.done == ["Ada"] * 3


@every_client
async def test_a_client_that_cannot_be_asked_gets_an_error_in_its_place(tmp_path: Path, era: str) -> None:
    server = Asking()
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era) as seen:
        said, _ = await greet(seen, era, [GREET[0], PLAIN], {})
        assert "elicitation" in said[0]["error"]
        assert said[1] == "plain"
        assert server.done == []


@every_client
async def test_a_server_that_may_not_ask_is_refused(tmp_path: Path, era: str) -> None:
    server = Asking(ask=False)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, abilities=ASK) as seen:
        said, asked = await greet(seen, era, [GREET[0], PLAIN], {"action": "accept", "content": {}})
        assert "may not ask" in said[0]["error"]
        assert said[1] == "plain"
        assert asked == server.done == []


async def test_a_server_that_never_stops_asking_is_an_error(tmp_path: Path) -> None:
    server = Asking(rounds=1_000)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era="modern", abilities=ASK) as seen:
        said, asked = await greet(seen, "modern", [GREET[0], PLAIN], {"action": "accept", "content": {"name": "x"}})
        assert "asked 16 times" in said[0]["error"]
        assert len(asked) == 16


@every_client
async def test_a_call_that_requires_nothing_in_particular_is_not_made_again(tmp_path: Path, era: str) -> None:
    server = Asking()
    made: list[Json] = []

    def call(params: Json) -> Json:
        made.append(params)
        return {"resultType": "input_required"}

    server.others["tools/call"] = call
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, abilities=ASK) as seen:
        (said,), asked = await greet(seen, era, GREET[:1], {"action": "accept"})
        assert "does not say which" in said["error"] and asked == []
    assert len(made) == 1


async def test_questions_of_a_call_that_is_cancelled_are_withdrawn() -> None:
    class Asked:
        """The client's own call, which goes on."""

        def __init__(self) -> None:
            self.route = SimpleNamespace(entry=SimpleNamespace(label="box/server", config=ServerConfig(name="server")))
            self.open: set[bytes] = set()
            self.notes: list[bool] = []

        def relay_request(self, asker: object, id: bytes, method: str, params: Raw) -> bool:
            self.open.add(id)
            return True

        def relay_cancel(self, asker: object, id: bytes, params: Raw) -> None:
            self.open.remove(id)

        def note_question(self, is_open: bool) -> None:
            self.notes.append(is_open)

    asked: Any = Asked()
    needed = read_input_needed(Raw(b'{"inputRequests":{"a":{"method":"m"},"b":{"method":"m"}}}'))
    waiting = asyncio.ensure_future(answers_to(asked, asked, needed))
    await asyncio.sleep(0)
    assert asked.open == {b'"a"', b'"b"'}
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asked.notes == [True, False]
    assert asked.open == set()
