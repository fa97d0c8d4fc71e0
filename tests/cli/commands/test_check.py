from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from mcp_workbench.cli.commands import check
from mcp_workbench.cli.engine import MAX_SERVERS_AT_ONCE, StartingPlaces
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.config.model import ServerConfig
from tests.cli.in_process import run
from tests.cli.shell import Done, on_terminal
from tests.support.workbench import logged, scripted_entry, write_config

DIES = {
    "command": sys.executable,
    "args": ["-c", "import sys; print('no module named x', file=sys.stderr); sys.exit(3)"],
}


def without_times(text: str) -> str:
    return re.sub(r" +\d+\.\d\d s", " T s", text)


@pytest.mark.requirement("cli.check")
def test_a_valid_configuration_is_reported_and_nothing_is_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = write_config(tmp_path, {"one": {"a": scripted_entry("--log", log), "b": scripted_entry()}})
    assert run("check", config) == Done(0, f"{config}: valid, 1 toolbox with 2 servers\n", "")
    assert run("check", "--json", "--config", config) == Done(
        0, json.dumps({"config": str(config), "valid": True, "toolboxes": 1, "servers": 2}, indent=2) + "\n", ""
    )
    assert not log.exists()


@pytest.mark.requirement("errors.config", "cli.check")
def test_everything_that_is_wrong_is_reported_at_once_with_status_2(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": {"a": {"comand": "x"}, "b": {"command": "x", "timeout": -1}}})
    status, shown, complaints = run("check", "--connect", config)
    assert (status, shown) == (2, "")
    assert (
        f"{config}:7:11: $.toolboxes.one.mcpServers.a.comand: unknown key `comand`; did you mean `command`?"
        in complaints
    )
    assert "$.toolboxes.one.mcpServers.b.timeout" in complaints
    status, shown, complaints = run("check", "--json", config)
    assert (status, complaints) == (2, "")
    answer = json.loads(shown)
    assert answer["valid"] is False
    paths = [problem["path"] for problem in answer["problems"]]
    assert "$.toolboxes.one.mcpServers.a.comand" in paths
    first = next(problem for problem in answer["problems"] if problem["path"].endswith("comand"))
    assert (first["line"], first["suggestions"]) == (7, ["command"])


def test_a_missing_file_is_a_problem_in_json_too(tmp_path: Path) -> None:
    status, shown, complaints = run("check", "--json", tmp_path / "none.json")
    assert (status, complaints) == (2, "")
    assert json.loads(shown)["problems"][0]["hint"] == "check the path"


@pytest.mark.requirement("cli.check")
def test_connecting_shows_every_server_and_ends_with_0_when_all_are_healthy(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        {
            "one": {"legacy": scripted_entry("--era", "legacy", "--tools", 3)},
            "two": {"modern": scripted_entry("--era", "modern", "--tools", 4, toolFilters=["*", "!tool_1"])},
        },
    )
    status, shown, remarks = run("check", "--connect", config)
    assert (status, without_times(shown), remarks) == (
        0,
        "TOOLBOX  SERVER  STATE  MCP                  TOOLS   READY AFTER\n"
        "one      legacy  ready  2025-11-25 (legacy)  3 T s\n"
        "two      modern  ready  2026-07-28 (modern)  3 of 4 T s\n",
        "note: all servers are healthy\n",
    )


def test_a_lock_without_its_file_is_reported_and_nothing_is_called_healthy(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": {"a": scripted_entry("--tools", 2)}}, lock="enforce")
    missing = f"warning: there is no lock file yet: `{tmp_path / 'workbench.lock'}`; nothing is shown to clients\n"
    hint = "hint: `mcp-workbench team lock` creates it"
    done = run("check", config)
    assert done.status == 0 and done.stderr.startswith(missing) and hint in done.stderr
    status, shown, complaints = run("check", "--connect", config)
    assert (status, complaints.count("there is no lock file yet")) == (1, 1) and "0 of " in shown
    assert "withheld tools, as there is no lock file yet: " in shown
    assert "healthy" not in complaints and "error: all tools are withheld" in complaints and hint in complaints
    assert run("check", "--connect", "--json", config).status == 1
    called = run("call", "--config", config, "one", "a", "tool_1")
    assert "is withheld: there is no lock file yet (`mcp-workbench team lock` creates it)\n" in called.stderr
    assert "lock diff" not in called.stderr
    assert run("team", "lock", "--config", config).status == 0
    assert run("check", "--connect", config).stderr == "note: the server is healthy\n"


@pytest.mark.requirement("cli.check")
def test_a_server_that_fails_is_shown_with_its_stderr_and_ends_with_1(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        {
            "one": {
                "good": scripted_entry("--era", "legacy", "--tools", 3),
                "dies": DIES,
                "missing": {"command": "no-such-program"},
            }
        },
    )
    status, shown, complaints = run("check", "--connect", config)
    assert (status, without_times(shown), complaints) == (
        1,
        "TOOLBOX  SERVER   STATE   MCP                  TOOLS  READY AFTER\n"
        "one      good     ready   2025-11-25 (legacy)  3 T s\n"
        "one      dies     failed\n"
        "one      missing  failed\n"
        "\n"
        "one/dies: the server exited with status 3\n"
        "  last lines of its stderr:\n"
        "    no module named x\n"
        "\n"
        "one/missing: command `no-such-program` was not found on PATH\n"
        "  hint: install it, or give its full path as `command`\n",
        "error: 2 of 3 servers failed\n",
    )


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["failed"], "the only server failed"),
        (["failed", "ready", "ready"], "1 of 3 servers failed"),
        (["needs sign-in"], "the only server needs you to sign in: `s0`"),
        (["ready", "needs sign-in"], "1 of 2 servers needs you to sign in: `s1`"),
        (["needs sign-in", "needs sign-in"], "2 of 2 servers need you to sign in: `s0`, `s1`"),
        (["needs sign-in", "failed"], "2 of 2 servers failed"),
    ],
)
def test_how_many_servers_failed_is_said_as_people_say_it(
    capsys: pytest.CaptureFixture[str], states: list[str], said: str
) -> None:
    findings = [check.Finding("box", f"s{number}", state) for number, state in enumerate(states)]
    assert check._report_failed(findings, 1) == 1
    assert capsys.readouterr().err == f"error: {said}\n"


