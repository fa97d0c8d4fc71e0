"""`mcp-workbench list --tokens`: the table, the JSON and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app.use_memory import add
from tests.cli.in_process import run
from tests.cli.shell import on_terminal
from tests.support.workbench import scripted_entry, write_config

FORMS = ["full", "input", "lean", "text", "clipped", "sentence", "arguments", "names"]


def config(folder: Path, **settings: Any) -> Path:
    boxes = {
        "desk": {"notes": scripted_entry("--tool-names", "read,write"), "clock": scripted_entry("--tool-names", "now")},
        "lab <b>": {"many": scripted_entry("--tools", 40)},
    }
    return write_config(folder, boxes, **settings)


def test_unlisted_servers_are_reported_and_nothing_is_started(tmp_path: Path) -> None:
    status, shown, complaints = run("tokens", config(tmp_path))
    assert (status, complaints) == (0, "")
    assert re.search(r"^  notes +\?$", shown, re.MULTILINE)
    assert "Not counted: 3 servers not listed yet (desk/notes, desk/clock, lab <b>/many)" in shown
    assert "flat list 0" not in shown


def test_token_costs_are_shown_per_toolbox_and_server_in_every_form(tmp_path: Path) -> None:
    path = config(tmp_path)
    status, shown, complaints = run("tokens", "--connect", path)
    assert (status, complaints) == (0, "")
    lines = shown.splitlines()
    assert lines[0].split() == ["TOOLS", "FLAT", "LIST", *(form.upper() for form in FORMS), "OPENED"]
    desk = next(line for line in lines if line.startswith("desk"))
    assert desk.split()[1] == "3"
    assert desk.endswith(" input")
    assert "Every conversation starts with " in shown
    assert "Full adds the toolbox and server of each tool and keeps the white space of its schema" in shown
    assert re.search(r"As a flat list, 43 tools would be [\d,]+ tokens; the workbench starts with \d+ % less\.", shown)
    # From now on they are known.
    again = run("tokens", path)
    assert again.stdout == shown


def test_the_same_as_json_adds_up(tmp_path: Path) -> None:
    path = config(tmp_path, budget=500)
    status, shown, complaints = run("tokens", "--json", "--connect", path)
    assert (status, complaints) == (0, "")
    report = json.loads(shown)
    assert report["config"] == str(path)
    assert (report["tools"], report["unknown"]) == (43, [])
    assert report["start"] == report["twoTools"] + report["instructions"]
    assert 200 < report["twoTools"] <= 300
    assert report["flat"] == sum(box["flat"] for box in report["toolboxes"])
    assert report["saved"] == pytest.approx(1 - report["start"] / report["flat"], abs=1e-4)
    for box in report["toolboxes"]:
        assert box["flat"] == sum(server["flat"] for server in box["servers"])
        for form in FORMS:
            assert box["forms"][form] == sum(server["forms"][form] for server in box["servers"])
        assert box["opened"]["tokens"] <= box["opened"]["budget"] == 500
    lab = report["toolboxes"][1]
    assert lab["forms"]["full"] > lab["forms"]["sentence"] > lab["forms"]["names"]


@pytest.mark.parametrize(
    ("plain", "way"), [(True, "Grouped into toolboxes it would start with"), (False, "In the face proxy it would")]
)
def test_cost_of_a_flat_file_is_reported(tmp_path: Path, plain: bool, way: str) -> None:
    path = tmp_path / "flat.json"
    servers = {"mcpServers": {"many": scripted_entry("--tools", 40)}}
    boxes = {"face": "flat", "toolboxes": {"box": {"description": "Many.", **servers}}}
    path.write_text(json.dumps(servers if plain else boxes))
    shown = run("tokens", "--connect", path).stdout
    report = json.loads(run("tokens", "--json", path).stdout)
    assert report["face"] == "flat"
    assert report["inForce"] > report["flat"] > report["start"]
    assert f"in the face flat: every conversation starts with {report['inForce']:,} tokens" in shown
    assert f"{way} " in shown
    assert "the workbench starts with" not in shown
    checked = run("check", path)
    assert f"context: {report['inForce']:,} tokens to start with, as served in the face flat, " in checked.stdout
    assert checked.stderr == ""


def test_with_the_face_auto_clients_that_defer_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "auto.json"
    box = {"description": "Many.", "mcpServers": {"many": scripted_entry("--tools", 40)}}
    path.write_text(json.dumps({"face": "auto", "toolboxes": {"box": box}}))
    shown = " ".join(run("tokens", "--connect", path).stdout.split())
    report = json.loads(run("tokens", "--json", path).stdout)
    assert f"Every conversation starts with {report['start']:,} tokens" in shown
    assert "Clients that defer tool definitions, such as Claude Code, get all 40 tools instead" in shown
    checked = run("check", path).stdout
    assert f"{report['flat']:,} as a flat list; clients that defer definitions get that list (face auto)" in checked


def test_on_a_narrow_terminal_no_number_is_broken(tmp_path: Path) -> None:
    path = config(tmp_path)
    run("tokens", "--connect", path)
    report = json.loads(run("tokens", "--json", path).stdout)
    status, shown = on_terminal("tokens", path, width=60)
    assert status == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", shown)
    for box in report["toolboxes"]:
        row = next(line for line in shown.splitlines() if line.startswith(box["name"])).removeprefix(box["name"])
        numbers = [box["tools"], box["flat"], box["forms"]["full"], box["opened"]["tokens"]]
        assert row.split() == [*(f"{number:,}" for number in numbers), box["opened"]["form"]]


def test_a_server_that_fails_is_reported_and_the_others_are_counted(tmp_path: Path) -> None:
    boxes = {"desk": {"good": scripted_entry("--tools", 2), "bad": scripted_entry("--exit-at-start", 3)}}
    status, shown, complaints = run("tokens", "--connect", write_config(tmp_path, boxes))
    assert status == 1
    assert complaints.startswith("warning: desk/bad: ")
    assert re.search(r"^  good +2 ", shown, re.MULTILINE)
    assert re.search(r"^  bad +\?$", shown, re.MULTILINE)


def test_most_used_tools_are_proposed_and_not_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "use" / "own.json"
    monkeypatch.setattr("mcp_workbench.cli.token_report.use_file", lambda principal: str(file))
    clients = [["desk/notes/read", "desk/clock/now", "gone/server/tool"]] * 5 + [["desk/notes/read"]] * 4
    add(str(file), [], clients)
    path = config(tmp_path, pin=[])
    status, shown, _ = run("tokens", "--connect", path)
    assert status == 0 and 'You can list these beside the two tools with "pin"' in shown
    proposed = re.findall(r"^  (\S+): used in (\d) of (\d) sessions, (\d+) tokens$", shown, re.MULTILINE)
    assert [each[:3] for each in proposed] == [("desk/notes/read", "9", "9")], "5 of 9 are too few"
    report = json.loads(run("tokens", "--json", path).stdout)
    (pin,) = report["proposedPins"]
    assert pin["tokens"] == int(proposed[0][3]) > 0
    # What is pinned already is not proposed.
    assert "You can list these" not in run("tokens", config(tmp_path, pin=["desk/notes/read"])).stdout


def test_own_tools_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.programs.program_pool.why_not", lambda: None)
    assert " for three tools, " in run("tokens", "--connect", config(tmp_path, programs=True)).stdout
    monkeypatch.undo()
    monkeypatch.setattr("mcp_workbench.programs.is_installed", lambda: False)
    assert " for two tools, " in run("tokens", config(tmp_path, programs=True)).stdout


def test_pinned_tools_are_listed_at_the_start_of_every_conversation(tmp_path: Path) -> None:
    path = config(tmp_path, pin=["desk/notes/read", "desk/clock/now"])
    shown = run("tokens", "--connect", path).stdout
    found = re.search(r"starts with (\d+) tokens: (\d+) for two tools, (\d+) for pinned ones, (\d+) for the ", shown)
    assert found
    start, two, pinned, instructions = map(int, found.groups())
    assert start == two + pinned + instructions
    assert pinned > 20
    assert json.loads(run("tokens", "--json", path).stdout)["pinned"] == pinned
    assert f"context: {start} tokens to start with" in run("check", path).stdout


def test_check_summarises_the_servers(tmp_path: Path) -> None:
    path = config(tmp_path)
    assert "context" not in run("check", path).stdout
    run("tokens", "--connect", path)
    shown = run("check", path).stdout
    assert re.search(r"^context: \d+ tokens to start with, [\d,]+ as a flat list; ", shown, re.MULTILINE)
