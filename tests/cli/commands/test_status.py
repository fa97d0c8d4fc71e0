"""What people see of the workbenches that are running."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cli.commands import status
from mcp_workbench.cli.screen import Screen
from mcp_workbench.engine.observe import status_socket
from mcp_workbench.engine.observe.status_socket import reports
from tests.cli.in_process import command
from tests.cli.shell import Done, run
from tests.support.client import RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config

SERVER = {
    "toolbox": "box",
    "server": "good",
    "state": "ready",
    "tools": 3,
    "uptimeSeconds": 75.2,
    "starts": 2,
    "failures": 1,
    "lastError": "the server exited with status 3\nlast lines of its stderr:\n  \x1b[31mred",
    "lastErrorSecondsAgo": 3700.0,
    "callsInFlight": 4,
    "bytesReceived": 5 * 1024 * 1024,
    "bytesSent": 900,
}
UNUSED = {
    **SERVER,
    "server": "other",
    "state": "configured",
    "tools": None,
    "uptimeSeconds": None,
    "starts": 0,
    "lastError": None,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_none_is_running_that_is_reported(tmp_path: Path) -> None:
    done = run("status", env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert done == Done(0, "No workbench is running.\n", "")
    assert run("status", "--json", env={"XDG_RUNTIME_DIR": str(tmp_path)}).stdout == "[]\n"


def test_one_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_socket, "LOCAL_ANSWER_TIMEOUT", 0.05)
    with tempfile.TemporaryDirectory(prefix="wb-") as runtime, socket.socket(socket.AF_UNIX) as hanging:
        folder = Path(runtime) / f"mcp-workbench-{os.getuid()}"
        folder.mkdir(mode=0o700)
        hanging.bind(str(folder / "4711.sock"))
        hanging.listen()
        done = command(monkeypatch, "status", env={"XDG_RUNTIME_DIR": runtime})
    assert done == Done(0, "process 4711 does not answer; kill -9 4711 ends it\n", "")


def test_every_server_has_a_line_and_its_last_error_says_when() -> None:
    stream = io.StringIO()
    found = {"pid": 7, "serving": "stdio", "face": "proxy", "uptimeSeconds": 80.0, "config": "/c.json"}
    found["servers"] = [SERVER, UNUSED]
    status._show(Screen(stream), found)
    first, header, good, error, other = stream.getvalue().splitlines()
    assert first == "process 7, stdio, face proxy, up 1 min 20 s: /c.json"
    assert header.split() == "TOOLBOX/SERVER STATE UP TOOLS IN FLIGHT STARTS FAILURES RECEIVED SENT".split()
    assert good.split() == "box/good ready 1 min 15 s 3 4 2 1 5 MiB 900 B".split()
    assert other.split()[:2] == ["box/other", "unused"]
    assert error == "    the server exited with status 3 (1 h 1 min ago)"


def shown(found: dict[str, Any], stream: io.StringIO | None = None) -> list[str]:
    stream = stream or io.StringIO()
    status._show(Screen(stream), {"pid": 7, "face": "proxy", "uptimeSeconds": 1.0, "config": "/c.json", **found})
    return stream.getvalue().splitlines()


CLIENTS = [
    {"pid": pid, "name": name, "folder": "/a", "config": "/c", "face": "proxy", "callsInFlight": 0,
     "connectedSeconds": 1.0}
    for pid, name in ((11, "claude-code"), (12, None), (13, "codex"))
]  # fmt: skip
FINE = {**SERVER, "lastError": None, "share": "project", "folder": "/a", "users": []}


def in_short(*found: dict[str, Any], stream: io.StringIO | None = None) -> list[str]:
    stream = stream or io.StringIO()
    whole = [{"pid": 7, "face": "proxy", "uptimeSeconds": 1.0, "config": "/c.json", **each} for each in found]
    status.show_short(Screen(stream), whole)
    return stream.getvalue().splitlines()


def test_by_default_each_server_has_a_row_without_empty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    idle = {**UNUSED, "callsInFlight": 0}
    servers = [{**SERVER, "callsInFlight": 0}, {**SERVER, "callsInFlight": 0, "user": "bob"}, idle]
    assert in_short(
        {"serving": "shared", "clients": CLIENTS, "servers": servers},
        {"pid": 8, "config": "/home/me/work/bench.json", "servers": [idle]},
        {"pid": 9, "serving": "http", "clientNames": ["cursor"], "servers": []},
    ) == [
        "process 7, shared, up 1 s: claude-code, 12, codex",
        "  TOOLBOX/SERVER  STATE            UP  TOOLS",
        "  box/good        2 ready  1 min 15 s      3",
        "  box/other       unused",
        "",
        "process 8, up 1 s: ~/work/bench.json",
        "  TOOLBOX/SERVER  STATE",
        "  box/other       unused",
        "",
        "process 9, http, up 1 s: cursor",
        "  no server",
    ]  # fmt: skip


def test_sandboxes_are_shown_where_one_is_not_the_default() -> None:
    usual, other = {"profile": "guard", "missing": []}, {"profile": "contained", "missing": []}
    servers = [{**SERVER, "callsInFlight": 0, "sandbox": usual}, {**UNUSED, "callsInFlight": 0, "sandbox": other}]
    assert in_short({"servers": servers})[1:] == [
        "  TOOLBOX/SERVER  STATE           UP  TOOLS  SANDBOX",
        "  box/good        ready   1 min 15 s      3  guard",
        "  box/other       unused                     contained",
    ]
    assert "SANDBOX" not in in_short({"servers": servers[:1]})[1]


def test_attention_lines_come_before_the_servers() -> None:
    waiting = {"id": "3f9c", "principal": "alice", "call": "box/good/drop", "arguments": '{"a":1}', "secondsLeft": 61}
    signed_out = {**FINE, "state": "needs sign-in"}
    broken = {**SERVER, "server": "bad", "state": "failed", "nextStep": "install it first"}
    lines = in_short(
        {"servers": [broken]},
        {"pid": 8, "serving": "shared", "clients": [], "approvals": [waiting], "servers": [signed_out]},
    )
    assert lines[:10] == [
        "Needs you",
        "  box/bad does not work",
        "    the server exited with status 3 (1 h 1 min ago)",
        "    what it wrote: mcp-workbench top",
        "    install it first",
        "  approve box/good/drop for alice, 1 min 1 s left",
        '    it will be sent as {"a":1}',
        "    mcp-workbench team approve 3f9c",
        "  sign in to box/good",
        "    mcp-workbench auth login box/good",
    ]
    assert lines[10] == "" and lines[11].startswith("process 7") and "no client is connected" in lines[15]


def test_on_a_terminal_no_line_is_wider_than_it_but_a_command_that_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    long = {**SERVER, "server": "long" * 20, "state": "failed", "lastError": "no program " * 20}
    lines = in_short({"serving": "shared", "servers": [SERVER, long]}, stream=Terminal())
    command = f"    mcp-workbench logs box/{'long' * 20}"
    assert command in lines and all(len(line) <= 80 for line in lines if line != command)


def test_copies_of_a_server_are_one_row_with_their_sums() -> None:
    servers = [
        {**FINE, "server": "other", "state": "known", "starts": 0, "tools": 2, "uptimeSeconds": None},
        {**FINE, "users": [11, 12]},
        {**FINE, "server": "other", "state": "known", "starts": 0, "tools": 2, "uptimeSeconds": None},
        {**FINE, "folder": "/b", "users": [13], "uptimeSeconds": 120.0, "tools": 5},
        # Configured for a third folder, where nobody has used it: no copy.
        {**FINE, "folder": "/c", "state": "known", "starts": 0, "uptimeSeconds": None},
    ]
    other, good, *places = shown({"servers": servers, "clients": CLIENTS})[6:]
    assert other.split()[:3] == ["box/other", "unused", "2"]
    assert good.split() == "box/good 2 ready 2 min 5 12 4 3 15 MiB 2 KiB".split()
    assert places == [
        "    1 ready in /a (share: project): used by claude-code (11), 12",
        "    1 ready in /b (share: project): used by codex (13)",
    ]


def test_equal_copies_are_counted_and_an_error_stands_once() -> None:
    failed = {**SERVER, "state": "failed", "uptimeSeconds": None}
    servers = [
        {**FINE, "user": "bob", "folder": None, "share": None, "users": None, "clientNames": ["cursor"]},
        *({**failed, "user": "alice", "lastErrorSecondsAgo": ago} for ago in (70.0, 9.0)),
        {**failed, "user": "carol", "lastError": "no such program"},
    ]
    good, *details = shown({"servers": servers})[2:]
    assert good.split()[:5] == ["box/good", "1", "ready,", "3", "failed"]
    assert details == [
        "    1 ready for bob: used by cursor",
        "    2 failed for alice",
        "    1 failed for carol",
        "    the server exited with status 3 (2 copies, 9 s ago)",
        "    no such program (1 h 1 min ago)",
    ]


def test_on_a_terminal_details_stand_below_their_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    long = {**SERVER, "server": "long" * 20, "lastError": "\x1b[2Jno\nmore"}
    header, first, reason, *second = shown({"servers": [SERVER, long]}, Terminal())[1:]
    assert header.split()[0] == "toolbox/server" and first.split()[:2] == ["box/good", "ready"]
    assert reason == "    the server exited with status 3 (1 h 1 min ago)"
    assert "".join(line.split()[0] for line in second[:-1]) == "box/" + "long" * 20
    assert second[-1].strip() == "\\x1b[2Jno (1 h 1 min ago)" and all(len(line) <= 80 for line in second)


def test_item_withheld_in_several_copies_is_named_once() -> None:
    withheld: list[dict[str, Any]] = [
        {},
        {"tools": ["write"]},
        {"tools": ["add", "write"], "instructions": ["instructions"]},
    ]
    assert shown({"servers": [{**FINE, "withheld": each, "folder": None} for each in withheld]})[3:] == [
        "    withheld tools: add, write (mcp-workbench team lock diff)",
        "    withheld instructions (mcp-workbench team lock diff)",
    ]


def test_on_a_narrow_terminal_folders_of_clients_stand_below_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    clients = [{**CLIENTS[0], "folder": "/one"}, {**CLIENTS[2], "folder": "/" + "long" * 8}]
    header, *lines = shown({"serving": "shared", "clients": clients, "servers": []}, Terminal())[1:5]
    assert header.split() == "client name face in flight connected".split()
    assert [lines[0].split()[:2], lines[1]] == [["11", "claude-code"], "    in /one, with /c"]
    assert lines[2].split()[:2] == ["13", "codex"]
    monkeypatch.setenv("COLUMNS", "200")
    # Without a height, rich takes 80 columns for a terminal of this kind.
    monkeypatch.setenv("LINES", "24")
    wide = shown({"serving": "shared", "clients": clients, "servers": []}, Terminal())
    assert wide[1].split()[-2:] == ["folder", "configuration"] and wide[2].split()[-2:] == ["/one", "/c"]


def test_the_client_of_a_workbench_with_one_is_named() -> None:
    assert shown({"serving": "stdio", "clientNames": ["codex"], "servers": []})[0] == (
        "process 7, stdio, codex, face proxy, up 1 s: /c.json"
    )


@pytest.mark.requirement("team.approval")
def test_calls_that_wait_for_an_approval_are_shown_with_how_to_allow_them() -> None:
    stream = io.StringIO()
    arguments = '{"a":"' + "b" * 300 + '"}'
    waiting = {"id": "3f9c", "principal": "alice", "call": "box/good/drop", "arguments": arguments, "secondsLeft": 61}
    found = {
        "pid": 7,
        "face": "proxy",
        "uptimeSeconds": 1.0,
        "config": "/c.json",
        "servers": [],
        "approvals": [waiting],
    }
    status._show(Screen(stream), found)
    assert [line.strip() for line in stream.getvalue().splitlines()[1:4]] == [
        "approve box/good/drop for alice, 1 min 1 s left",
        f"it will be sent as {arguments}",
        "mcp-workbench team approve 3f9c",
    ]


def test_a_workbench_of_another_version_is_shown_as_far_as_it_says_things() -> None:
    assert reports({1: b"not json", 2: b'{"pid": 1}'}) == []
    older = {key: value for key, value in SERVER.items() if key != "lastErrorSecondsAgo"}
    stream = io.StringIO()
    status._show(Screen(stream), {"pid": 7, "face": "flat", "uptimeSeconds": 1, "config": "c", "servers": [older]})
    assert stream.getvalue().endswith("\n    the server exited with status 3\n")


def test_on_a_narrow_terminal_the_most_important_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    found = {"pid": 7, "face": "flat", "uptimeSeconds": 1, "config": "c", "servers": [SERVER, UNUSED]}
    stream = Terminal()
    status._show(Screen(stream), found)
    _, header, good, *_ = stream.getvalue().splitlines()
    assert header.split() == "toolbox/server state up tools in flight failures".split()
    assert good.split() == "box/good ready 1 min 15 s 3 4 1".split()


async def test_a_workbench_is_found_before_it_has_started_a_server(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry()}})
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    async with RawClient.spawn(workbench_command(config), env={**os.environ, **env}) as client:
        await client.initialize()
        async with asyncio.timeout(30):
            # On a busy machine it may take longer to answer than `status` waits ("process … does not answer").
            while " stdio, " not in (shown := await asyncio.to_thread(run, "status", env=env)).stdout:
                await asyncio.sleep(0.1)
        first, header, second = shown.stdout.splitlines()
        assert first.endswith(": raw-client") and header.split() == ["TOOLBOX/SERVER", "STATE"]
        assert second.split() == ["box/one", "unused"]
        long = await asyncio.to_thread(run, "status", "--long", env=env)
        assert ", stdio, raw-client, face proxy, " in long.stdout and "\n  no server started yet\n" in long.stdout
    assert not list((tmp_path / f"mcp-workbench-{os.getuid()}").iterdir())