def test_json_has_everything_that_the_table_has(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": {"good": scripted_entry("--era", "modern", "--tools", 3), "dies": DIES}})
    status, shown, complaints = run("check", "--connect", "--json", config)
    assert (status, complaints) == (1, "")
    good, dies = json.loads(shown)["servers"]
    assert good.pop("startSeconds") > 0
    assert good == {
        "toolbox": "one",
        "server": "good",
        "state": "ready",
        "revision": "2026-07-28",
        "era": "modern",
        "tools": 3,
        "error": None,
        "hint": None,
        "remarks": [],
        "hidden": [],
    }
    assert (dies["state"], dies["tools"], dies["startSeconds"]) == ("failed", None, None)
    assert "no module named x" in dies["error"]


def test_oddities_of_a_server_are_remarked(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": {"odd": scripted_entry("--noise", toolFilters=["echo", "!nothing_*"])}})
    status, shown, _ = run("check", "--connect", config)
    assert status == 0
    assert "one/odd: `!nothing_*` in `toolFilters` matches none of its tools\n" in shown
    assert re.search(r"one/odd: wrote \d+ lines to stdout that are not messages; they were ignored\n", shown)


def test_servers_are_asked_afresh_and_remembered_unless_that_is_not_wanted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = write_config(tmp_path, {"one": {"a": scripted_entry("--era", "legacy", "--log", log, "--tools", 3)}})
    assert run("check", "--connect", "--no-cache", config).status == 0
    assert "? tools" in run("list", config).stdout
    assert run("check", "--connect", config).status == 0
    assert "3 tools" in run("list", config).stdout
    assert run("check", "--connect", config).status == 0
    assert len(logged(log, "tools/list")) == 3
    # What is remembered is not believed, the era included: it is found out each time.
    assert len(logged(log, "server/discover")) == 3


def test_secrets_in_a_servers_stderr_are_hidden(tmp_path: Path) -> None:
    program = "import os, sys; print('bad token', os.environ['TOKEN'], file=sys.stderr); sys.exit(1)"
    entry = {"command": sys.executable, "args": ["-c", program], "env": {"TOKEN": "hunter2-hunter2"}}
    config = write_config(tmp_path, {"one": {"a": entry}})
    for arguments in (["check", "--connect"], ["check", "--connect", "--debug"]):
        status, shown, complaints = run(*arguments, config)
        assert status == 1
        assert "bad token ***" in shown
        assert "hunter2" not in shown + complaints
    assert "hunter2" not in "".join(map(str, run("open", "one", "--config", config)))
    assert "hunter2" not in "".join(map(str, run("call", "one", "a", "echo", "--config", config)))


def test_a_terminal_sees_the_servers_start_and_then_the_table(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": {"good": scripted_entry(), "dies": DIES}})
    status, shown = on_terminal("check", "--connect", config)
    assert status == 1
    assert "waiting" in shown
    assert "\x1b[32mready\x1b[0m" in shown
    # What was shown last stays, and is not said again.
    assert "\x1b[?25h" in shown
    assert "ready" not in shown.rpartition("\x1b[?25h")[2]
    assert "\x1b[1;31mfailed\x1b[0m" in shown


def test_interrupting_ends_with_130_and_leaves_no_server_behind(tmp_path: Path) -> None:
    """That nothing is left behind is checked after every test."""
    config = write_config(tmp_path, {"one": {"silent": {"command": "sleep", "args": ["600"]}}})
    status, shown = on_terminal("check", "--connect", config, type_when=lambda shown: "starting" in shown)
    assert status == 130
    assert "Traceback" not in shown


def test_partial_output_stays_on_the_screen_after_an_interrupt(tmp_path: Path) -> None:
    boxes = {"one": {"silent": {"command": "sleep", "args": ["600"]}, "bad": {"command": "no-such-program"}}}
    config = write_config(tmp_path, boxes)

    def is_known(shown: str) -> bool:
        return "failed" in shown and "starting" in shown

    status, shown = on_terminal("check", "--connect", config, type_when=is_known)
    assert status == 130
    last = shown.rpartition("\x1b[2K")[2]
    assert "silent" in last or "bad" in last


@pytest.mark.requirement("names.control")
def test_hidden_characters_are_told_of_each_tool_and_control_characters_in_names_never_pass(tmp_path: Path) -> None:
    server = scripted_entry("--tool-names", "good,read\u202efile,zero\u200bwidth,be\x07ll")
    config = write_config(tmp_path, {"one": {"odd": server, "fine": scripted_entry()}})
    done = run("check", "--connect", config)
    assert done.status == 0
    assert "one/odd: tool `read\\u202efile`: hidden characters: 3 bidirectional (U+202E)\n" in done.stdout
    assert "one/odd: tool `zero\\u200bwidth`: hidden characters: 3 zero-width (U+200B)\n" in done.stdout
    assert "one/odd: tool `be\\x07ll` is left out: a control character in its name\n" in done.stdout
    assert "one/fine:" not in done.stdout and "good" not in done.stdout
    assert "healthy" not in done.stderr and "hidden characters" in done.stderr
    odd, fine = json.loads(run("check", "--connect", "--json", config).stdout)["servers"]
    assert (odd["tools"], len(odd["hidden"]), fine["hidden"]) == (3, 2, [])


def test_keys_without_effect_are_warned_about_and_change_nothing_else(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"s": scripted_entry(trust=True, icon="x")}}))
    done = run("check", config)
    assert (done.status, done.stdout) == (0, f"{config}: valid, 1 toolbox with 1 server\n")
    assert done.stderr.startswith("warning: `trust` of `default/s` has no effect: ") and "icon" not in done.stderr


