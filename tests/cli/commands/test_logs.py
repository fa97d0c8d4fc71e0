"""`mcp-workbench logs`, and the file behind it."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from mcp_workbench.app.serving import FLUSH_SECONDS, STDIO_DRAIN_SECONDS
from mcp_workbench.cli.commands import logs
from mcp_workbench.engine.observe import rotated_log
from mcp_workbench.engine.observe.rotated_log import OLD, RotatedLog
from mcp_workbench.engine.transport.child import EOF_GRACE, EXIT_STATUS_GRACE, KILL_GRACE, TERM_GRACE
from mcp_workbench.engine.transport.http.client.http_link import STOP_SECONDS
from mcp_workbench.setup import service
from mcp_workbench.setup.service import service_text
from mcp_workbench.sharing.client import LAST_REQUESTS_SECONDS
from mcp_workbench.sharing.front.joining import WORKBENCH_END_TIMEOUT, log_path
from mcp_workbench.signin.signed_in_headers import SETTLE_SECONDS
from tests.cli.shell import COMMAND, environment, run

LINES = [
    "one",
    "2026 INFO [box/git] ready",
    "2026 INFO [box/github] ready",
    "2026 DEBUG [box/git] stderr: hello",
    "last",
]


@pytest.fixture
def log() -> Path:
    path = Path(log_path())
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def test_the_last_lines_are_printed(log: Path) -> None:
    assert run("logs").stdout.splitlines() == LINES
    assert run("logs", "--lines", "2").stdout.splitlines() == LINES[-2:]


def test_what_came_before_the_file_was_full_is_printed_first(log: Path) -> None:
    Path(f"{log}{OLD}").write_text("before\n")
    assert run("logs").stdout.splitlines() == ["before", *LINES]


@pytest.mark.parametrize("name", ["git", "box/git"])
def test_a_server_is_told_from_those_with_a_longer_name(log: Path, name: str) -> None:
    assert run("logs", name).stdout.splitlines() == [LINES[1], LINES[3]]


def test_without_a_log_it_is_said_that_there_is_none() -> None:
    assert run("logs") == (0, "", "note: the shared workbench has logged nothing yet\n")


def test_a_server_without_a_line_is_named(log: Path) -> None:
    assert run("logs", "nosuch") == (0, "", "note: the shared workbench has logged nothing about `nosuch` yet\n")


def test_a_server_with_a_similar_name_is_suggested(log: Path) -> None:
    assert "; did you mean `github`?" in run("logs", "githbu").stderr
    assert "; did you mean `box/github`?" in run("logs", "box/githbu").stderr


def test_a_number_of_lines_is_a_number(log: Path) -> None:
    done = run("logs", "--lines", "few")
    assert done.status == 2 and "--lines is a number, not `few`" in done.stderr


def test_following_goes_on_across_a_full_file(log: Path) -> None:
    command = [*COMMAND, "logs", "-f", "git"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as following:
        assert following.stdout is not None
        # It goes on for ever: a test that fails must not wait for that.
        deadline = threading.Timer(60, following.kill)
        deadline.start()
        assert [following.stdout.readline() for _ in range(2)] == [f"{LINES[1]}\n", f"{LINES[3]}\n"]
        with log.open("a") as file:
            file.write("[box/git] third\n[box/other] not this\n")
        assert following.stdout.readline() == "[box/git] third\n"
        os.replace(log, f"{log}{OLD}")
        log.write_text("[box/git] fourth\n")
        assert following.stdout.readline() == "[box/git] fourth\n"
        following.terminate()
        deadline.cancel()


def test_following_loses_nothing_that_was_written_right_before_a_file_was_full(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_another, looks = logs._is_another, iter(range(3))

    def rotated(path: str, file: BinaryIO) -> bool:
        if not os.path.exists(path + OLD):
            with log.open("a") as written:
                written.write("between\n")
            os.replace(path, path + OLD)
            log.write_text("fresh\n")
        return is_another(path, file)

    def sleep(seconds: float) -> None:
        if next(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(logs, "_is_another", rotated)
    monkeypatch.setattr("mcp_workbench.cli.commands.logs.time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        logs._follow(str(log), log.open("rb"), None)
    assert capsys.readouterr().out.splitlines() == [*LINES, "between", "fresh"]


def test_a_full_file_becomes_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotated_log, "LARGEST_LOG", 100)
    path = tmp_path / "folder" / "shared.log"
    log = RotatedLog(str(path))
    for number in range(10):
        log.write(f"{number}" * 30 + "\n")
    log.close()
    assert path.stat().st_size <= 100 and Path(f"{path}{OLD}").stat().st_size <= 100
    assert path.read_text().endswith("9\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["shared.log", "shared.log.1"]


def test_a_disk_that_is_full_is_no_reason_to_fail(tmp_path: Path) -> None:
    path = tmp_path / "shared.log"
    path.symlink_to("/dev/full")
    log = RotatedLog(str(path))
    log.write("lost\n")
    log.close()


def test_a_service_is_printed_for_each_system() -> None:
    unit, agent = service_text("linux"), service_text("darwin")
    assert "ExecStart=" in unit and "up --foreground" in unit and "WantedBy=default.target" in unit
    assert "<string>--foreground</string>" in agent and "<key>RunAtLoad</key>" in agent
    assert run("up", "--print-service").stdout in (unit, agent)
    # Started again after a crash and after `restart`, which end with a status other than 0; not after `down`.
    assert "\nRestart=on-failure\n" in unit
    assert "<key>SuccessfulExit</key>\n    <false/>" in agent


def test_whoever_ends_a_workbench_waits_for_as_long_as_it_may_take() -> None:
    """A refresh that is cut off loses the token that came back, and with it the sign-in."""
    of_servers = EOF_GRACE + TERM_GRACE + KILL_GRACE + EXIT_STATUS_GRACE
    longest = LAST_REQUESTS_SECONDS + STDIO_DRAIN_SECONDS + FLUSH_SECONDS + max(of_servers, STOP_SECONDS)
    longest += SETTLE_SECONDS
    assert longest < WORKBENCH_END_TIMEOUT < service.STOP_SECONDS
    assert f"TimeoutStopSec={service.STOP_SECONDS}\n" in service_text("linux")
    assert f"<key>ExitTimeOut</key>\n  <integer>{service.STOP_SECONDS}</integer>" in service_text("darwin")
