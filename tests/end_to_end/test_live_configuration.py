"""A configuration that is edited while it is served: as people and editors do it, with real processes."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import signal
import tempfile
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.shell import run
from tests.end_to_end.harness import Workbench, error_text, open_toolbox
from tests.support.client import Json, RawClient
from tests.support.processes import alive, available, eventually
from tests.support.workbench import scripted_entry, workbench_command, write_config


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="wb-") as folder:
        yield Path(folder)


pytestmark = pytest.mark.skipif(not available(), reason="asks /proc about processes")

SETTINGS: Json = {"budget": None}


def config_text(toolboxes: Json) -> str:
    written = {name: {"description": f"Toolbox {name}.", "mcpServers": box} for name, box in toolboxes.items()}
    return json.dumps({"toolboxes": written, **SETTINGS})


async def in_force(client: RawClient, toolbox: str) -> None:
    """Ask until the toolbox is there, as an agent would that was told of it."""
    async with asyncio.timeout(30):
        while "does not exist" in (await open_toolbox(client, toolbox))["content"][0]["text"]:
            await asyncio.sleep(0.05)


def write_whole(file: Path, text: str) -> None:
    file.write_text(text)


def write_in_three_steps(file: Path, text: str) -> None:
    with file.open("w") as writing:
        for start in (0, len(text) // 3, 2 * len(text) // 3):
            end = len(text) if start > len(text) // 2 else start + len(text) // 3
            writing.write(text[start:end])
            writing.flush()


def replace_by_rename(file: Path, text: str) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(text)
    os.replace(draft, file)


def move_aside_and_write(file: Path, text: str) -> None:
    file.rename(file.with_suffix(".bak"))
    file.write_text(text)


@pytest.mark.parametrize("save", [write_whole, write_in_three_steps, replace_by_rename, move_aside_and_write])
async def test_a_saved_file_is_in_force_and_untouched_servers_keep_their_process(
    workbench: Workbench, save: Callable[[Path, str], None]
) -> None:
    stays = scripted_entry("--starts", workbench.path("starts"))
    async with workbench.serving({"box": {"stays": stays}}) as client:
        await open_toolbox(client, "box")
        hanging = await client.start_tool("use_tool", {"tool": "box/stays/hang", "arguments": {}})
        text = config_text({"box": {"stays": stays}, "new": {"one": scripted_entry()}})
        save(workbench.folder / "workbench-config.json", text)
        await in_force(client, "new")
        assert (await client.use_tool("new", "one", "echo", {"n": 1}))["structuredContent"] == {"n": 1}
        assert not hanging.answered
        await client.cancel(hanging)
        assert len(workbench.starts()) == 1
        assert "not valid" not in client.stderr, "no flicker"


async def test_a_half_written_file_is_reported_and_the_whole_one_is_in_force(workbench: Workbench) -> None:
    file = workbench.folder / "workbench-config.json"
    async with workbench.serving({"box": {"one": scripted_entry()}}) as client:
        text = config_text({"box": {"one": scripted_entry()}, "new": {"one": scripted_entry()}})
        file.write_text(text[: len(text) // 2])
        await client.wait_for(lambda: "stays in effect" in client.stderr, "the report of the problem")
        assert (await client.use_tool("box", "one", "echo", {"n": 1}))["structuredContent"] == {"n": 1}
        index = await client.call_tool("open_toolbox", {})
        assert index["content"][0]["text"].startswith("Note: the configuration file has changed")
        file.write_text(text)
        await in_force(client, "new")
        assert client.stderr.count("stays in effect") == 1


async def test_a_removed_server_ends_and_a_changed_one_is_another_process(workbench: Workbench) -> None:
    file = workbench.folder / "workbench-config.json"
    goes = scripted_entry("--starts", workbench.path("goes"))
    changes = scripted_entry("--starts", workbench.path("changes"))
    async with workbench.serving({"box": {"goes": goes, "changes": changes}}) as client:
        await open_toolbox(client, "box")
        for server in ("goes", "changes"):
            await client.use_tool("box", server, "echo", {})
        (went,), (before,) = workbench.starts("goes"), workbench.starts("changes")
        changed = {**changes, "env": {"A": "b"}}
        file.write_text(config_text({"box": {"changes": changed}, "new": {"one": scripted_entry()}}))
        await in_force(client, "new")
        await eventually(lambda: not alive(went), what="the end of the removed server")
        assert "does not exist" in error_text(await client.use_tool("box", "goes", "echo", {}))
        await client.use_tool("box", "changes", "echo", {})
        assert len(workbench.starts("changes")) == 2
        await eventually(lambda: not alive(before), what="the end of the server before")


@pytest.mark.parametrize("way", ["the command", "SIGHUP"])
async def test_reload_is_done_at_once_and_reports_its_result(workbench: Workbench, way: str, short: Path) -> None:
    file = workbench.folder / "workbench-config.json"
    runtime = {"XDG_RUNTIME_DIR": str(short)}
    async with workbench.serving({"box": {"one": scripted_entry()}}, env={**os.environ, **runtime}) as client:
        await open_toolbox(client, "box")
        file.write_text(config_text({"new": {"one": scripted_entry()}}))
        if way == "SIGHUP":
            client.process.send_signal(signal.SIGHUP)
        else:
            done = await asyncio.to_thread(run, "reload", env=runtime)
            assert (done.status, done.stdout, done.stderr) == (0, f"process {client.pid}: reloaded: {file}\n", "")
        await in_force(client, "new")
        if way == "the command":
            file.write_text("{")
            done = await asyncio.to_thread(run, "reload", client.pid, env=runtime)
            assert done.status == 1 and f"process {client.pid}: not reloaded: {file}" in done.stdout
            assert "workbench-config.json:1:" in done.stdout
            shown = await asyncio.to_thread(run, "status", env=runtime)
            assert "the configuration has changed, but the change has not taken effect" in shown.stdout


def test_reload_says_when_there_is_nothing_to_reload(short: Path) -> None:
    runtime = {"XDG_RUNTIME_DIR": str(short)}
    assert run("reload", env=runtime) == (2, "", "error: no workbench is running\n")
    assert run("reload", "12", env=runtime) == (2, "", "error: no workbench is running as process 12\n")
    assert run("reload", "x", env=runtime).status == 2


async def test_the_end_of_the_terminal_ends_us(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry()}})
    main, end = pty.openpty()

    def take_terminal() -> None:
        # Whoever runs the tests may have it ignored, and then it would stay so.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(end, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *workbench_command(config, "--http", "127.0.0.1:0", "--no-token"),
        stdin=end,
        stdout=end,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=take_terminal,
    )
    os.close(end)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            while b"serving MCP at" not in await process.stderr.readline():
                pass
            os.close(main)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_changed_file_of_variables_starts_its_servers_again(workbench: Workbench) -> None:
    variables = workbench.path("variables.env")
    variables.write_text("COLOUR=red\n")
    variables.chmod(0o600)
    painted = scripted_entry("--starts", workbench.path("painted"), envFile=str(variables))
    plain = scripted_entry("--starts", workbench.path("plain"))

    async def colour(client: RawClient) -> str:
        value: str = (await client.use_tool("box", "painted", "env", {"name": "COLOUR"}))["structuredContent"]["value"]
        return value

    async with workbench.serving({"box": {"painted": painted, "plain": plain}}) as client:
        await client.use_tool("box", "plain", "echo", {})
        assert await colour(client) == "red"
        # Followed from a second after the start on; what is changed before that counts as well.
        variables.write_text("COLOUR=green\n")
        async with asyncio.timeout(30):
            while await colour(client) != "green":
                await asyncio.sleep(0.05)
        await client.use_tool("box", "plain", "echo", {})
        assert (len(workbench.starts("painted")), len(workbench.starts("plain"))) == (2, 1)