def test_secrets_in_command_lines_are_warned_about(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    served = scripted_entry("--token", "a1b2c3d4e5f6a7b8")
    config.write_text(json.dumps({"mcpServers": {"s": scripted_entry(), "t": served}}))
    done = run("check", config)
    assert (done.status, done.stdout) == (0, f"{config}: valid, 1 toolbox with 2 servers\n")
    assert done.stderr.startswith("warning: `default/t` has a secret in `args.") and "a1b2" not in done.stderr
    assert done.stderr.endswith("hint: pass it in `env`, if the server takes it from a variable\n")


def test_servers_of_single_projects_are_named(tmp_path: Path) -> None:
    config = tmp_path / "claude.json"
    projects = {"/home/p": {"mcpServers": {"git": scripted_entry()}}}
    config.write_text(json.dumps({"mcpServers": {"s": scripted_entry()}, "projects": projects}))
    done = run("check", config)
    assert (done.status, done.stdout) == (0, f"{config}: valid, 1 toolbox with 1 server\n")
    assert done.stderr.startswith("warning: servers of single projects are not read: `git` of `/home/p`; ")
    served = run("serve", "--private", "--config", config)
    assert "WARNING servers of single projects are not read: `git` of `/home/p`; " in served.stderr


def test_noise_that_is_written_at_the_end_is_seen(tmp_path: Path) -> None:
    entry = scripted_entry()
    command = shlex.join([entry["command"], *entry["args"]])
    config = write_config(tmp_path, {"one": {"late": {"command": "sh", "args": ["-c", f"{command}; echo goodbye"]}}})
    status, shown, _ = run("check", "--connect", config)
    assert status == 0
    assert "one/late: wrote a line to stdout that is not a message; it was ignored" in shown


async def test_servers_at_an_address_do_not_queue_behind_programs() -> None:
    store = ManifestStore(lambda: None)
    program = ServerEntry("box", ServerConfig(name="program", command="npx"), store)
    remote = ServerEntry("box", ServerConfig(name="remote", url="https://a.b", transport="auto"), store)
    places = StartingPlaces()
    for _ in range(MAX_SERVERS_AT_ONCE):
        await places.of(program).acquire()
    assert places.of(program).locked()
    assert not places.of(remote).locked()


def test_addresses_and_names_that_two_servers_want_are_named(tmp_path: Path) -> None:
    offering = {name: scripted_entry("--offers", "test", "--tool-names", "x") for name in ("one", "two")}
    done = run("check", "--connect", "--config", write_config(tmp_path, {"box": offering}))
    assert done.status == 0
    assert "warning: `box/one` and `box/two` both list the address `test:///one` and 3 more" in done.stderr
    colliding = {"a": scripted_entry("--tool-names", "b_c"), "a_b": scripted_entry("--tool-names", "c")}
    path = Path(write_config(tmp_path, {"box": colliding}))
    path.write_text(json.dumps({**json.loads(path.read_text()), "face": "dynamic"}))
    done = run("check", "--connect", "--config", str(path))
    assert "warning: `box/a_b/c` would be shown as `box__a_b_c`, which is `box/a/b_c`" in done.stderr
    named = json.loads(run("check", "--connect", "--json", "--config", str(path)).stdout)["warnings"]
    assert [text for text in named if "would be shown as `box__a_b_c`" in text], "for programs too"


@pytest.mark.parametrize("more", [(), ("--no-cache",)])
def test_warnings_about_combined_offers_are_in_json_too(tmp_path: Path, more: tuple[str, ...]) -> None:
    offering = {name: scripted_entry("--offers", "test", "--tool-names", "x") for name in ("one", "two")}
    config = write_config(tmp_path, {"box": offering})
    shown = json.loads(run("check", "--connect", "--json", *more, "--config", config).stdout)
    assert any("both list the address `test:///one` and 3 more" in text for text in shown["warnings"])
    alone = write_config(tmp_path, {"box": {"one": offering["one"]}})
    assert json.loads(run("check", "--connect", "--json", *more, "--config", alone).stdout)["warnings"] == []


@pytest.mark.requirement("config.unresolved")
def test_everything_that_servers_lack_is_reported_at_once(tmp_path: Path) -> None:
    lacks = {"command": "true", "env": {"A": "${NOT_SET_HERE}", "B": "${file:gone}"}}
    other = {"url": "http://127.0.0.1:1/mcp", "headers": {"X": "${file:gone-too}", "Y": "${NOT_SET_EITHER}"}}
    config = write_config(tmp_path, {"box": {"lacks": lacks, "other": other}})
    done = run("check", str(config))
    assert done.status == 2
    for each in (
        "NOT_SET_HERE",
        "NOT_SET_EITHER",
        "[box/lacks] `${file:gone}` in `env.B`",
        "[box/other] `${file:gone-",
    ):
        assert each in done.stderr
    assert done.stderr.endswith("hint: servers that lack something are unavailable; all others work\n")
    problems = json.loads(run("check", str(config), "--json").stdout)["problems"]
    assert len(problems) == 4 and [each.get("server") for each in problems] == [None, None, "box/lacks", "box/other"]
