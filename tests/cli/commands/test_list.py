from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from mcp_workbench.engine.catalog.manifests import ManifestStore, default_folder, manifest_key
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.downstream.server_run import offered_over_http
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.protocol.handshake import ServerProfile
from tests.cli.in_process import command, run
from tests.cli.shell import Done
from tests.support.workbench import scripted_entry, write_config

TOOLBOXES = {
    "desk": {
        "description": "Everyday things",
        "mcpServers": {
            "notes": {"command": "notes-server", "args": ["--file", "my notes.txt"]},
            "clock": {"command": "clock", "toolFilters": ["now", "!wait"]},
        },
    },
    "team": {
        "description": "Tickets",
        "mcpServers": {
            "tickets": {"url": "https://example.com/mcp?key=abcd1234", "toolFilters": []},
            "old": {"command": "old", "disabled": True},
        },
    },
}


def test_secrets_among_arguments_are_hidden(tmp_path: Path) -> None:
    args = [
        "run",
        "-e",
        "API_TOKEN=hunter2hunter2",
        "--api-key",
        "hunter3hunter3",
        "postgres://ada:hunter4@db/x",
        "image",
    ]
    config = write_config(tmp_path, {"desk": {"description": "d", "mcpServers": {"x": {"command": "d", "args": args}}}})
    for words in ([], ["--json"]):
        done = run("list", config, *words)
        assert done.status == 0 and "API_TOKEN=***" in done.stdout and "hunter" not in done.stdout, done


def test_toolboxes_and_servers_are_shown_as_they_are_configured(tmp_path: Path) -> None:
    assert run("list", write_config(tmp_path, TOOLBOXES)) == Done(
        0,
        "desk  Everyday things\n"
        "  notes  stdio  ? tools  notes-server --file 'my notes.txt'\n"
        "  clock  stdio  ? tools  clock  (only: now, !wait)\n"
        "\n"
        "team  Tickets\n"
        "  tickets  auto  ? tools  https://example.com/mcp?key=***  (only: none)\n"
        "\n"
        "disabled in the configuration: team/old\n",
        "",
    )


def test_the_same_as_json(tmp_path: Path) -> None:
    config = write_config(tmp_path, TOOLBOXES)
    status, shown, complaints = run("list", "--json", config)
    assert (status, complaints) == (0, "")
    assert json.loads(shown) == {
        "config": str(config),
        "toolboxes": [
            {
                "name": "desk",
                "description": "Everyday things",
                "servers": [
                    {
                        "name": "notes",
                        "transport": "stdio",
                        "command": "notes-server",
                        "args": ["--file", "my notes.txt"],
                        "tools": None,
                    },
                    {
                        "name": "clock",
                        "transport": "stdio",
                        "command": "clock",
                        "args": [],
                        "toolFilters": ["now", "!wait"],
                        "tools": None,
                    },
                ],
            },
            {
                "name": "team",
                "description": "Tickets",
                "servers": [
                    {
                        "name": "tickets",
                        "transport": "auto",
                        "url": "https://example.com/mcp?key=***",
                        "toolFilters": [],
                        "tools": None,
                    }
                ],
            },
        ],
        "disabled": ["team/old"],
    }


def test_secrets_in_a_command_line_are_hidden_also_where_it_is_quoted(tmp_path: Path) -> None:
    entry = {"command": "server", "args": ["--key", "${SECRET_KEY}", "it's ${SECRET_KEY}"]}
    config = write_config(tmp_path, {"box": {"a": entry}})
    status, shown, _ = run("list", config, env={"SECRET_KEY": "it's a secret"})
    assert status == 0
    assert "server --key '***'" in shown
    assert "a secret" not in shown


def test_a_plain_file_is_one_toolbox(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}')
    status, shown, _ = run("list", path)
    assert status == 0
    assert shown.splitlines()[0].startswith("default  ")
    assert "  time  stdio  ? tools  uvx mcp-server-time" in shown


def test_names_are_shown_as_clients_see_them_of_servers_that_are_known(tmp_path: Path) -> None:
    boxes = {
        "a": {"one": scripted_entry("--tool-names", "x,y")},
        "b": {"two": scripted_entry("--tool-names", "x"), "three": {"command": "no-such-program"}},
    }
    path = write_config(tmp_path, boxes, separator="__")
    unknown = "note: not including a/one, b/two, b/three, not listed yet; --connect lists them\n"
    assert run("list", "--face", "flat", path) == Done(0, "", unknown)
    status, _, warnings = run("list", "--connect", path)
    assert status == 1
    assert warnings.startswith("warning: b/three: command `no-such-program` was not found")
    assert run("list", "--face", "flat", path).stdout.split() == ["a__one__x", "a__one__y", "b__two__x"]
    assert run("list", "--face", "flat", "--separator", "+", path).stdout.split() == ["a+one+x", "a+one+y", "b+two+x"]
    assert run("list", "--face", "flat", "--no-prefix", path).stdout.split() == ["a__one__x", "y", "b__two__x"]
    assert run("list", "--face", "proxy", path) == Done(0, "open_toolbox\nuse_tool\n", "")
    assert json.loads(run("list", "--face", "dynamic", "--json", path).stdout) == {
        "face": "dynamic",
        "tools": ["open_toolbox", "a__one_x", "a__one_y", "b__two_x"],
        "unknown": ["b/three"],
    }
    assert run("list", "--face", "round", path).status == 2


def test_one_tool_is_one_and_the_transport_is_the_one_that_was_found(tmp_path: Path) -> None:
    boxes = {"box": {"one": scripted_entry("--tool-names", "x"), "old": {"url": "http://127.0.0.1:9/sse"}}}
    path = write_config(tmp_path, boxes)
    run("list", "--connect", path)
    shown = run("list", path).stdout
    assert "  one  stdio  1 tool   " in shown
    assert "  old  auto   ? tools  " in shown

    old = ServerConfig(name="old", url="http://127.0.0.1:9/sse", transport="auto")
    offer = asyncio.run(offered_over_http("box/old", Offer(ServerProfile("legacy", "2024-11-05")), _OldLink()))
    ManifestStore(default_folder).save(manifest_key(old), offer)
    assert "  old  sse    0 tools  " in run("list", path).stdout
    servers = json.loads(run("list", "--json", path).stdout)["toolboxes"][0]["servers"]
    assert [server["transport"] for server in servers] == ["stdio", "sse"]


class _OldLink:
    """A link to a server that speaks the older transport."""

    unsent_bytes = 0
    is_sse = True

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        raise AssertionError("nothing is sent")


def test_on_a_narrow_terminal_texts_stay_in_their_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = {"description": "Everyday things " * 6, "mcpServers": {"x": {"url": "http://127.0.0.1/${NOT_SET_ANYWHERE}"}}}
    shown = command(monkeypatch, "list", write_config(tmp_path, {"desk": box}), width=60).stdout
    shown = re.sub(r"\x1b\[[\d;]*m", "", shown)
    first, second, *_ = shown.splitlines()
    assert first.startswith("desk  Everyday") and second.startswith("      Everyday")
    assert "variable `NOT_SET_ANYWHERE` is not set)" in " ".join(shown.split()) and "$.toolboxes" not in shown
