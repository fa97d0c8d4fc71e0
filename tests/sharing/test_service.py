"""`up --foreground` as a service manager runs it: it takes the place of whichever workbench is there when that ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.cli.commands.up import REPLACED
from mcp_workbench.engine.process_context import LOCK_FILE, WANTED_FILE, make_private, runtime_folder
from mcp_workbench.sharing.front.commanding import ask
from mcp_workbench.sharing.front.joining import take_lock
from tests.cli.shell import COMMAND, environment, run
from tests.sharing.harness import END_SECONDS, Shared
from tests.support.processes import wait_until


@contextmanager
def service(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A service that runs, and what it writes to stderr."""
    said = folder / "service.log"
    with said.open("wb") as log:
        command = [*COMMAND, "up", "--foreground"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=environment())
    try:
        yield process, said
    finally:
        process.kill()
        process.wait()


def wait_for(said: Path, text: str) -> None:
    wait_until(lambda: text in said.read_text(), END_SECONDS, what=text)


def test_a_service_waits_for_the_one_that_runs_and_takes_its_place(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    with service(tmp_path) as (process, said):
        wait_for(said, "taking its place when it ends")
        # What service managers send to have files read again.
        process.send_signal(signal.SIGHUP)
        shared.kill()
        wait_for(said, f"ready, process {process.pid}")
        assert int(ask("ping")) == process.pid
        # Its own is started again, by whoever watches over it.
        assert run("restart").status == 0
        assert process.wait(END_SECONDS) == REPLACED
    assert os.path.lexists(os.path.join(runtime_folder(), WANTED_FILE))


def test_a_service_that_is_taken_down_stays_down(shared: Shared, tmp_path: Path) -> None:
    with service(tmp_path) as (process, said):
        wait_for(said, "ready, process")
        assert run("down").status == 0
        assert process.wait(END_SECONDS) == 0


def test_a_service_that_waits_ends_when_the_one_that_runs_is_taken_down(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    with service(tmp_path) as (process, said):
        wait_for(said, "taking its place when it ends")
        assert run("down").status == 0
        assert process.wait(END_SECONDS) == 0
    assert "was stopped by `mcp-workbench up --stop`" in said.read_text()
    assert not os.path.lexists(os.path.join(runtime_folder(), WANTED_FILE))


def test_sharing_is_not_switched_on_by_a_service_that_waits(shared: Shared, tmp_path: Path) -> None:
    make_private(runtime_folder())
    lock = take_lock(runtime_folder())
    assert lock is not None
    wanted = os.path.join(runtime_folder(), WANTED_FILE)
    try:
        with service(tmp_path) as (process, said):
            wait_for(said, "taking its place when it ends")
            process.terminate()
            assert process.wait(END_SECONDS) == -signal.SIGTERM
            assert not os.path.lexists(wanted)
    finally:
        os.close(lock)


def test_a_lock_whose_file_was_removed_while_it_was_waited_for_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda lock, how: os.unlink(tmp_path / LOCK_FILE))
    assert take_lock(str(tmp_path), waits=True) is None
