"""What all demo servers share: the two eras, bad input, and a lean start."""

from __future__ import annotations

import subprocess
import sys

import mcp_types as types
import pytest

from tests.cli.demo.sdk import command
from tests.support.client import RawClient, RpcError

SERVERS = ("notes", "clock")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_legacy_revision_is_granted(version: str) -> None:
    async with RawClient.spawn(command("clock")) as client:
        result = types.InitializeResult.model_validate(await client.initialize(version))
        assert result.protocol_version == version
        assert await client.request("ping") == {}
        listed = types.ListToolsResult.model_validate(await client.request("tools/list"))
        assert [tool.name for tool in listed.tools] == ["now", "convert_time", "wait"]


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28"])
async def test_a_revision_without_handshake_is_answered_with_the_newest_that_has_one(version: str) -> None:
    async with RawClient.spawn(command("clock")) as client:
        assert (await client.initialize(version))["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("server", SERVERS)
async def test_discovery_names_versions_capabilities_and_instructions(server: str) -> None:
    async with RawClient.spawn(command(server), modern=True) as client:
        found = types.DiscoverResult.model_validate(await client.discover())
        assert found.supported_versions == ["2026-07-28"]
        assert found.instructions
        assert (found.capabilities.resources is not None) == (server == "notes")


async def test_modern_results_say_their_type_their_server_and_how_long_they_keep() -> None:
    async with RawClient.spawn(command("notes"), modern=True) as client:
        for method, scope in (("tools/list", "public"), ("prompts/list", "public"), ("resources/list", "private")):
            result = await client.request(method)
            assert result["resultType"] == "complete"
            assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "demo-notes"
            assert (result["cacheScope"], type(result["ttlMs"])) == (scope, int)
        called = await client.call_tool("list_notes")
        assert called["resultType"] == "complete"
        assert "ttlMs" not in called


async def test_legacy_results_carry_nothing_of_the_modern_era() -> None:
    async with RawClient.spawn(command("notes")) as client:
        await client.initialize()
        assert set(await client.request("tools/list")) == {"tools"}
        assert set(await client.call_tool("list_notes")) == {"content", "structuredContent"}


async def test_a_request_outside_both_eras_is_refused() -> None:
    async with RawClient.spawn(command("clock")) as client:
        with pytest.raises(RpcError, match="-32602"):
            await client.request("tools/list")
        client.stamp("2099-01-01")
        with pytest.raises(RpcError) as caught:
            await client.request("tools/list")
        assert (caught.value.code, caught.value.data) == (
            -32022,
            {"supported": ["2026-07-28"], "requested": "2099-01-01"},
        )
        client.stamp(clientCapabilities=None)
        with pytest.raises(RpcError, match="clientCapabilities"):
            await client.request("tools/list")
        client.stamp(logLevel="loud")
        with pytest.raises(RpcError, match="Unknown log level"):
            await client.request("tools/list")


async def test_methods_of_the_other_era_are_unknown() -> None:
    async with RawClient.spawn(command("notes")) as client:
        await client.initialize()
        for method in ("server/discover", "subscriptions/listen"):
            with pytest.raises(RpcError, match="-32601"):
                await client.request(method)
        client.stamp()
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
            with pytest.raises(RpcError, match="-32601"):
                await client.request(method)


async def test_a_server_may_serve_both_eras_at_once() -> None:
    async with RawClient.spawn(command("clock")) as client:
        await client.initialize()
        assert "resultType" not in await client.request("tools/list")
        client.stamp()
        assert (await client.request("tools/list"))["resultType"] == "complete"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": ["now"]}),
        ("tools/call", {"name": "now", "arguments": [1]}),
        ("tools/call", {"name": "nothing"}),
        ("tools/list", {"cursor": "2"}),
        ("resources/read", {"uri": 1}),
        ("prompts/get", {"arguments": {}}),
        ("completion/complete", {"ref": 1}),
    ],
)
async def test_parameters_of_the_wrong_shape_are_invalid_params(method: str, params: dict[str, object]) -> None:
    async with RawClient.spawn(command("notes"), modern=True) as client:
        with pytest.raises(RpcError, match="-32602"):
            await client.request(method, params)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{not json\n", -32700),
        (b"\xff\xfe\n", -32700),
        (b"[" * 100_000 + b"\n", -32700),
        (b"[]\n", -32600),
        (b'"text"\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 5, "result": {}}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": [], "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": []}\n', -32600),
    ],
)
async def test_bad_lines_are_answered_and_survived(line: bytes, code: int) -> None:
    async with RawClient.spawn(command("clock")) as client:
        await client.send_bytes(b"\n" + line)
        assert await client.request("ping") == {}
        assert [message["error"]["code"] for message in client.unmatched] == [code]


async def test_a_client_that_stops_listening_is_no_reason_to_complain() -> None:
    async with RawClient.spawn(command("clock")) as client:
        await client.request("ping")
        client.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await client.notify("ping")
        await client.send({"jsonrpc": "2.0", "id": "x", "method": "ping"})
        assert await client.wait_exit() == 0
        assert client.stderr == ""


@pytest.mark.parametrize("server", SERVERS)
async def test_arguments_that_are_not_understood_end_the_server_with_its_usage(server: str) -> None:
    async with RawClient.spawn(command(server, "--no-such-flag")) as client:
        assert await client.wait_exit() == 2
        await client.wait_for(lambda: f"usage: python -m mcp_workbench.cli.demo.{server}" in client.stderr, "usage")


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_starts_with_little_more_than_json_and_sys(server: str) -> None:
    program = f"import sys; import mcp_workbench.cli.demo.{server}; print(*sys.modules, sep='\\n')"
    # -S: whatever the environment's site packages import at start is not our doing.
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("mcp_workbench")}
    shared = {"cli", "cli.demo", "cli.demo.stdio_server"}
    assert ours == {"mcp_workbench", *(f"mcp_workbench.{name}" for name in (*shared, f"cli.demo.{server}"))}
    assert not {"typing", "argparse", "asyncio", "ast", "datetime", "zoneinfo", "subprocess", "msgspec"} & set(loaded)
