"""A child process from its start until nothing is left of it."""

from __future__ import annotations

import gc
import os
import resource
import shlex
import signal
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from mcp_workbench.engine.transport import child
from mcp_workbench.engine.transport.child import ChildLink, describe_exit, spawn
from mcp_workbench.engine.transport.processes import PROCESS_MARK_VARIABLE, ProcessTable
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import DownstreamError
from tests.engine.transport.rigs import LIMIT, Recorder
from tests.support.processes import alive, available, descendants, eventually, open_descriptors
from tests.support.workbench import scripted_command

MIB = 1024 * 1024

pytestmark = pytest.mark.skipif(not available(), reason="asks /proc about processes")


@pytest.fixture(autouse=True)
def _short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of stopping are the subject, not how patient they are."""
    monkeypatch.setattr(child, "EOF_GRACE", 0.2)
    monkeypatch.setattr(child, "TERM_GRACE", 0.2)


@pytest.fixture
def table() -> Iterator[ProcessTable]:
    table = ProcessTable()
    yield table
    table.close()


def start(
    table: ProcessTable, command: list[str], *, env: dict[str, str] | None = None, cwd: str | None = None
) -> tuple[ChildLink, Recorder]:
    recorder = Recorder()
    batch = WriteBatch()
    program, *arguments = command
    env = {**os.environ} if env is None else env
    link = spawn(program, tuple(arguments), env, cwd, table=table, batch=batch, receiver=recorder, limit=LIMIT)
    return link, recorder


@asynccontextmanager
async def running(table: ProcessTable, script: str, **options: str) -> AsyncIterator[tuple[ChildLink, Recorder]]:
    link, recorder = start(table, ["/bin/sh", "-c", script], **options)  # type: ignore[arg-type]
    try:
        yield link, recorder
    finally:
        await link.stop()


# How it begins


async def test_a_server_has_the_environment_that_it_is_given_and_its_mark(
    table: ProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "secret")
    link, recorder = start(table, ["/usr/bin/env"], env={"GIVEN": "a b"})
    await recorder.wait_closed()
    variables = dict(line.decode().split("=", 1) for line in recorder.messages)
    assert variables.pop(PROCESS_MARK_VARIABLE)
    assert variables == {"GIVEN": "a b"}
    await link.stop()


async def test_a_workbench_that_is_a_server_is_found_as_we_were(
    table: ProcessTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "mcp_workbench"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("print('found')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    link, recorder = start(table, ["mcp-workbench"], env={"PATH": str(tmp_path)})
    assert await recorder.wait_messages(1) == [b"found"]
    await link.stop()


async def test_a_command_is_found_on_the_path_that_the_configuration_sets(table: ProcessTable, tmp_path: Path) -> None:
    program = tmp_path / "my-server"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    link, recorder = start(table, ["my-server"], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert await recorder.wait_messages(1) == [b"found"]
    await link.stop()


async def test_a_relative_command_and_its_work_start_in_the_working_directory(
    table: ProcessTable, tmp_path: Path
) -> None:
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    link, recorder = start(table, ["./run.sh"], cwd=str(tmp_path))
    assert await recorder.wait_messages(1) == [str(tmp_path).encode()]
    await link.stop()


async def test_a_server_leads_a_group_of_its_own_and_inherits_three_descriptors(table: ProcessTable) -> None:
    script = "import os; print(os.getpid(), os.getpgrp(), os.getsid(0), *sorted(map(int, os.listdir('/proc/self/fd'))))"
    link, recorder = start(table, [sys.executable, "-c", script])
    pid, group, session, *descriptors = map(int, (await recorder.wait_messages(1))[0].split())
    assert pid == group == session == link.pid
    # The fourth is the one that lists the folder.
    assert descriptors[:3] == [0, 1, 2] and len(descriptors) == 4
    await link.stop()


@pytest.mark.parametrize(
    ("command", "reason", "hint"),
    [
        ("no-such-command-anywhere", "command `no-such-command-anywhere` was not found on PATH", "install it"),
        ("/no/such/program", "command `/no/such/program` does not exist", "correct `command`"),
        ("{folder}", "command `{folder}` is a folder", "name the program inside it"),
        ("{folder}/plain.txt", "command `{folder}/plain.txt` is not executable", "chmod"),
        ("{folder}/shebang", "command `{folder}/shebang` does not exist", "first line"),
        ("{folder}/garbage", "command `{folder}/garbage` cannot be started: Exec format error", None),
    ],
)
async def test_a_failed_start_reports_cause_and_remedy(
    table: ProcessTable, tmp_path: Path, command: str, reason: str, hint: str | None
) -> None:
    (tmp_path / "plain.txt").write_text("text")
    for name, content in (("shebang", b"#!/no/such/interpreter\n"), ("garbage", b"\x7fELFgarbage")):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    before = descendants(os.getpid())
    with pytest.raises(DownstreamError) as caught:
        start(table, [command.format(folder=tmp_path)])
    assert caught.value.message == reason.format(folder=tmp_path)
    assert (caught.value.hint is None) == (hint is None) and (hint or "") in (caught.value.hint or "")
    table.close()
    assert descendants(os.getpid()) == before


async def test_a_working_directory_that_does_not_exist_is_named(table: ProcessTable, tmp_path: Path) -> None:
    with pytest.raises(DownstreamError, match=r"working directory `.*/nowhere` does not exist"):
        start(table, ["/bin/sh"], cwd=str(tmp_path / "nowhere"))


async def test_an_argument_that_no_process_can_have_is_an_error(table: ProcessTable) -> None:
    with pytest.raises(DownstreamError, match=r"cannot be started: .*null"):
        start(table, ["/bin/sh", "-c", "\0"])


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Exactly this many descriptors can be opened inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 20, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_with_too_few_free_descriptors_a_start_fails_clearly_and_leaves_nothing(table: ProcessTable) -> None:
    table.prepare()
    before = descendants(os.getpid()), open_descriptors().keys()
    outcomes = []
    for count in range(16):
        outcome: ChildLink | DownstreamError
        with free_descriptors(count):
            try:
                outcome = start(table, ["/bin/cat"])[0]
            except DownstreamError as error:
                outcome = error
        outcomes.append(isinstance(outcome, ChildLink))
        if isinstance(outcome, ChildLink):
            await outcome.stop()
        else:
            assert "Too many open files" in outcome.message
        assert (descendants(os.getpid()), open_descriptors().keys()) == before
    assert outcomes[0] is False
    assert outcomes[-1] is True


# What it says


async def test_100_megabytes_on_stderr_are_drained_and_hold_up_nothing(table: ProcessTable) -> None:
    noisy = "head -c 50000000 /dev/zero | tr '\\0' 'x' >&2; head -c 50000000 /dev/zero | tr '\\0' '\\n' >&2; "
    async with running(table, noisy + "echo last words >&2; echo done; cat") as (link, recorder):
        assert await recorder.wait_messages(1) == [b"done"]
        await recorder.wait(lambda: link.stderr_lines(1) == ["last words"])


@pytest.mark.parametrize("status", [0, 3, 255])
async def test_the_exit_status_is_reported_with_the_end(table: ProcessTable, status: int) -> None:
    async with running(table, f"echo out; echo why >&2; exit {status}") as (link, recorder):
        assert await recorder.wait_closed() == f"the server exited with status {status}"
        assert recorder.messages == [b"out"]
        assert link.stderr_lines(8) == ["why"]
        assert repr(link) == f"<ChildLink pid={link.pid} the server exited with status {status}>"


async def test_a_signal_that_ended_it_is_named(table: ProcessTable) -> None:
    async with running(table, "kill -KILL $$") as (_, recorder):
        assert "SIGKILL" in await recorder.wait_closed()


def test_every_exit_status_has_words() -> None:
    assert "SIGSEGV" in describe_exit(-signal.SIGSEGV)
    assert "99" in describe_exit(-99)


async def test_a_server_that_closes_its_output_but_lives_is_as_good_as_gone(table: ProcessTable) -> None:
    async with running(table, "exec >&-; exec sleep 600") as (link, recorder):
        assert await recorder.wait_closed() == "the server closed its output"
        assert alive(link.pid)


async def test_a_server_that_closes_its_input_but_lives_is_as_good_as_gone(table: ProcessTable) -> None:
    async with running(table, "exec <&-; echo ready; exec sleep 600") as (link, recorder):
        await recorder.wait_messages(1)
        link.send(b"anybody there?")
        assert "closed its input" in await recorder.wait_closed()


async def test_a_grandchild_that_holds_the_pipes_open_does_not_hide_the_end(table: ProcessTable) -> None:
    async with running(table, "sleep 600 & exit 7") as (_, recorder):
        assert "status 7" in await recorder.wait_closed()


async def test_the_end_is_noticed_without_pidfd_too(table: ProcessTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS, and kernels before 5.3."""
    monkeypatch.delattr(os, "pidfd_open")
    async with running(table, "exit 4") as (_, recorder):
        assert "status 4" in await recorder.wait_closed()


