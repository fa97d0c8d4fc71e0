"""How a client is taken in: nobody who is served already waits for it, and whoever is not is told so."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from mcp_workbench import __version__
from mcp_workbench.cli.serving_context import MAX_FILES_REMEMBERED, Contexts
from mcp_workbench.engine.config.choose import ChosenConfig, ConfigSource
from mcp_workbench.engine.config.load import has_changed
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.socket_peers import is_confined
from mcp_workbench.engine.transport.confinement import GUARDED, start_confined
from mcp_workbench.sharing import workbench
from mcp_workbench.sharing.client import ClientContext
from mcp_workbench.sharing.front import joining
from mcp_workbench.sharing.front.line_protocol import SERVE_ALONE, written_hello
from mcp_workbench.sharing.hello import Hello
from mcp_workbench.sharing.workbench import Refused, SharedWorkbench
from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.support.client import RawClient
from tests.support.processes import available, eventually
from tests.support.workbench import scripted_entry, workbench_command, write_config

BOX = {"box": {"server": scripted_entry()}}
ContextOf = Callable[[Hello], Awaitable[ClientContext]]


@asynccontextmanager
async def listening(folder: Path, context_of: ContextOf) -> AsyncIterator[tuple[SharedWorkbench, socket.socket]]:
    """A shared workbench in this process, and the socket at which it listens."""
    folder.mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen()
    served = SharedWorkbench(listener, context_of, Redactor(()))
    running = asyncio.create_task(served.run())
    try:
        yield served, listener
    finally:
        served.end("the test is over", SERVE_ALONE)
        await running
        with suppress(OSError):
            folder.rmdir()


async def answer(path: Path, hello: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(hello)
    try:
        return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_configuration_that_is_slow_to_read_does_not_block_others(
    sockets_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def hangs(hello: Hello) -> ClientContext:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with listening(sockets_folder, hangs):
        monkeypatch.setattr(workbench, "CONFIG_READ_TIMEOUT", 1.0)
        refused = asyncio.create_task(answer(sockets_folder / "s", written_hello(())))
        await begun.wait()
        assert await answer(sockets_folder / "s", written_hello((), command="ping")) == b"\x01ping %d\n" % os.getpid()
        assert not refused.done()
        assert await refused == b"\x01unable its configuration could not be read within 1 s\n"


async def test_the_disk_is_looked_at_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []
    choose = ConfigSource.choose

    def look(source: ConfigSource) -> ChosenConfig:
        seen.append(threading.current_thread())
        return choose(source)

    monkeypatch.setattr(ConfigSource, "choose", look)
    config = str(write_config(tmp_path, BOX))
    await Contexts().of(Hello(1, arguments=("--config", config), folder=str(tmp_path)))
    assert len(seen) == 1 and seen[0] is not threading.main_thread()


async def test_a_client_that_cannot_be_served_is_told_to_serve_alone(sockets_folder: Path) -> None:
    async def fails(hello: Hello) -> ClientContext:
        raise ValueError("unforeseen")

    async with listening(sockets_folder, fails):
        told = await answer(sockets_folder / "s", written_hello(()))
    assert told.startswith(b"\x01unable the shared workbench cannot serve this client")


async def test_an_audit_that_cannot_be_written_is_reported_as_the_reason(
    sockets_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = str(write_config(tmp_path, BOX, shared=True, audit={"file": "/dev/null/audit.jsonl"}))
    async with listening(sockets_folder, Contexts().of):
        told = await answer(sockets_folder / "s", written_hello(("--config", config)))
    assert told.startswith(b"\x01unable the audit cannot be written to `/dev/null/audit.jsonl`: ")
    assert "the audit cannot be written" in caplog.text and "please report this" not in caplog.text


def hello_with(config: Path, **environ: str) -> Hello:
    return Hello(1, version=__version__, pid=1, arguments=("--config", str(config)), folder="/", environ=environ)


async def test_a_mistake_in_a_file_does_not_keep_new_clients_away(tmp_path: Path) -> None:
    """The file as it was last valid is used, and that is said."""
    contexts = Contexts()
    config = write_config(tmp_path, {"box": {"one": {"command": "${RUN:-x}"}}}, shared=True)
    before = await contexts.of(hello_with(config))
    config.write_text(config.read_text().replace('"command"', '"comand"'))
    after = await contexts.of(hello_with(config, RUN="y"))
    assert before.notes == () and after.notes == (
        f"{after.config.path}:7:11: $.toolboxes.box.mcpServers.one.comand: unknown key `comand`; did you mean "
        "`command`?\nuntil it is corrected, the last valid version of this file is used",
    )
    commands = [context.config.toolboxes["box"].servers["one"].command for context in (before, after)]
    # In the new client's environment, and still watched for the correction.
    assert commands == ["x", "y"]
    os.utime(config, ns=(1, 1))
    assert has_changed(after.config)
    with pytest.raises(Refused, match="unknown key `comand`"):
        await Contexts().of(hello_with(config))


async def test_only_the_client_without_the_variable_is_refused(tmp_path: Path) -> None:
    contexts = Contexts()
    config = write_config(tmp_path, {"box": {"one": {"command": "x"}}}, shared=True, audit={"file": "${FOLDER}/a"})
    assert (await contexts.of(hello_with(config, FOLDER="/x"))).notes == ()
    with pytest.raises(Refused, match="FOLDER"):
        await contexts.of(hello_with(config))


async def test_the_number_of_remembered_files_is_bounded(tmp_path: Path) -> None:
    contexts = Contexts()
    folders = [tmp_path / str(number) for number in range(MAX_FILES_REMEMBERED + 1)]
    for folder in folders:
        folder.mkdir()
        await contexts.of(hello_with(write_config(folder, BOX, shared=True)))
    for folder in (folders[0], folders[-1]):
        (folder / "workbench-config.json").write_text("{")
    with pytest.raises(Refused):
        await contexts.of(hello_with(folders[0] / "workbench-config.json"))
    assert (await contexts.of(hello_with(folders[-1] / "workbench-config.json"))).notes


async def test_one_that_was_started_at_the_moment_of_down_does_not_stay(sockets_folder: Path, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, BOX))
    async with listening(sockets_folder, Contexts().of) as (served, _):
        told = await answer(sockets_folder / "s", written_hello(("--config", config)))
        assert told.startswith(b"\x01alone ")
        await eventually(lambda: served._ending.is_set(), what="its end")


@pytest.mark.parametrize("path", ["~\0/x", "a\0b"])
async def test_a_path_that_cannot_be_is_reported_as_missing(path: str) -> None:
    with pytest.raises(Refused, match="does not exist") as refused:
        await Contexts().of(Hello(1, version=__version__, arguments=("--config", path), folder="/"))
    assert refused.value.verb == "alone"


async def test_without_descriptors_it_pauses_instead_of_asking_again_and_again(
    sockets_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    class Short(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            tries.append(len(tries))
            if len(tries) == 1:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    async def never(hello: Hello) -> ClientContext:
        raise AssertionError

    monkeypatch.setattr(workbench, "ACCEPT_RETRY_DELAY", 3600.0)
    async with listening(sockets_folder, never) as (served, _):
        served._listener = Short(fileno=served._listener.detach())
        waiting = asyncio.create_task(answer(sockets_folder / "s", written_hello((), command="ping")))
        await eventually(lambda: bool(tries))
        for _ in range(20):
            await asyncio.sleep(0)
        assert tries == [0] and served._accept_timer is not None
        served._stop_listening()
        served._listen()
        assert (await waiting).startswith(b"\x01ping ")


@pytest.mark.parametrize("flags", [(), ("--private",)], ids=["shared", "alone"])
async def test_a_folder_whose_name_is_no_unicode_is_as_good_as_any(shared: Shared, flags: tuple[str, ...]) -> None:
    shared.up()
    odd = os.fsencode(shared.folder) + b"/\xff"
    try:
        os.mkdir(odd)
    except OSError:
        pytest.skip("the file system takes Unicode alone")
    command = workbench_command(write_config(shared.folder, BOX, budget=None), *flags)
    async with RawClient.spawn(command, cwd=os.fsdecode(odd)) as client:
        await client.initialize()
        echoed = await client.use_tool("box", "server", "echo", {"text": "odd"})
        assert echoed["structuredContent"] == {"text": "odd"}
        shown = run("status")
        assert "box/server" in shown.stdout, shown


async def test_the_home_of_a_client_is_its_own(shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name)
    homes = {name: tmp_path / name for name in ("first", "second")}
    kept = "Library/Application Support" if sys.platform == "darwin" else ".config"
    for name, home in homes.items():
        (home / kept / "mcp-workbench").mkdir(parents=True)
        own = write_config(home / kept / "mcp-workbench", {f"own-{name}": BOX["box"]})
        named = json.loads(own.read_text())
        named["toolboxes"] = {f"named-{name}": named["toolboxes"][f"own-{name}"]}
        (home / "named.json").write_text(json.dumps(named))
    project = tmp_path / "project"
    project.mkdir()
    write_config(project, {"project": BOX["box"]})
    monkeypatch.setenv("HOME", str(homes["first"]))
    shared.up()
    # What one of them trusts is nothing to the other.
    assert run("trust", cwd=project).status == 0

    async def toolboxes(name: str, *flags: str, cwd: Path = tmp_path) -> str:
        command = [sys.executable, "-m", "mcp_workbench", "serve", *flags]
        env = {**os.environ, "HOME": str(homes[name])}
        async with RawClient.spawn(command, env=env, cwd=cwd) as client:
            await client.initialize()
            index = await client.call_tool("open_toolbox", {})
            return str(index["content"][0]["text"])

    for name in homes:
        assert f"own-{name}" in await toolboxes(name)
        assert f"named-{name}" in await toolboxes(name, "--config", "~/named.json")
    assert "project" in await toolboxes("first", cwd=project)
    assert "own-second" in await toolboxes("second", cwd=project)
    shared.clean_up()


async def test_a_second_signal_does_not_wait_for_a_command(sockets_folder: Path) -> None:
    """A reload reads files, which a disk that hangs never ends."""
    async with listening(sockets_folder, _unused) as (served, listener):
        began = asyncio.Event()

        async def reload() -> list[str]:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

        served.catalogs.reload = reload  # type: ignore[method-assign]
        asking = asyncio.create_task(answer(Path(listener.getsockname()), written_hello((), command="reload")))
        await began.wait()
        served._on_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        assert not asking.done(), "the first one lets it finish"
        served._on_signal(signal.SIGTERM)
        assert await asking == b""


async def test_long_first_lines_are_bounded_in_all(sockets_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "MAX_HELLO_BYTES_IN_ALL", 900_000)
    async with listening(sockets_folder, _unused) as (served, listener):
        writers = []
        for _ in range(3):
            reader, writer = await asyncio.open_unix_connection(listener.getsockname())
            writer.write(b'{"hello":1,"folder":"' + b"x" * 400_000)
            writers.append((reader, writer))
        _, waiting = await asyncio.wait(
            [asyncio.create_task(_read_to_the_end(reader)) for reader, _ in writers],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert served._hello_bytes <= 900_000 and len(waiting) == 2, "the last one is sent away, the others stay"
        for _, writer in writers:
            writer.close()
        await asyncio.wait(waiting)
        await eventually(lambda: served._hello_bytes == 0, what="what they held")


async def _read_to_the_end(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read()


async def _unused(hello: Hello) -> ClientContext:
    raise AssertionError(hello)


async def test_the_socket_of_another_one_is_left_alone(sockets_folder: Path) -> None:
    """Somebody removes the folder while one lives, and a second one starts."""
    path = sockets_folder / "s"
    async with listening(sockets_folder, _unused):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as second:
            second.bind(str(path))
    assert path.is_socket()
    path.unlink()


async def test_a_socket_that_is_its_own_goes_with_it(sockets_folder: Path) -> None:
    async with listening(sockets_folder, _unused):
        assert (sockets_folder / "s").is_socket()
    assert not (sockets_folder / "s").exists()


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\n", b'{"hello":1}\n'])
async def test_a_first_line_that_is_none_is_answered_with_the_reason(sockets_folder: Path, line: bytes) -> None:
    async with listening(sockets_folder, _unused):
        told = await answer(sockets_folder / "s", line)
    assert told.startswith(b"\x01unable the shared workbench refused the connection: its first line ")


async def test_options_for_the_log_are_said_to_have_no_effect(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX, "--debug", "--log-format", "json") as client:
        await client.wait_for(lambda: "no effect" in client.stderr, "a note")
        assert "--debug, --log-format have no effect" in client.stderr


async def test_a_full_disk_where_sockets_lie_leaves_everybody_alone(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listen(folder: str) -> socket.socket:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(joining, "listen", listen)
    with pytest.raises(joining.CannotJoin, match="cannot be started: No space left on device"):
        joining.start()
    assert not shared.is_running


@pytest.mark.skipif(not available() or is_confined(), reason="servers are recognised by no_new_privs")
async def test_processes_of_servers_are_neither_served_nor_obeyed(shared: Shared) -> None:
    shared.up()
    config = write_config(shared.folder, BOX)
    command = [sys.executable, "-m", "mcp_workbench"]
    async with shared.client(BOX) as client:
        down = start_confined(GUARDED, lambda: subprocess.run([*command, "down"], capture_output=True, text=True))
        assert down.returncode == 1 and workbench.OF_A_SERVER in down.stderr
        shared.up()
        serve = [*command, "serve", "--config", str(config)]
        alone = start_confined(
            GUARDED, lambda: subprocess.run(serve, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        )
        assert alone.returncode == 0 and alone.stderr.count("serving alone") == 1
        assert await client.request("ping") == {}
        assert shared.log.count("joins from") == 1
    assert len(shared.pids) == 1


@pytest.mark.skipif(not available() or is_confined(), reason="servers are recognised by no_new_privs")
async def test_a_workbench_that_is_a_server_serves_alone_without_a_word(shared: Shared) -> None:
    shared.up()
    inner = shared.folder / "inner"
    inner.mkdir()
    nested = {
        "command": sys.executable,
        "args": ["-m", "mcp_workbench", "serve", "--config", str(write_config(inner, BOX))],
    }
    async with shared.client({"box": {"first": scripted_entry(), "nested": nested}}) as client:
        done = await client.use_tool("box", "nested", "open_toolbox", {"toolbox_name": "box"})
        assert not done.get("isError"), done
    assert shared.log.count("joins from") == 1 and "serving alone" not in shared.log


async def test_it_always_counts_calls(sockets_folder: Path) -> None:
    async def nobody(_: Hello) -> ClientContext:
        raise AssertionError("no client comes")

    async with listening(sockets_folder / "counting", nobody) as (served, _):
        runtime = served.catalogs.runtime
        await eventually(lambda: runtime.figures is not None)
