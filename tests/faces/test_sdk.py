"""What the official SDK's client can do against a server of the SDK directly, it can do through each face."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

from mcp_workbench.app.gateway import Options
from mcp_workbench.engine.config.load import load
from tests.faces.harness import ERAS, FACES, Bench
from tests.faces.sdk import SdkGateway, directly, through
from tests.faces.transcript import Transcript, unstamped
from tests.support.workbench import workbench_command

pytestmark = pytest.mark.processes

ERROR_META = "mcp-workbench/error"
SERVER_META = "mcp-workbench/server"


@cache
def without_us(era: str) -> dict[str, Any]:
    """What the client sees of the server itself."""

    async def run() -> dict[str, Any]:
        return await Transcript(directly(era), era, None).run()

    return anyio.run(run)


def compare(seen: dict[str, Any], era: str, server_era: str, face: str) -> None:
    """Field by field; where a face differs on purpose, it says the same in its own way."""
    expected = dict(without_us(era))
    assert set(expected) <= set(seen)
    for step, direct in expected.items():
        if step in ("call rich_error", "call unknown"):
            assert_same_error(seen[step], direct, face)
        elif step == "counts" and server_era == "modern":
            assert seen[step] == direct.replace("'rootsChanged': 1", "'rootsChanged': 0"), (
                "there is no such notification"
            )
        elif step.startswith("asked by"):
            assert [without_attribution(params) for params in seen[step]] == direct, step
        elif face != "flat" and isinstance(direct, dict) and direct.get("isError"):
            # `call …`: the tool's own error, which says where it comes from.
            own, (named, *others) = direct["content"], seen[step]["content"]
            where = f"[box/server/{step.removeprefix('call ')}] "
            assert [{**named, "text": named["text"].removeprefix(where)}, *others] == own, step
            assert named["text"].startswith(where), step
            assert unstamped(seen[step]["_meta"]["mcp-workbench/result"]) == direct, step
        else:
            assert seen[step] == direct, step
    for step in seen.keys() - expected.keys():
        assert step == "log from warning"
        assert [message["level"] for message in seen[step]] == ["error"]


def without_attribution(params: Any) -> Any:
    """What a client was asked, without what says which server asks."""
    if isinstance(params.get("message"), str):
        assert params["message"].startswith("[box/server] ")
        params = {**params, "message": params["message"].removeprefix("[box/server] ")}
    if SERVER_META in (params.get("_meta") or {}):
        meta = {key: value for key, value in params["_meta"].items() if key != SERVER_META}
        params = {key: value for key, value in params.items() if key != "_meta"} | ({"_meta": meta} if meta else {})
    return params


def assert_same_error(seen: Any, direct: Any, face: str) -> None:
    if "-32602" in str(direct["error"]["code"]):
        # Which tools there are, we know ourselves.
        assert seen.get("isError") or seen["error"]["code"] in (-32601, -32602)
    elif face == "flat":
        assert seen == direct
    else:
        assert seen["_meta"][ERROR_META] == direct["error"]
        assert seen["isError"] is True


@pytest.mark.requirement("sdk.same")
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_the_official_client_sees_the_same_through_us(bench: Bench, face: Any, era: str, server_era: str) -> None:
    config = load(
        str(bench.write({"box": {"server": {"command": "sdk", "args": [server_era], "protocol": server_era}}})),
        os.environ,
    )
    gateway = SdkGateway(config, Options(face=face, list_timeout=60))
    # Before a loop runs, because it needs one of its own.
    await anyio.to_thread.run_sync(without_us, era)
    async with gateway.running():
        seen = await Transcript(through(gateway), era, face).run()
    compare(seen, era, server_era, face)


@pytest.mark.requirement("sdk.same")
@pytest.mark.parametrize(("face", "era", "server_era"), [("proxy", "modern", "legacy"), ("flat", "legacy", "modern")])
async def test_and_through_the_command(bench: Bench, face: str, era: str, server_era: str) -> None:
    entry = {"command": sys.executable, "args": ["-m", "tests.support.everything_server", "--era", server_era]}
    config = bench.write({"box": {"server": entry}})
    command, *arguments = workbench_command(config, "--face", face, "--list-timeout", 60)
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    await anyio.to_thread.run_sync(without_us, era)
    seen = await Transcript(stdio_client(parameters), era, face).run()
    compare(seen, era, server_era, face)
