"""`mcp-workbench team audit` and `audit verify`."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.config.audit_settings import AuditConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.team.audit.audit_file import AuditFile, rotated_files
from mcp_workbench.team.audit.audit_lines import LineMaker
from mcp_workbench.team.audit.audit_step import open_audit
from tests.cli.in_process import command
from tests.cli.shell import run
from tests.support.in_process_workbench import Server, write
from tests.support.workbench import scripted_entry, write_config
from tests.team.audit.test_audit_step import ENDED, REQUEST


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    audit = open_audit(AuditConfig(file=str(path)), Redactor([]), stdout_is_free=False)
    audit.record_start("config.json")
    # Since 1970 as `monotonic` has it: one now, one of an hour ago.
    now = time.monotonic()
    for age, request in ((3600, REQUEST), (0, replace(REQUEST, principal="bob", item="write"))):
        audit.on_end(
            request, replace(ENDED, arrived=now - age - 0.5, ended=now - age, decision="denied", rules=("policy[1]",))
        )
    audit.record("approval", principal="bob", decision="denied", reason="no\x1b[31m")
    audit.finish()
    audit.close()
    return path


def test_it_is_printed_as_a_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "audit", path)
    assert done.status == 0
    assert "box/files/read" in done.stdout and "denied (policy[1])" in done.stdout and "refused" in done.stdout
    assert "\x1b" not in done.stdout and "approval" in done.stdout


def test_on_a_narrow_terminal_no_word_is_broken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", command(monkeypatch, "audit", path, width=80).stdout).splitlines()
    assert max(map(len, shown)) <= 80
    assert any(line.endswith("Z  ada  agent 2 from 10.0.0.7") for line in shown)
    assert "  box/files/read  denied (policy[1])  refused  500.0 ms" in shown
    assert "WHO" in command(monkeypatch, "audit", path).stdout.splitlines()[0], "in a pipe, a line has all of it"


def test_rotated_files_are_read_with_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LineMaker(Redactor([]), "none")
    file = AuditFile(str(tmp_path / "audit.jsonl"), 2048, 9, lambda text: lines.event("audit", reason=text))
    for number in range(99):
        file.append([lines.event("call", principal="ada", item=f"t{number}")])
    file.close()
    files = rotated_files(str(tmp_path / "audit.jsonl"))
    assert len(files) > 3
    read = json.loads(command(monkeypatch, "audit", "--json", "--lines", "0", tmp_path / "audit.jsonl").stdout)
    assert [line["item"] for line in read] == [f"t{number}" for number in range(99)]
    assert command(monkeypatch, "audit", "verify", tmp_path / "audit.jsonl").status == 0
    os.unlink(files[1])
    done = command(monkeypatch, "audit", "verify", tmp_path / "audit.jsonl")
    assert done.status == 1 and "are missing before" in done.stdout


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 5),
        (("--who", "bob"), 2),
        (("--who", "a*"), 1),
        (("--tool", "read"), 1),
        (("--tool", "box/files/*"), 2),
        (("--tool", "none"), 0),
        (("--since", "30m"), 4),
        (("--since", "2h"), 5),
        (("--since", "2001-01-01"), 5),
        (("--since", "2999-01-01T00:00:00+00:00"), 0),
        (("--lines", "2"), 2),
        (("--lines", "0"), 5),
    ],
)
def test_lines_are_chosen(path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], count: int) -> None:
    done = command(monkeypatch, "audit", "--json", *options, path)
    assert len(json.loads(done.stdout)) == count


def test_no_match_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no line matches" in command(monkeypatch, "audit", "--who", "eve", path).stderr


def test_the_file_is_the_one_of_the_configuration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(path.parent, {"box": {"a": Server()}}, audit={"file": "audit.jsonl"})
    assert "bob" in command(monkeypatch, "audit", "--config", config).stdout


@pytest.mark.parametrize("audit", [{}, {"audit": {"stdout": True}}])
def test_missing_file_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audit: dict[str, object]
) -> None:
    done = command(monkeypatch, "audit", "--config", write(tmp_path, {"box": {"a": Server()}}, **audit))
    assert done.status == 1 and "there is no audit file to read" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--since", "yesterday"), ("--lines", "few"), ("verify", "--expect", "7"), ("a", "b")],
)
def test_a_wrong_command_line_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    assert command(monkeypatch, "audit", *arguments, *(() if "a" in arguments else (path,))).status == 2


def test_a_file_that_is_not_there_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "audit", tmp_path / "none")
    assert done.status == 1 and "cannot be read" in done.stderr


def test_a_whole_record_is_verified(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "audit", "verify", path)
    assert done.status == 0 and "5 lines, 1 to 5" in done.stdout
    kept = done.stdout.split("the last one is ")[1].split()[0]
    assert command(monkeypatch, "audit", "verify", "--expect", kept, path).status == 0
    report = json.loads(command(monkeypatch, "audit", "verify", "--json", path).stdout)
    assert report["findings"] == [] and f"{report['last']}:{report['hash']}" == kept


def test_a_cut_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    done = command(monkeypatch, "audit", "verify", path)
    assert done.status == 1 and "lines 5 to 5 are missing at the end" in done.stdout


def test_an_empty_file_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").touch()
    done = command(monkeypatch, "audit", "verify", tmp_path / "empty")
    assert done.status == 0 and "no lines" in done.stdout


@pytest.mark.processes
@pytest.mark.parametrize(
    ("audit", "text"),
    [
        ({"stdout": True}, "the audit cannot be written to stdout: over stdio"),
        ({"file": "/nonexistent/audit"}, "the audit cannot be written to `/nonexistent/audit`: No such file"),
    ],
)
def test_serve_does_not_begin_without_the_audit_that_is_wanted(
    tmp_path: Path, audit: dict[str, object], text: str
) -> None:
    done = run("serve", "--config", write(tmp_path, {"box": {"a": Server()}}, audit=audit))
    assert done.status == 2 and text in done.stderr and "hint:" in done.stderr


def test_a_call_from_the_command_line_says_so_and_names_its_rule_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = [{"tools": ["box/server/echo"], "then": "ask"}, {"then": "allow"}]
    audit = {"file": str(tmp_path / "audit.jsonl")}
    config = write_config(tmp_path, {"box": {"server": scripted_entry()}}, policy=policy, audit=audit)
    assert command(monkeypatch, "call", "--config", config, "box/server/echo").status == 1
    shown = command(monkeypatch, "audit", audit["file"]).stdout
    line = next(each for each in shown.splitlines() if "refused" in each)
    assert "command line" in line and "denied (policy[0])" in line
