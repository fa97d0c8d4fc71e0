"""The bridge with everything real: the workbench as a command, servers as processes, and both of them ending."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.bridge.in_process import ERAS, EVERYTHING
from tests.end_to_end.harness import Workbench, start_use
from tests.support.client import Json, RawClient
from tests.support.processes import alive, wait_until
from tests.support.workbench import logged, scripted_entry

pytestmark = pytest.mark.processes

ANSWERS: dict[str, Json] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}
QUESTIONS = {"ask": "elicitation/create", "sample": "sampling/createMessage", "roots": "roots/list"}


async def finished(client: RawClient, arguments: Json) -> Json:
    """Call a tool until it is done, answering what a modern client is asked on the way."""
    fields: Json = {}
    while True:
        result = await client.call_tool("use_tool", arguments, **fields)
        if result.get("resultType") != "input_required":
            return result
        answers = {key: ANSWERS[asked["method"]] for key, asked in result["inputRequests"].items()}
        fields = {"requestState": result["requestState"], "inputResponses": answers}


@pytest.mark.bridge("question", "parking", "rounds")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_interactive_calls_in_every_combination(tmp_path: Path, client_era: str, server_era: str) -> None:
    box = {"server": scripted_entry("--era", server_era)}
    async with Workbench(tmp_path).serving({"box": box}, era=client_era, capabilities=EVERYTHING) as client:
        for method, answer in ANSWERS.items():
            client.handlers[method] = lambda params, answer=answer: answer  # type: ignore[misc]
        for tool, method in QUESTIONS.items():
            result = await finished(client, start_use("box", "server", tool))
            assert result["structuredContent"] == {"result": ANSWERS[method]}


@pytest.mark.bridge("parking")
async def test_a_server_that_is_killed_while_its_call_is_parked(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    box = {"server": scripted_entry("--era", "legacy", "--starts", bench.path("starts"))}
    async with bench.serving({"box": box}, era="modern", capabilities=EVERYTHING) as client:
        asked = await client.call_tool("use_tool", start_use("box", "server", "ask"))
        (pid,) = bench.starts()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))
        fields = {"requestState": asked["requestState"], "inputResponses": {}}
        result = await client.call_tool("use_tool", start_use("box", "server", "ask"), **fields)
        # It may be noticed a moment later: then the client is asked again, and told with its next return.
        while result["resultType"] == "input_required":
            fields["requestState"] = result["requestState"]
            result = await client.call_tool("use_tool", start_use("box", "server", "ask"), **fields)
        assert result["isError"] is True
        assert (await finished(client, start_use("box", "server", "ask")))["structuredContent"]
        assert len(bench.starts()) == 2, "started again for the new call alone"


@pytest.mark.bridge("parking")
async def test_a_client_that_leaves_while_its_call_is_parked(tmp_path: Path) -> None:
    log = tmp_path / "log"
    box = {"server": scripted_entry("--era", "legacy", "--log", log)}
    async with Workbench(tmp_path).serving({"box": box}, era="modern", capabilities=EVERYTHING) as client:
        await client.call_tool("use_tool", start_use("box", "server", "ask"))
    answers = [message["result"] for message in logged(log) if "method" not in message]
    assert answers == [{"action": "cancel"}], "the server is told before it is ended"
    assert len(logged(log, "notifications/cancelled")) == 1
