"""Logs: beside the protocol, never in it, and without secrets."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.harness import Workbench, error_text, open_toolbox
from tests.support.client import CLIENT_INFO
from tests.support.workbench import scripted_entry

SECRET = "hunter2-is-my-very-secret-token"


@pytest.mark.requirement("cli.serve")
async def test_stderr_of_servers_is_logged_on_request(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--stderr", "hello from the server")}
    for flags, shown in (((), False), (("--debug",), True)):
        async with workbench.serving({"box": box}, *flags) as client:
            await open_toolbox(client, "box")
            await client.use_tool("box", "server", "stderr", {"text": "a line\n"})
            client.close_stdin()
            assert await client.wait_exit() == 0
            assert client.garbage == []
        assert ("[box/server] stderr: hello from the server" in client.stderr) == shown
        assert ("[box/server] stderr: a line" in client.stderr) == shown


@pytest.mark.requirement("cli.serve")
async def test_a_log_file_takes_everything_as_text_or_as_json_lines(workbench: Workbench) -> None:
    box = {"server": scripted_entry()}
    for format in ("text", "json"):
        file = workbench.path(f"log.{format}")
        flags = ("--debug", "--log-file", file, "--log-format", format)
        async with workbench.serving({"box": box}, *flags) as client:
            await open_toolbox(client, "box")
            await client.use_tool("box", "server", "crash", {"stderr": "last words\n"})
        assert client.stderr == ""
        lines = file.read_text().splitlines()
        assert any("[box/server]" in line and "ready" in line for line in lines)
        if format == "json":
            entries = [json.loads(line) for line in lines]
            assert all({"time", "level", "message"} <= entry.keys() for entry in entries)
            assert any(entry["level"] == "warning" and "last words" in entry["message"] for entry in entries)


@pytest.mark.requirement("config.secrets")
async def test_secrets_of_the_configuration_are_neither_logged_nor_quoted(workbench: Workbench) -> None:
    """The server prints what it was given, as careless servers do; nobody else should read it."""
    box = {"server": scripted_entry("--stderr", f"starting with {SECRET}", env={"API_TOKEN": SECRET})}
    async with workbench.serving({"box": box}, "--debug") as client:
        await open_toolbox(client, "box")
        found = await client.use_tool("box", "server", "env", {"name": "API_TOKEN"})
        assert found["structuredContent"]["value"] == SECRET, "the server itself has it, and its results are its own"
        text = error_text(await client.use_tool("box", "server", "crash", {"stderr": f"cannot log in with {SECRET}\n"}))
        assert "cannot log in with" in text
        assert SECRET not in text
        client.close_stdin()
        await client.wait_exit()
    assert "cannot log in with" in client.stderr
    assert SECRET not in client.stderr


@pytest.mark.requirement("errors.protocol", "cli.serve")
async def test_requests_and_calls_are_logged_with_debug_and_without_their_arguments(workbench: Workbench) -> None:
    for flags, shown in (((), False), (("--debug",), True)):
        async with workbench.serving(
            {"box": {"other": scripted_entry(), "server": scripted_entry()}}, *flags
        ) as client:
            await open_toolbox(client, "box")
            await client.use_tool("box", "server", "echo", {"private": "not for the log"})
            await client.request("tools/list")
            client.close_stdin()
            assert await client.wait_exit() == 0
        for said in (
            "→ tools/call `use_tool` (id ",
            "← box/server/echo (id ",
            "→ tools/list (id ",
            "← tools/list (id ",
        ):
            assert (said in client.stderr) == shown, client.stderr
        assert "not for the log" not in client.stderr


@pytest.mark.requirement("errors.protocol")
async def test_protocol_errors_of_clients_are_logged_with_the_client(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"other": scripted_entry(), "server": scripted_entry()}}) as client:
        await client.send_bytes(
            b'{"jsonrpc":"1.0","id":7,"method":"tools/list"}\n{"jsonrpc":"2.0","id":8,"method":"x/y"}\n'
        )
        await client.wait_for(lambda: len(client.unmatched) == 2, "two refusals")
        client.close_stdin()
        assert await client.wait_exit() == 0
    name = CLIENT_INFO["name"]
    assert f'WARNING [{name} stdio] a message (id 7) is refused with -32600: `jsonrpc` must be "2.0"' in client.stderr
    assert f"INFO    [{name} stdio] x/y (id 8) is refused with -32601: method `x/y` is not supported" in client.stderr
