"""The engine serves without the other parts of the program: over stdio, and over HTTP with a token."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.app.engine_alone import ABSENT, TOKEN
from tests.support.client import Json, RawClient
from tests.support.workbench import scripted_entry, write_config

pytestmark = pytest.mark.processes

INITIALIZE: Json = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "alone", "version": "1"}},
}
ECHO = {"tool": {"toolbox": "box", "server": "second", "tool": "echo"}, "arguments": {"text": "heard"}}


def command(transport: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "tests.app.engine_alone", transport, str(config)]


@contextmanager
def served_over_http(config: Path) -> Iterator[str]:
    with subprocess.Popen(command("http", config), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            assert process.wait(60) == 0


def posted(url: str, token: str | None, message: Json, **headers: str) -> tuple[int, str | None, Json]:
    accepted = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    given = {} if token is None else {"authorization": f"Bearer {token}"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode()
    asked = urllib.request.Request(url, body, {**accepted, **given, **headers})
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            return response.status, response.headers["mcp-session-id"], json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None, json.load(error)


def test_the_absent_parts_are_all_but_the_engine_and_the_composition_root() -> None:
    import mcp_workbench

    found = {path.parent.name for path in Path(mcp_workbench.__file__).parent.glob("*/__init__.py")}
    assert found - {"engine", "app"} == set(ABSENT)
    for part in ABSENT:
        tried = "import sys, tests.app.engine_alone as a; sys.meta_path.insert(0, a.Absent()); import mcp_workbench."
        done = subprocess.run([sys.executable, "-c", tried + part], capture_output=True, text=True)
        assert f"`mcp_workbench.{part}` is absent" in done.stderr


async def test_it_serves_over_stdio(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"first": {"command": "/does/not/exist"}, "second": scripted_entry()}})
    async with RawClient.spawn(command("stdio", config)) as client:
        await client.initialize()
        opened = await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        assert "echo" in json.dumps(opened)
        assert "heard" in json.dumps(await client.call_tool("use_tool", ECHO))


async def test_it_serves_over_http_those_with_the_token(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"first": {"command": "/does/not/exist"}, "second": scripted_entry()}})
    with served_over_http(config) as url:
        for token in (None, "wrong", f"{TOKEN}x"):
            assert posted(url, token, INITIALIZE)[0] == 401
        status, session, _ = posted(url, TOKEN, INITIALIZE)
        assert status == 200 and session is not None
        call: Json = {"method": "tools/call", "params": {"name": "use_tool", "arguments": ECHO}}
        status, _, answer = posted(url, TOKEN, call, **{"mcp-session-id": session})
        assert status == 200 and "heard" in json.dumps(answer["result"])
        assert posted(url, "wrong", call, **{"mcp-session-id": session})[0] == 401
        # One in front of it: it reaches servers over the network, too.
        beyond = {"url": url, "headers": {"authorization": f"Bearer {TOKEN}"}}
        (tmp_path / "front").mkdir()
        front = write_config(tmp_path / "front", {"box": {"first": {"url": url}, "second": beyond}})
        async with RawClient.spawn(command("stdio", front)) as client:
            await client.initialize()
            path = {"toolbox": "box", "server": "second", "tool": "use_tool"}
            assert "heard" in json.dumps(await client.call_tool("use_tool", {"tool": path, "arguments": ECHO}))
            refused = await client.call_tool("use_tool", {"tool": {**path, "server": "first"}, "arguments": ECHO})
            assert refused["isError"] and "401" in json.dumps(refused)
