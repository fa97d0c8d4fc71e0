from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.cli.in_process import run
from tests.cli.shell import Done, on_terminal
from tests.support.client import RawClient
from tests.support.workbench import logged, scripted_entry, workbench_command, write_config


def demo_entry(server: str, **settings: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", f"mcp_workbench.cli.demo.{server}"], **settings}


def test_the_tools_of_a_toolbox_are_shown_with_signatures_and_descriptions(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        {
            "desk": {
                "description": "Everyday things",
                "mcpServers": {
                    "clock": demo_entry("clock", toolFilters=["now", "wait"]),
                    "missing": {"command": "no-such-program"},
                },
            }
        },
    )
    status, shown, remarks = run("open", "desk", "--config", config)
    body, _, tokens = shown.rpartition("\n\n")
    assert (status, body, remarks) == (
        0,
        "desk  Everyday things\n"
        "\n"
        "clock\n"
        "  Tells the time anywhere, converts between zones, and waits.\n"
        "  now(zone?: string)\n"
        "      The current date and time in a zone (UTC if none is named).\n"
        "  wait(seconds: number)\n"
        "      Wait for some seconds (at most 300), reporting progress; can be cancelled.\n"
        "\n"
        "missing  unavailable\n"
        "  command `no-such-program` was not found on PATH\n"
        "  hint: install it, or give its full path as `command`",
        "",
    )
    assert tokens.startswith("2 tools; about ")


def test_json_is_the_structured_content_that_an_agent_gets(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry(toolFilters=["echo"])}})
    status, shown, remarks = run("open", "box", "--json", "--config", config)
    assert (status, remarks) == (0, "")
    content = json.loads(shown)
    assert (content["toolbox"], content["description"], content["unavailable"]) == ("box", "Toolbox box.", [])
    [tool] = content["tools"]
    assert (tool["toolbox_name"], tool["source_server"], tool["name"]) == ("box", "one", "echo")
    assert tool["inputSchema"]["properties"] == {"node": {"$ref": "#/$defs/node"}}


def test_known_servers_are_not_started_unless_asked_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = write_config(tmp_path, {"box": {"one": scripted_entry("--log", log)}})
    first = run("open", "box", "--config", config)
    assert len(logged(log, "tools/list")) == 1
    assert run("open", "box", "--config", config) == first
    assert len(logged(log, "tools/list")) == 1
    assert run("open", "box", "--no-cache", "--config", config) == first
    assert len(logged(log, "tools/list")) == 2


def test_a_toolbox_none_of_whose_servers_can_be_reached_ends_with_1(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": {"command": "no-such-program"}}})
    status, shown, _ = run("open", "box", "--config", config)
    assert status == 1
    assert "one  unavailable\n" in shown


def test_a_wrong_name_gets_the_nearest_right_one(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"desk": {"one": scripted_entry()}})
    assert run("open", "dsek", "--config", config) == Done(
        2,
        "",
        "error: toolbox `dsek` does not exist; did you mean `desk`?\n\nhint: mcp-workbench list shows all toolboxes\n",
    )


def test_a_plain_file_can_be_opened_too(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"one": scripted_entry(toolFilters=["echo"])}}))
    status, shown, _ = run("open", "default", "--config", path)
    assert status == 0
    assert "  echo(" in shown


def test_on_a_terminal_a_server_cannot_repaint_the_screen(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    tool = {'name': 'a', 'description': '\\x1b[2Jgone [bold]x[/bold]', 'inputSchema': {}}\n"
        "    welcome = {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': {}}\n"
        "    results = {'initialize': welcome, 'tools/list': {'tools': [tool]}}\n"
        "    if 'id' in message:\n"
        "        answer = {'jsonrpc': '2.0', 'id': message['id'], 'result': results.get(message['method'], {})}\n"
        "        print(json.dumps(answer), flush=True)\n"
    )
    config = write_config(tmp_path, {"box": {"one": {"command": sys.executable, "args": [str(program)]}}})
    status, shown = on_terminal("open", "box", "--config", config)
    assert status == 0
    assert "\\x1b[2Jgone [bold]x[/bold]" in shown
    _, again = on_terminal("open", "box", "--config", config)
    assert "from the cache" in again


async def test_within_a_budget_it_is_the_very_text_that_an_agent_gets(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"many": scripted_entry("--tools", 40)}}, budget=1000)
    async with RawClient.spawn(workbench_command(config)) as client:
        await client.initialize()
        answered = await client.call_tool("open_toolbox", {"toolbox_name": "box"})
    text = answered["content"][0]["text"]
    status, shown, _ = run("open", "box", "--config", config)
    assert status == 0
    assert shown.startswith(f"{text}\n\nabout ")
    content = json.loads(run("open", "box", "--json", "--config", config).stdout)
    assert content == answered["structuredContent"]
    assert content["form"] in ("text", "clipped", "sentence", "arguments", "names")
    everything = json.loads(run("open", "box", "--json", "--budget", "null", "--config", config).stdout)
    assert everything["form"] == "full"
    assert len(everything["tools"]) == 40


def test_a_budget_that_is_none_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry()}})
    for value in ("", "299", "-1", "many", "9" * 50):
        status, _, complaints = run("open", "box", f"--budget={value}", "--config", config)
        assert status == 2
        assert f"found `{value}`" in complaints


def test_unreachable_tools_are_not_suggested_to_the_user(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry("--exit-at-start", 3)}})
    assert "open_toolbox" not in run("open", "box", "--config", config).stdout
