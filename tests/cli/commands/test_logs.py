"""`mcp-workbench logs`, and the file behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from mcp_workbench.app.serving import LAST_ANSWERS_FLUSH_TIMEOUT, STDIO_DRAIN_TIMEOUT
from mcp_workbench.cli.commands import logs
from mcp_workbench.cli.commands.logs import LineFilter
from mcp_workbench.engine.observe import rotated_log
from mcp_workbench.engine.observe.rotated_log import OLD, RotatedLog
from mcp_workbench.engine.transport.child import EOF_GRACE, EXIT_STATUS_GRACE, KILL_GRACE, TERM_GRACE
from mcp_workbench.engine.transport.http.client.http_link import HTTP_LINK_STOP_TIMEOUT
from mcp_workbench.setup import service
from mcp_workbench.setup.service import service_text
from mcp_workbench.sharing.client import LAST_REQUESTS_TIMEOUT
from mcp_workbench.sharing.front.joining import WORKBENCH_END_TIMEOUT, log_path
from mcp_workbench.signin.signed_in_headers import REFRESH_SETTLE_TIMEOUT
from tests.cli.shell import COMMAND, environment, run
from tests.support.client import RawClient
from tests.support.processes import eventually
from tests.support.workbench import scripted_entry, workbench_command, write_config

AT = "2026-11-17 01:02:03"
LINES = [
    f"{AT} INFO    one",
    f"{AT} INFO    [box/git] ready",
    f"{AT} INFO    [box/github] ready",
    f"{AT} DEBUG   [box/git] stderr: hello",
    f"{AT} WARNING last",
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


def test_rotated_log_is_printed_first(log: Path) -> None:
    Path(f"{log}{OLD}").write_text("before\n")
    assert run("logs").stdout.splitlines() == ["before", *LINES]


@pytest.mark.parametrize("name", ["git", "box/git"])
def test_a_server_is_distinguished_from_those_with_a_longer_name(log: Path, name: str) -> None:
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


def test_a_level_leaves_its_own_lines_and_worse_ones(log: Path) -> None:
    assert run("logs", "--level", "WARNING").stdout.splitlines() == [LINES[4]]
    assert run("logs", "--level", "info", "git").stdout.splitlines() == [LINES[1]]
    done = run("logs", "--level", "error", "git")
    assert (done.stdout, done.stderr) == (
        "", "note: the shared workbench has logged nothing of level error or worse about `git` yet\n"
    )  # fmt: skip
    done = run("logs", "--level", "bad")
    assert done.status == 2 and "--level is one of debug, info, warning, error, not `bad`" in done.stderr


def test_other_workbenches_can_only_be_followed() -> None:
    done = run("logs", "--pid", "1")
    assert done.status == 2 and "add --follow" in done.stderr
    done = run("logs", "--pid", "1", "--follow")
    assert done.status == 2 and "no workbench is running as process 1" in done.stderr


@pytest.mark.processes
async def test_a_running_serve_is_followed_and_then_the_one_that_comes_after_it(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry(), "two": scripted_entry()}})
    env = environment({"XDG_RUNTIME_DIR": str(tmp_path)})
    async with contextlib.AsyncExitStack() as stack:
        follower: asyncio.subprocess.Process | None = None
        for _ in range(2):
            async with RawClient.spawn(workbench_command(config), env=env) as client:
                await client.initialize()
                await eventually(lambda: bool(list(tmp_path.glob("*/*.watch.sock"))))
                if follower is None:
                    follower = await _following(stack, client.pid, env)
                assert await _line(follower) == f"note: following process {client.pid}\n"
                for server in ("one", "two"):
                    await client.use_tool("box", server, "echo", {"text": "x"})
                # The lines about the other server are not shown.
                assert "[box/two] ready after " in await _line(follower)
                pid = client.pid
            while "has ended" not in (line := await _line(follower)):
                assert "[box/two]" in line
            assert line == f"note: process {pid} has ended; waiting for another one of `{config}`\n"
        assert follower is not None
        follower.send_signal(signal.SIGINT)
        assert await follower.wait() == 130


async def _following(stack: contextlib.AsyncExitStack, pid: int, env: dict[str, str]) -> asyncio.subprocess.Process:
    made = await asyncio.create_subprocess_exec(
        *COMMAND, "logs", "--follow", "--pid", str(pid), "two",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=env,
    )  # fmt: skip

    async def end() -> None:
        if made.returncode is None:
            made.kill()
            await made.wait()

    stack.push_async_callback(end)
    return made


async def _line(follower: asyncio.subprocess.Process) -> str:
    assert follower.stdout is not None
    async with asyncio.timeout(60):
        return (await follower.stdout.readline()).decode()


def test_following_goes_on_across_a_full_file(log: Path) -> None:
    command = [*COMMAND, "logs", "-f", "git"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as following:
        assert following.stdout is not None
        # It goes on for ever: a test that fails must not wait for that.
        deadline = threading.Timer(60, following.kill)
        deadline.start()
        assert [following.stdout.readline() for _ in range(2)] == [f"{LINES[1]}\n", f"{LINES[3]}\n"]
        with log.open("a") as file:
            file.write(f"{AT} INFO    [box/git] third\n  of two lines\n{AT} INFO    [box/other] not this\nnor this\n")
        assert following.stdout.readline() == f"{AT} INFO    [box/git] third\n"
        assert following.stdout.readline() == "  of two lines\n"
        os.replace(log, f"{log}{OLD}")
        log.write_text(f"{AT} INFO    [box/git] fourth\n")
        assert following.stdout.readline() == f"{AT} INFO    [box/git] fourth\n"
        following.send_signal(signal.SIGINT)
        assert following.wait() == 130, "Ctrl-C ends it"
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
        logs._follow(str(log), log.open("rb"), LineFilter(None, None))
    assert capsys.readouterr().out.splitlines() == [*LINES, "between", "fresh"]


def test_a_full_file_becomes_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotated_log, "MAX_LOG_FILE_BYTES", 100)
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


def test_ending_a_workbench_waits_for_its_longest_shutdown() -> None:
    """A refresh that is cut off loses the token that came back, and with it the sign-in."""
    of_servers = EOF_GRACE + TERM_GRACE + KILL_GRACE + EXIT_STATUS_GRACE
    longest = (
        LAST_REQUESTS_TIMEOUT
        + STDIO_DRAIN_TIMEOUT
        + LAST_ANSWERS_FLUSH_TIMEOUT
        + max(of_servers, HTTP_LINK_STOP_TIMEOUT)
    )
    longest += REFRESH_SETTLE_TIMEOUT
    assert longest < WORKBENCH_END_TIMEOUT < service.SERVICE_STOP_TIMEOUT
    assert f"TimeoutStopSec={service.SERVICE_STOP_TIMEOUT}\n" in service_text("linux")
    assert f"<key>ExitTimeOut</key>\n  <integer>{service.SERVICE_STOP_TIMEOUT}</integer>" in service_text("darwin")
