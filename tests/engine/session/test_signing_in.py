"""From an agent: a call that needs a sign-in shows the page where the client can, and goes on when the user is done."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.signin.authority import Authority, follow, sign_in_setup

pytestmark = pytest.mark.processes

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
USE_TOOL = {"name": "use_tool", "arguments": {"tool": {"toolbox": "box", "server": "files", "tool": "read"}}}


class OAuthClient:
    """A client of a workbench over stdio, raw."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._id = 0

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any]) -> int:
        self._id += 1
        self.send(id=self._id, method=method, params=params)
        return self._id

    async def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            found: dict[str, Any] = json.loads(await self._process.stdout.readline())
            return found

    async def answer(self, id: int) -> dict[str, Any]:
        while (message := await self.read()).get("id") != id or "method" in message:
            pass
        return message

    async def shake_hands(self, capabilities: dict[str, Any], name: str = "test") -> None:
        info = {"name": name, "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info}
        await self.answer(self.ask("initialize", params))
        self.send(method="notifications/initialized")


@contextlib.asynccontextmanager
async def workbench(folder: Path, authority: Authority) -> AsyncIterator[OAuthClient]:
    config = folder / "workbench-config.json"
    server = {"url": authority.url}
    toolbox = {"description": "Files", "mcpServers": {"files": server}}
    config.write_text(json.dumps({"toolboxes": {"box": toolbox}}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config), "--no-cache"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_DATA_HOME": str(folder)},
    )
    try:
        yield OAuthClient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def stamp(capabilities: dict[str, Any]) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }


@pytest.mark.requirement("signin.asked")
async def test_a_legacy_client_is_asked_to_open_the_page_and_its_call_goes_on(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        await client.shake_hands({"elicitation": {"url": {}}})
        call = client.ask("tools/call", USE_TOOL)
        asked = await client.read()
        assert (asked["method"], asked["params"]["mode"]) == ("elicitation/create", "url")
        assert at.authority.origin in asked["params"]["message"]
        client.send(id=asked["id"], result={"action": "accept"})
        await follow(asked["params"]["url"])
        told = await client.read()
        assert told["method"] == "notifications/elicitation/complete"
        assert told["params"]["elicitationId"] == asked["params"]["elicitationId"]
        answer = await client.answer(call)
        assert answer["result"]["content"][0]["text"] == "read it", answer


async def test_signing_in_before_the_client_has_answered_counts(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        await client.shake_hands({"elicitation": {"url": {}}})
        call = client.ask("tools/call", USE_TOOL)
        asked = await client.read()
        await follow(asked["params"]["url"])
        answer = await client.answer(call)
        assert answer["result"]["content"][0]["text"] == "read it", answer


@pytest.mark.requirement("signin.asked")
async def test_a_modern_client_is_answered_with_the_page_and_its_retry_goes_on(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        params = {**USE_TOOL, "_meta": stamp({"elicitation": {"url": {}}})}
        result = (await client.answer(client.ask("tools/call", params)))["result"]
        assert result["resultType"] == "input_required"
        (asked,) = result["inputRequests"].values()
        assert (asked["method"], asked["params"]["mode"]) == ("elicitation/create", "url")
        responses = {"sign-in": {"action": "accept"}}
        retry = client.ask(
            "tools/call", {**params, "inputResponses": responses, "requestState": result["requestState"]}
        )
        # It waits for the user, who takes a moment.
        await follow(asked["params"]["url"])
        answer = await client.answer(retry)
        assert answer["result"]["content"][0]["text"] == "read it", answer


@pytest.mark.requirement("signin.asked")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_user_whom_the_server_refuses_all_the_same_is_not_asked_twice(tmp_path: Path, era: str) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        at.authority.refuses_all = True
        if era == "legacy":
            await client.shake_hands({"elicitation": {"url": {}}})
            call = client.ask("tools/call", USE_TOOL)
            asked = await client.read()
            client.send(id=asked["id"], result={"action": "accept"})
        else:
            params = {**USE_TOOL, "_meta": stamp({"elicitation": {"url": {}}})}
            result = (await client.answer(client.ask("tools/call", params)))["result"]
            (asked,) = result["inputRequests"].values()
            responses = {"inputResponses": {"sign-in": {"action": "accept"}}, "requestState": result["requestState"]}
            call = client.ask("tools/call", {**params, **responses})
        await follow(asked["params"]["url"])
        while (message := await client.read()).get("id") != call:
            assert message["method"] == "notifications/elicitation/complete", "a second question"
        assert message["result"].get("isError") is True, message
        assert "mcp-workbench auth login" in message["result"]["content"][0]["text"]
        assert len(at.authority.authorizations) == 1


async def test_declined_sign_in_returns_the_error_with_the_command(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        await client.shake_hands({"elicitation": {"url": {}}})
        call = client.ask("tools/call", USE_TOOL)
        asked = await client.read()
        client.send(id=asked["id"], result={"action": "decline"})
        result = (await client.answer(call))["result"]
        assert result["isError"]
        assert "declined" in result["content"][0]["text"]
        assert "mcp-workbench auth login files" in result["content"][0]["text"]


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}, {"elicitation": {"form": {}}}])
async def test_a_client_that_opens_no_pages_gets_the_error_with_the_command(
    tmp_path: Path, capabilities: dict[str, Any]
) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        await client.shake_hands(capabilities)
        result = (await client.answer(client.ask("tools/call", USE_TOOL)))["result"]
        assert result["isError"]
        assert "wants you to sign in" in result["content"][0]["text"]
        assert "mcp-workbench auth login files" in result["content"][0]["text"]
        assert at.authority.registrations == []


@pytest.mark.parametrize("name", ["gemini-cli-mcp-client", "opencode"])
async def test_a_client_that_shows_results_alone_gets_the_address_of_the_page_in_one(tmp_path: Path, name: str) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        await client.shake_hands({"roots": {}}, name)
        refused = (await client.answer(client.ask("tools/call", USE_TOOL)))["result"]
        text = refused["content"][0]["text"]
        assert refused["isError"] is True
        assert "ask the user to open http" in text and "then call again" in text and "mcp-workbench auth login" in text
        page = text.partition("ask the user to open ")[2].partition(" ")[0]
        await follow(page)
        # The user is back: the next call goes through.
        result = (await client.answer(client.ask("tools/call", USE_TOOL)))["result"]
        assert not result.get("isError"), result


async def test_an_unknown_client_that_cannot_be_asked_is_told_the_command(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        await client.shake_hands({})
        text = (await client.answer(client.ask("tools/call", USE_TOOL)))["result"]["content"][0]["text"]
        assert "mcp-workbench auth login" in text and "ask the user to open" not in text
