"""The official SDK on both sides of us: its client in either mode, its server in either era, everything interactive.

The SDK judges every message by its own types; what passes here is what people run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.bridge.in_process import ERAS
from tests.support.workbench import workbench_command, write_config

pytestmark = pytest.mark.processes

SERVER = Path(__file__).with_name("sdk_server.py")
# "legacy" shakes hands; "auto" probes, and finds the modern era.
MODES = {"legacy": "legacy", "modern": "auto"}
VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}

every_combination = pytest.mark.parametrize(
    ("client_era", "server_era"), [(client, server) for client in ERAS for server in ERAS]
)
across_eras = pytest.mark.parametrize(("client_era", "server_era"), [("legacy", "modern"), ("modern", "legacy")])


class Answers:
    """What the client's callbacks say, and what they were asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def elicit(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def sample(self, context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append(params)
        content = types.TextContent(type="text", text="hello")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(self, context: object) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///home")])  # type: ignore[arg-type]


@asynccontextmanager
async def connected(
    folder: Path, client_era: str, server_era: str, *flags: str, **options: Any
) -> AsyncIterator[tuple[Client, Answers]]:
    entry = {"command": sys.executable, "args": [str(SERVER)], "protocol": server_era}
    program, *arguments = workbench_command(write_config(folder, {"box": {"server": entry}}), *flags)
    answers = Answers()
    callbacks = {
        "elicitation_callback": answers.elicit,
        "sampling_callback": answers.sample,
        "list_roots_callback": answers.roots,
    }
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    given = {**callbacks, **options}
    async with Client(parameters, mode=MODES[client_era], read_timeout_seconds=30, **given) as client:
        assert client.protocol_version == VERSIONS[client_era]
        yield client, answers


def text(result: types.CallToolResult) -> str:
    assert not result.is_error, result
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def use(tool: str) -> dict[str, Any]:
    return {"tool": {"toolbox": "box", "server": "server", "tool": tool}, "arguments": {}}


@pytest.mark.bridge("call", "question", "parking", "rounds", "page-to-visit", "progress", "capabilities")
@every_combination
async def test_the_sdk_asks_and_answers_through_the_flat_face(tmp_path: Path, client_era: str, server_era: str) -> None:
    async with connected(tmp_path, client_era, server_era, "--face", "flat", "--separator", "__") as (client, answers):
        await client.list_tools()
        result = await client.call_tool("box__server__interview", {})
        assert text(result) == "Ada; hello; ['file:///home']"
        assert len(answers.asked) == 3

        assert text(await client.call_tool("box__server__visit", {})) == "accept"
        assert isinstance(answers.asked[-1], types.ElicitRequestURLParams)

        prompt = await client.get_prompt("box__server__greet", {})
        assert prompt.messages[0].content == types.TextContent(type="text", text="Ada")

        resource = await client.read_resource("greeting://kind")
        assert isinstance(resource.contents[0], types.TextResourceContents)
        assert resource.contents[0].text == "Ada"

        steps: list[float] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        assert text(await client.call_tool("box__server__report", {}, progress_callback=progressed)) == "done"
        assert steps == [1, 2, 3]


@pytest.mark.bridge("question", "parking", "rounds")
@across_eras
async def test_the_sdk_asks_and_answers_through_use_tool(tmp_path: Path, client_era: str, server_era: str) -> None:
    async with connected(tmp_path, client_era, server_era) as (client, answers):
        assert text(await client.call_tool("use_tool", use("interview"))) == "Ada; hello; ['file:///home']"
        assert text(await client.call_tool("use_tool", use("visit"))) == "accept"
        assert len(answers.asked) == 4


@pytest.mark.bridge("capabilities", "reserved-errors")
@across_eras
async def test_a_client_that_cannot_be_asked_is_not(tmp_path: Path, client_era: str, server_era: str) -> None:
    nothing = {"elicitation_callback": None, "sampling_callback": None, "list_roots_callback": None}
    async with connected(tmp_path, client_era, server_era, **nothing) as (client, answers):
        with pytest.raises(Exception, match=r"capability|elicitation") as caught:
            text(await client.call_tool("use_tool", use("interview")))
        assert not isinstance(caught.value, TimeoutError)
        assert answers.asked == []


@pytest.mark.bridge("handshake", "question")
@pytest.mark.parametrize(("client_era", "tool"), [("legacy", "ask_in_the_middle"), ("modern", "ask_and_return")])
async def test_tools_written_for_one_era_work_for_clients_of_that_era(
    tmp_path: Path, client_era: str, tool: str
) -> None:
    async with connected(tmp_path, client_era, "auto") as (client, answers):
        assert text(await client.call_tool("use_tool", use(tool))) == "Ada"
        assert len(answers.asked) == 1
