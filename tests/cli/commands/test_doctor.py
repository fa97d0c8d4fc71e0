"""`doctor`: all checks in one go, in order of importance, each bounded and none hiding another."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.cli.commands import doctor
from mcp_workbench.cli.commands.check import Finding
from mcp_workbench.setup.diagnosis import Diagnosis, Examined
from tests.cli.commands.test_init import CLOCK, config_of, environment, write
from tests.cli.in_process import command, live_in
from tests.cli.shell import under

NOISY = "print('hello', flush=True); import runpy; runpy.run_module('mcp_workbench', run_name='__main__')"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run").mkdir()
    live_in(monkeypatch, tmp_path, {**environment(tmp_path), "XDG_RUNTIME_DIR": "/tmp"})
    return tmp_path


def written(home: Path, **servers: object) -> Path:
    path = config_of(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"toolboxes": {"box": {"description": "d", "mcpServers": servers}}}))
    return path


@pytest.mark.processes
def test_a_machine_in_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(home, clock=CLOCK)
    done = command(monkeypatch, "doctor")
    assert (done.status, done.stderr) == (0, "note: nothing is wrong\n")
    # What it can enforce depends on the machine.
    machine, server = done.stdout.splitlines()
    assert machine.startswith("note: sandbox: this machine has ")
    assert server.startswith("note: sandbox: `box/clock` runs in `guard`, the default")


@pytest.mark.processes
def test_everything_that_is_wrong_is_reported_in_order_of_importance(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = {"command": sys.executable, "args": ["-c", f"import sys; sys.argv[1:] = ['demo', 'clock']; {NOISY}"]}
    broken = {"command": sys.executable, "args": ["-c", "raise SystemExit('no luck')"]}
    lacking = {"command": sys.executable, "env": {"A": "${NOT_SET_ANYWHERE}"}, "alwaysAllow": ["x"]}
    path = written(home, noisy=noisy, broken=broken, lacking=lacking, gone={"command": "npx", "envFile": "x.env"})
    (path.parent / "x.env").write_text("A=1\n")
    (path.parent / "x.env").chmod(0o644)
    write(home, ".cursor/mcp.json", {})
    done = command(monkeypatch, "doctor")
    assert done.status == 1
    heads = [": ".join(line.split(": ")[:2]) for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert heads == [
        "error: variables",
        "error: servers",
        "error: programs",
        "warning: configuration",
        "warning: servers",
        "warning: secrets",
        "warning: clients",
        "note: sandbox",
        "note: sandbox",
    ]
    assert "box/broken: the server exited with status 1\n  last lines of its stderr:\n    no luck\n" in done.stdout
    assert "box/noisy: wrote a line to stdout that is not a message" in done.stdout
    assert "  hint: install Node.js" in done.stdout and "box/gone: " not in done.stdout, "it is said once"
    first = "set `NOT_SET_ANYWHERE` before the workbench starts, or give a default: `${NOT_SET_ANYWHERE:-…}`"
    assert done.stderr.startswith(f"note: 3 errors and 4 warnings\nhint: do this first: {first}\n")
    done = command(monkeypatch, "doctor", "--fix", "--json")
    found = json.loads(done.stdout)
    assert found["config"] == str(path) and [each["state"] for each in found["servers"]] == ["ready", *["failed"] * 3]
    assert [each["error"] for each in found["servers"]][3] == "the program `npx` is missing"
    assert "`NOT_SET_ANYWHERE` is not set" in found["servers"][2]["error"]
    (fixed,) = [each for each in found["findings"] if each["fixed"]]
    assert fixed["area"] == "secrets" and (path.parent / "x.env").stat().st_mode & 0o077 == 0


def test_without_a_configuration_the_rest_is_looked_at(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, ".aws/amazonq/mcp.json", {})
    done = command(monkeypatch, "doctor")
    assert done.status == 1 and done.stdout.startswith("error: configuration: no configuration found;")
    assert "  hint: `mcp-workbench init` creates one" in done.stdout and "note: clients: Amazon Q" in done.stdout


def test_half_written_configuration_is_explained_and_the_rest_examined(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(home).write_text('{"toolboxes": {"a": ')
    write(home, ".cursor/mcp.json", {"workbench": {"command": "/nowhere/mcp-workbench", "args": ["serve"]}})
    done = command(monkeypatch, "doctor")
    assert done.status == 1 and "found the end of the file, expected a value\n  hint: correct it there" in done.stdout
    assert "error: clients: Cursor starts `/nowhere/mcp-workbench`" in done.stdout
    own = written(home)
    own.write_text('{"mcpServers": {"a": {"command": "x"},\n "b": {"comand": "x"}, "c": 7}}')
    first, second, *_ = command(monkeypatch, "doctor").stdout.splitlines()
    assert first == (
        f"error: configuration: {under(home, own)}:2:8: $.mcpServers.b.comand: unknown key `comand`; "
        "did you mean `command`? (the first of 2 problems)"
    )
    assert second.startswith(f"  {under(home, own)}:2:29: $.mcpServers.c: ")


def test_a_project_that_is_not_trusted_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(home, gone={"command": "npx"})
    write(home, "workbench-config.json", {"x": {"command": "x"}})
    done = command(monkeypatch, "doctor")
    assert "warning: configuration: the configuration" in done.stdout and "is not trusted yet; using" in done.stdout
    assert "  hint: look at what it starts, then run `mcp-workbench team trust`" in done.stdout


def test_a_check_that_breaks_or_hangs_hides_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def hangs(subject: Examined) -> list[Diagnosis]:
        never.wait()
        return []

    def breaks(subject: Examined) -> list[Diagnosis]:
        raise RuntimeError

    monkeypatch.setattr(doctor, "CHECK_TIMEOUT", 0.01)
    monkeypatch.setattr(doctor, "CHECKS", (("disk", hangs), ("network", breaks)))
    done = command(monkeypatch, "doctor")
    never.set()
    assert "warning: disk: this could not be checked within 0.01 s" in done.stdout
    assert "warning: network: this could not be checked: RuntimeError" in done.stdout


def test_failed_repair_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> str:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(doctor, "CHECKS", (("disk", lambda _: [Diagnosis("warning", "disk", "odd", "", fails)]),))
    done = command(monkeypatch, "doctor", "--fix")
    assert "warning: disk: odd\n  hint: could not be fixed: [Errno 13] Permission denied\n" in done.stdout


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (Finding("b", "s", "needs sign-in", error="sign in"), "warning: sign-ins: b/s: sign in"),
        (Finding("b", "s", "starting"), "error: servers: b/s: was not ready after 60 s"),
        (Finding("b", "s", "ready", seconds=12.0), "note: servers: b/s: took 12 s to start"),
        (Finding("b", "s", "ready", seconds=1.0, hidden=("tool `x`: …",)), "warning: hidden characters: b/s: tool"),
    ],
)
def test_finding_about_a_server_is_described(finding: Finding, said: str) -> None:
    (found,) = doctor.about_server(finding, "x")
    assert f"{found.severity}: {found.area}: {found.text}".startswith(said)


@pytest.mark.processes
def test_servers_that_hang_do_not_hold_it_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(home, hangs={"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]})
    monkeypatch.setattr(doctor, "SERVERS_TIMEOUT", 0.05)
    monkeypatch.setattr(doctor, "CHECKS", ())
    done = command(monkeypatch, "doctor")
    assert done.status == 1 and "box/hangs: was not ready after 0.05 s" in done.stdout


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("/usr/bin/npx", "a package is downloaded at its first start only"),
        ("podman", "a package is downloaded at its first start only"),
        ("/opt/server", "here all servers start at once"),
        (None, ""),
    ],
)
def test_a_slow_start_is_put_down_to_a_download_only_where_there_is_one(command: str | None, hint: str) -> None:
    (found,) = doctor.about_server(Finding("b", "s", "ready", seconds=12.0), command)
    assert found.hint.startswith(hint) and bool(found.hint) is bool(hint)


def test_a_hint_for_several_findings_is_shown_once_below_the_last(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [Diagnosis("note", "servers", f"{name}: slow", "wait") for name in ("a", "b", "c")]
    odd = Diagnosis("note", "servers", "d: odd", "look")
    also = Diagnosis("note", "disk", "full", "look")
    monkeypatch.setattr(doctor, "CHECKS", (("servers", lambda _: [slow[0], odd, *slow[1:], also]),))
    shown = command(monkeypatch, "doctor").stdout
    listed = "note: servers: a: slow\nnote: servers: b: slow\nnote: servers: c: slow\n  hint: wait\n"
    assert shown.endswith(f"{listed}note: servers: d: odd\n  hint: look\nnote: disk: full\n  hint: look\n")
    found = json.loads(command(monkeypatch, "doctor", "--json").stdout)["findings"]
    assert [each["hint"] for each in found[1:]] == ["wait"] * 3 + ["look"] * 2, "a program gets each whole"


@pytest.mark.processes
def test_programs_of_agents_that_cannot_run_are_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(home, clock=CLOCK)
    path.write_text(json.dumps({**json.loads(path.read_text()), "programs": True}))
    monkeypatch.setattr("mcp_workbench.programs.is_installed", lambda: False)
    done = command(monkeypatch, "doctor")
    assert done.status == 1 and "`pydantic-monty`, which runs them, is not installed" in done.stdout
    checked = command(monkeypatch, "check")
    assert "`pydantic-monty`, which runs them, is not installed; agents are not offered run_program" in checked.stderr
    monkeypatch.setattr("mcp_workbench.programs.program_pool.why_not", lambda: None)
    assert command(monkeypatch, "doctor").status == 0


@pytest.mark.processes
def test_a_lock_without_its_file_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(home, clock=CLOCK)
    path.write_text(json.dumps({**json.loads(path.read_text()), "lock": "enforce"}))
    done = command(monkeypatch, "doctor")
    assert done.status == 1 and "error: lock: there is no lock file yet: `" in done.stdout
    assert "`mcp-workbench team lock` creates it" in done.stdout


def test_next_step_names_its_subject_unless_it_is_a_command() -> None:
    note = Diagnosis("note", "sandbox", "this machine has Landlock")
    dead = Diagnosis("error", "servers", "box/remote: nothing is listening\nlines of it", "check `url`")
    client = Diagnosis("warning", "clients", "Cursor does not use it", "mcp-workbench install cursor")
    assert doctor._next_step([dead, note]) == "do this first: check `url` (box/remote: nothing is listening)"
    assert doctor._next_step([client, note]) == "do this first: mcp-workbench install cursor"
    nothing = Diagnosis(
        "error", "configuration", "no configuration found; looked at `--config` and\n  here", "`x` does"
    )
    assert doctor._next_step([nothing, note]) == "do this first: `x` does (no configuration found)"
    assert doctor._next_step([dead]) is None and doctor._next_step([note, note]) is None and not doctor._next_step([])


def test_next_step_is_about_the_most_severe_findings() -> None:
    fixable = Diagnosis("note", "clients", "backups are old", fix=lambda: "done")
    dead = Diagnosis("error", "servers", "box/remote: nothing is listening", "check `url`")
    client = Diagnosis("warning", "clients", "Cursor does not use it", "mcp-workbench install cursor")
    fix = "mcp-workbench doctor --fix fixes what is safe to fix"
    assert doctor._next_step([dead, client, fixable]) == "do this first: check `url` (box/remote: nothing is listening)"
    assert doctor._next_step([client, fixable]) == "do this first: mcp-workbench install cursor"
    assert doctor._next_step([fixable]) == doctor._next_step([replace(client, fix=lambda: "done"), fixable]) == fix
    # An error that says nothing of what to do is no reason to begin with a warning.
    untold = Diagnosis("error", "lock", "it is damaged")
    assert doctor._next_step([untold, client]) == "do this first: put the first of these right (it is damaged)"
    assert doctor._next_step([untold, dead]) == "do this first: check `url` (box/remote: nothing is listening)"


@pytest.mark.parametrize("names", [("ONE",), ("ONE", "TWO")])
def test_variables_that_are_not_set_come_before_a_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    written(home, clock=CLOCK, x={"command": "x", "env": {name: f"${{{name}}}" for name in names}})
    write(home, ".cursor/mcp.json", {})
    done = command(monkeypatch, "doctor")
    assert done.stdout.startswith("error: variables: ") and "hint: mcp-workbench install cursor" in done.stdout
    hint = f"set {'`ONE`' if len(names) == 1 else 'these variables'} before the workbench starts"
    assert f"  hint: {hint}" in done.stdout and f"hint: do this first: {hint}" in done.stderr
    assert done.stdout.count("hint: set `") == len(names), "each is said once"