# How it ends


async def test_closing_its_input_is_enough_for_a_server_that_honours_it(table: ProcessTable, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"trap 'echo term > {told}' TERM; cat; echo eof > {told}"
    link, _ = start(table, ["/bin/sh", "-c", script])
    await link.stop()
    assert link.exit_status == 0
    assert told.read_text() == "eof\n"


async def test_a_server_that_ignores_the_end_of_its_input_gets_term(table: ProcessTable, tmp_path: Path) -> None:
    ready, told = tmp_path / "ready", tmp_path / "told"
    link, _ = start(
        table, ["/bin/sh", "-c", f"trap 'echo term > {told}; exit 5' TERM; touch {ready}; while :; do sleep 0.02; done"]
    )
    await eventually(ready.exists)
    await link.stop()
    assert link.exit_status == 5
    assert told.read_text() == "term\n"


async def test_a_server_that_ignores_term_is_killed(table: ProcessTable) -> None:
    link, recorder = start(table, ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"])
    await recorder.wait_messages(1)
    await link.stop()
    assert link.exit_status == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["group", "daemon"])
@pytest.mark.parametrize("wrapper", ["none", "sh", "sh and exit"])
async def test_nothing_that_a_server_started_outlives_it(
    table: ProcessTable, tmp_path: Path, kind: str, wrapper: str
) -> None:
    written = tmp_path / "grandchild"
    command = scripted_command("--spawn-grandchild", written, "--grandchild-kind", kind)
    if wrapper == "sh":
        command = ["/bin/sh", "-c", f"{shlex.join(command)}; exit $?"]
    elif wrapper == "sh and exit":
        command = ["/bin/sh", "-c", f"{shlex.join(command)} & exit 0"]
    link, recorder = start(table, command)
    await eventually(written.exists, what="the grandchild's process id")
    grandchild = int(written.read_text())
    if wrapper == "sh and exit":
        await recorder.wait_closed()
    assert alive(grandchild)
    await link.stop()
    assert not alive(grandchild)
    assert not alive(link.pid)


async def test_stopping_one_server_leaves_the_strays_of_another_alone(table: ProcessTable, tmp_path: Path) -> None:
    daemons: list[Path] = [tmp_path / "first", tmp_path / "second"]
    links = []
    for written in daemons:
        command = scripted_command("--spawn-grandchild", written, "--grandchild-kind", "daemon")
        links.append(start(table, command)[0])
        await eventually(written.exists, what="the daemon's process id")
    first, second = (int(written.read_text()) for written in daemons)
    await links[0].stop()
    assert (alive(first), alive(second)) == (False, True)
    assert links[1].exit_status is None
    await links[1].stop()
    assert not alive(second)


async def test_half_an_answer_is_let_go_with_a_server_that_cannot_be_read(
    table: ProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link and its readers refer to each other: what it holds would stay until the garbage collector comes by."""
    read, came = os.read, 0

    def read_until_memory_is_short(fd: int, size: int) -> bytes:
        nonlocal came
        if came > 4 * MIB:
            raise MemoryError
        data = read(fd, size)
        came += len(data)
        return data

    script = f"import os; [os.write(1, b'x' * {MIB}) for _ in range(8)]"
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        link, recorder = start(table, [sys.executable, "-c", script])
        monkeypatch.setattr(os, "read", read_until_memory_is_short)
        assert await recorder.wait_closed() == "the server's output cannot be read: there is not enough memory"
        _, most = tracemalloc.get_traced_memory()
        assert most > 4 * MIB
        await link.stop()
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_stopping_a_server_that_is_gone_already_is_quick_and_leaves_no_descriptor(table: ProcessTable) -> None:
    table.prepare()
    before = open_descriptors()
    for _ in range(3):
        link, recorder = start(table, ["/bin/sh", "-c", "exit 0"])
        await recorder.wait_closed()
        await link.stop()
    assert open_descriptors().keys() == before.keys()
