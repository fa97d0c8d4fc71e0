"""Configurations broken in more than fifty ways: exit 2, every problem with its line and path, nothing started."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.cli.main import main
from tests.engine.config.test_problems import FILES, FS, SERVERS, TOOLBOX
from tests.support.workbench import workbench_command

SYNTAX = {
    "empty": b"",
    "blank": b"  \n\t",
    "text": b"hello",
    "open brace": b'{"toolboxes": {',
    "open string": b'{"toolboxes": "',
    "two documents": b'{"mcpServers": {}} {}',
    "single quotes": b"{'mcpServers': {}}",
    "no colon": b'{"mcpServers" {}}',
    "no value": b'{"mcpServers": }',
    "NUL": b'{"mcpServers": {}\x00}',
    "no UTF-8": b'{"mcpServers": {"\xff": {"command": "x"}}}',
    "UTF-16": '{"mcpServers": {}}'.encode("utf-16"),
    "a thousand levels": b"[" * 100_000,
    "open comment": b'{"mcpServers": {} /* }',
    "a script": b"#!/bin/sh\necho hello\n",
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
}


def serve(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is complained about; nothing is ever written to stdout, which belongs to the protocol."""
    status = main(["serve", "--config", str(path)])
    written = capsys.readouterr()
    assert (status, written.out) == (2, "")
    assert written.err.startswith("error: "), written.err
    return written.err


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("mcp_workbench.app.gateway.Gateway.__init__", refuse)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("WORD", "word")
    monkeypatch.delenv("GONE", raising=False)


@pytest.mark.parametrize("kind", SYNTAX)
def test_invalid_json_is_reported_with_its_line(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(SYNTAX[kind])
    assert f"{path}:" in serve(path, capsys)


def test_each_of_a_hundred_mistakes_is_reported_with_line_and_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    mistakes = [(text, where, words) for text, _, where, words in FILES]
    mistakes += [(TOOLBOX % server, FS + below, words) for server, below, words in SERVERS]
    assert len(mistakes) + len(SYNTAX) > 100
    for text, where, words in mistakes:
        path.write_text(text)
        told = serve(path, capsys)
        assert f"{path}:" in told and where in told and words in told, (text, told)


def test_all_problems_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    servers = {f"s{number}": {"command": "x", "timeout": -number} for number in range(1, 21)}
    path.write_text(json.dumps({"mcpServers": servers}, indent=1))
    told = serve(path, capsys)
    assert all(f"$.mcpServers.s{number}.timeout" in told for number in range(1, 21))


def test_variables_that_name_each_other_are_no_cycle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    environment = {"A": "${B}", "B": "${C}", "C": "${A}"}
    path.write_text(json.dumps({"mcpServers": {"s": {"command": "x", "env": environment}}}, indent=1))
    assert main(["check", "--config", str(path)]) == 2
    told = capsys.readouterr().err
    assert all(f"$.mcpServers.s.env.{name}" in told for name in "ABC") and "is not set" in told


def test_ten_megabytes_are_judged_like_any_other_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    document = {"history": ["x" * 1000] * 10_000, "mcpServers": {"s": {"comand": "x"}}}
    path.write_text(json.dumps(document, indent=1))
    assert path.stat().st_size > 10_000_000
    assert f"{path}:10006" in (told := serve(path, capsys)) and "$.mcpServers.s.comand" in told


def test_a_folder_a_missing_file_and_a_file_without_permission_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is a folder" in serve(tmp_path, capsys)
    assert "does not exist" in serve(tmp_path / "missing.json", capsys)
    with tempfile.TemporaryDirectory() as folder:
        # The folders above `tmp_path` are closed to others as well.
        os.chmod(folder, 0o755)
        path = Path(folder) / "secret.json"
        path.write_text('{"mcpServers": {"s": {"command": "x"}}}')
        path.chmod(0)
        with _as_nobody():
            assert "ermission" in serve(path, capsys)


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Permissions mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.requirement("errors.config")
def test_no_server_is_started_for_a_file_that_is_half_right(tmp_path: Path) -> None:
    path, trace = tmp_path / "config.json", tmp_path / "started"
    good = {"command": "/bin/sh", "args": ["-c", f"touch {trace}"]}
    path.write_text(json.dumps({"mcpServers": {"good": good, "bad": {"command": 5}}}))
    done = subprocess.run(
        workbench_command(path, "--face", "flat"), stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"$.mcpServers.bad.command" in done.stderr and b"hint" not in done.stderr.splitlines()[0]
    assert not trace.exists()
