"""Clients of the Node world talk to the workbench over HTTP: the official inspector, and the TypeScript SDK.

The workbench is a process of its own, as its users start it; so are the clients. Behind it is the scripted server,
whose answers hold what middlemen like to lose.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http_clients.node_programs import Missing, NodePrograms, install
from tests.support.workbench import workbench_command

pytestmark = [pytest.mark.node, pytest.mark.network, pytest.mark.timeout(400)]

TEXT = "grüß dich, 你好"
TOOL = "box:server:echo"
EXIT_TIMEOUT = 30.0

# What every line of the SDK is asked to do; how its client is made comes before it.
CONVERSATION = """
await client.connect(transport);
const told = {};
told.version = transport.protocolVersion ?? client.getNegotiatedProtocolVersion();
told.tools = (await client.listTools()).tools.map((tool) => tool.name);
told.called = await client.callTool({ name: "box:server:echo", arguments: { text: process.argv[3] } });
told.resources = (await client.listResources()).resources;
told.read = await client.readResource({ uri: told.resources[0].uri });
try {
  await client.readResource({ uri: "kept:///nowhere" });
} catch (error) {
  told.error = { code: error.code, message: error.message };
}
await client.close();
console.log(JSON.stringify(told));
"""
FIRST_LINE = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const client = new Client({ name: "test", version: "1.0.0" });
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
"""
SECOND_LINE = """
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
const client = new Client({ name: "test", version: "1.0.0" }, { versionNegotiation: { mode: MODE } });
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
"""


@pytest.fixture(scope="session")
def node_programs() -> NodePrograms:
    try:
        return install()
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def url(
    node_programs: NodePrograms, scripted: Callable[..., dict[str, Any]], write_config: Callable[..., Path]
) -> Iterator[str]:
    """The address of a workbench that shows one server flat."""
    config = write_config({"box": {"server": scripted("--offers", "kept")}})
    command = workbench_command(config, "--face", "flat", "--http", "127.0.0.1:0", "--no-token")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            found = re.search(r"http://\S+", said)
            assert found, said
            yield found[0]
        finally:
            process.terminate()
            process.communicate(timeout=EXIT_TIMEOUT)


@pytest.fixture(params=["legacy", "modern"])
def inspect(
    request: pytest.FixtureRequest, node_programs: NodePrograms, url: str, tmp_path: Path
) -> Callable[..., Any]:
    """`inspect("tools/list")` is what the inspector prints."""

    def run(method: str, *arguments: str) -> Any:
        flags = ("--transport", "http", "--protocol-era", request.param, "--method", method, *arguments)
        done = node_programs.inspector(tmp_path, url, *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_inspector_lists_tools_and_calls_one(inspect: Callable[..., Any]) -> None:
    assert TOOL in [tool["name"] for tool in inspect("tools/list")["tools"]]
    called = inspect("tools/call", "--tool-name", TOOL, "--tool-arg", f"text={TEXT}")
    assert called["structuredContent"] == {"text": TEXT}
    assert called["_meta"]["example.test/echo"] == "echo"


def test_the_inspector_lists_resources_and_reads_one(inspect: Callable[..., Any]) -> None:
    listed = [resource["uri"] for resource in inspect("resources/list")["resources"]]
    first = next(uri for uri in listed if uri.endswith("/one"))
    [contents] = inspect("resources/read", "--uri", first)["contents"]
    assert contents["uri"] == first
    assert contents["text"] == "kept:///one of kept"


# The second line of the SDK takes -32002 with a URI for what is -32602 today, whoever said it.
@pytest.mark.parametrize(
    ("beginning", "version", "not_found"),
    [
        pytest.param(FIRST_LINE, "2025-11-25", -32002, id="sdk-1"),
        pytest.param(SECOND_LINE.replace("MODE", '"legacy"'), "2025-11-25", -32602, id="sdk-2-legacy"),
        pytest.param(SECOND_LINE.replace("MODE", '"auto"'), "2026-07-28", -32602, id="sdk-2-auto"),
        pytest.param(SECOND_LINE.replace("MODE", '{ pin: "2026-07-28" }'), "2026-07-28", -32602, id="sdk-2-modern"),
    ],
)
def test_the_typescript_sdk_lists_calls_reads_and_is_told_of_errors(
    beginning: str, version: str, not_found: int, node_programs: NodePrograms, url: str, tmp_path: Path
) -> None:
    done = node_programs.script(beginning + CONVERSATION, tmp_path, url, TEXT)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["version"] == version
    assert TOOL in told["tools"]
    assert told["called"]["structuredContent"] == {"text": TEXT}
    first = told["resources"][0]
    assert first["name"] == "one"
    assert first["annotations"]["priority"] == 0.5
    assert told["read"]["contents"][0]["text"] == "kept:///one of kept"
    assert told["error"]["code"] == not_found
