"""The end: whatever ends us, running calls are finished or answered, and no process is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.end_to_end.harness import Workbench, error_text, open_toolbox, start_use
from tests.support.client import Call, Json, RawClient
from tests.support.processes import alive, available, descendants, eventually
from tests.support.workbench import scripted_entry

pytestmark = pytest.mark.skipif(not available(), reason="asks /proc about processes")

ENDINGS: dict[str, Callable[[RawClient], None]] = {
    "EOF": lambda client: client.close_stdin(),
    "SIGTERM": lambda client: client.process.send_signal(signal.SIGTERM),
    "SIGINT": lambda client: client.process.send_signal(signal.SIGINT),
}
# What a killed workbench's servers may take to be gone.
GONE_WITHIN = 2.0


def wrapped(entry: Json, wrapper: str) -> Json:
    """The same server behind a shell, as `npx` puts one in front: one that waits for it, or one that does not."""
    command = shlex.join([entry["command"], *entry["args"]])
    script = f"{command}; exit $?" if wrapper == "stays" else f"exec 3<&0; {command} <&3 & exec sleep 600"
    return {**entry, "command": "/bin/sh", "args": ["-c", script]}


@asynccontextmanager
async def family(workbench: Workbench) -> AsyncIterator[tuple[RawClient, set[int]]]:
    """A workbench with servers of every kind that likes to stay: and everything below it, by process id."""
    grandchildren = [workbench.path(f"grandchild-{number}") for number in range(4)]
    box = {
        "plain": scripted_entry("--spawn-grandchild", grandchildren[0]),
        "stubborn": scripted_entry(
            "--ignore-eof", "--ignore-term", "--spawn-grandchild", grandchildren[1], "--grandchild-kind", "daemon"
        ),
        "wrapped": wrapped(scripted_entry("--spawn-grandchild", grandchildren[2]), "stays"),
        "abandoned": wrapped(
            scripted_entry("--spawn-grandchild", grandchildren[3], "--grandchild-kind", "daemon"), "leaves"
        ),
    }
    async with workbench.serving({"box": box}, expect_exit=False) as client:
        await open_toolbox(client, "box")
        for server in box:
            assert (await client.use_tool("box", server, "count"))["structuredContent"] == {"count": 1}
        for written in grandchildren:
            await eventually(written.exists, what="a grandchild")
        below = descendants(client.pid) | {int(written.read_text()) for written in grandchildren}
        assert len(below) >= 10
        yield client, below


@pytest.mark.requirement("shutdown.clean")
@pytest.mark.parametrize("ending", list(ENDINGS))
async def test_everything_below_us_goes_with_us_and_the_status_is_0(workbench: Workbench, ending: str) -> None:
    async with family(workbench) as (client, below):
        ENDINGS[ending](client)
        assert await client.wait_exit() == 0
        assert [pid for pid in below if alive(pid)] == []


@pytest.mark.requirement("shutdown.killed")
async def test_when_we_are_killed_everything_below_us_is_gone_within_two_seconds(workbench: Workbench) -> None:
    async with family(workbench) as (client, below):
        client.process.kill()
        await client.wait_exit()
        await eventually(lambda: not any(map(alive, below)), GONE_WITHIN, "the end of every server")


@pytest.mark.requirement("shutdown.urgent")
async def test_a_second_signal_ends_us_at_once_and_everything_with_us(workbench: Workbench) -> None:
    async with family(workbench) as (client, below):
        hanging = await client.start_tool("use_tool", start_use("box", "plain", "hang"))
        client.process.send_signal(signal.SIGTERM)
        await client.wait_for(lambda: "shutting down" in client.stderr, "word of shutting down")
        assert not hanging.answered, "it waits for the call"
        client.process.send_signal(signal.SIGTERM)
        assert await client.wait_exit() == 128 + signal.SIGTERM
        await eventually(lambda: not any(map(alive, below)), GONE_WITHIN, "the end of every server")


@pytest.mark.parametrize("ending", list(ENDINGS))
async def test_without_any_server_running_the_end_is_quiet(workbench: Workbench, ending: str) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}, expect_exit=False) as client:
        ENDINGS[ending](client)
        assert await client.wait_exit() == 0
        assert "Traceback" not in client.stderr


# Calls that run


async def running_calls(client: RawClient, tool: str, count: int, arguments: Json | None = None) -> list[Call]:
    calls = [await client.start_tool("use_tool", start_use("box", "server", tool, arguments)) for _ in range(count)]
    # All of them have arrived at the server before this one has.
    await client.use_tool("box", "server", "count")
    return calls


@pytest.mark.requirement("shutdown.calls")
@pytest.mark.parametrize("ending", list(ENDINGS))
async def test_calls_that_run_are_let_finish(workbench: Workbench, ending: str) -> None:
    box = {"server": scripted_entry()}
    async with workbench.serving({"box": box}, expect_exit=False) as client:
        await client.use_tool("box", "server", "count")
        calls = await running_calls(client, "slow", 100, {"seconds": 0.5})
        assert not any(call.answered for call in calls)
        ENDINGS[ending](client)
        for call in calls:
            assert (await call.result())["structuredContent"] == {"slept": 0.5}
        assert await client.wait_exit() == 0


@pytest.mark.requirement("shutdown.calls")
async def test_calls_that_do_not_finish_are_answered_with_an_error(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}, expect_exit=False) as client:
        await client.use_tool("box", "server", "count")
        hanging = await running_calls(client, "hang", 100)
        slow = await client.start_tool("use_tool", start_use("box", "server", "slow", {"seconds": 0.3}))
        client.process.send_signal(signal.SIGTERM)
        assert (await slow.result())["structuredContent"] == {"slept": 0.3}
        for call in hanging:
            text = error_text(await call.result())
            assert text.startswith("[box/server/hang] ") and "shutting down" in text
        assert await client.wait_exit() == 0


async def test_a_signal_after_the_client_has_gone_ends_the_waiting(workbench: Workbench) -> None:
    """The client closed our stdin and lost its patience: what still runs is answered now."""
    async with workbench.serving({"box": {"server": scripted_entry()}}, expect_exit=False) as client:
        await client.use_tool("box", "server", "count")
        (hanging,) = await running_calls(client, "hang", 1)
        client.close_stdin()
        await client.wait_for(lambda: "shutting down" in client.stderr, "word of shutting down")
        client.process.send_signal(signal.SIGTERM)
        assert "shutting down" in error_text(await hanging.result())
        assert await client.wait_exit() == 0


@pytest.mark.parametrize(
    "flags", [("--hang-on", "tools/list"), ("--hang-on", "server/discover", "--hang-on", "initialize")]
)
async def test_a_handshake_under_way_does_not_hold_up_the_shutdown(
    workbench: Workbench, flags: tuple[str, ...]
) -> None:
    """Its deadlines are a minute; ours is not."""
    box = {"server": scripted_entry(*flags, "--starts", workbench.path("starts"))}
    async with workbench.serving({"box": box}, expect_exit=False) as client:
        opening = await client.start_tool("open_toolbox", {"toolbox_name": "box"})
        await eventually(lambda: bool(workbench.starts()), what="the start of the server")
        await client.cancel(opening)
        client.close_stdin()
        assert await client.wait_exit() == 0
        assert not any(map(alive, workbench.starts()))


async def test_a_server_in_back_off_does_not_hold_up_the_end(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--exit-at-start", 1, protocol="legacy")}
    async with workbench.serving({"box": box}, expect_exit=False) as client:
        for _ in range(3):
            await client.use_tool("box", "server", "count")
        waiting = await client.start_tool("use_tool", start_use("box", "server", "count"))
        await client.cancel(waiting)
        client.close_stdin()
        assert await client.wait_exit() == 0


async def test_requests_that_come_with_the_end_are_still_answered(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}, expect_exit=False) as client:
        calls = [await client.start_tool("use_tool", start_use("box", "server", "echo", {"n": n})) for n in range(20)]
        client.close_stdin()
        for number, call in enumerate(calls):
            assert (await call.result())["structuredContent"] == {"n": number}
        assert await client.wait_exit() == 0


# While we serve


async def test_a_helper_that_a_server_orphans_is_no_zombie_and_ends_with_its_server(workbench: Workbench) -> None:
    written = workbench.path("daemon")
    flags = ("--spawn-grandchild", written, "--grandchild-kind", "daemon", "--starts", workbench.path("starts"))
    box = {"server": scripted_entry(*flags, idleTimeout=0.5), "other": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        await open_toolbox(client, "box")
        await eventually(written.exists, what="the daemon")
        daemon = int(written.read_text())
        await eventually(lambda: not alive(daemon), what="the end of the daemon with its idle server")
        await eventually(lambda: zombies(client.pid) == [], what="the reaping of what has ended")
        assert (await client.use_tool("box", "other", "count"))["structuredContent"] == {"count": 1}


def zombies(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        # One that is collected in this moment has no state any more.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found.append(int(child))
    return found


async def test_a_guardian_that_was_killed_is_replaced_with_the_next_server(workbench: Workbench) -> None:
    """Killed together with us it would be of no use; killed before, it must come back."""
    box = {"one": scripted_entry(), "two": scripted_entry("--starts", workbench.path("starts"))}
    async with workbench.serving({"box": box}, expect_exit=False) as client:
        server = (await client.use_tool("box", "one", "pid"))["structuredContent"]["pid"]
        (guardian,) = descendants(client.pid) - {server}
        os.kill(guardian, signal.SIGKILL)
        await eventually(lambda: not alive(guardian))
        await client.use_tool("box", "two", "count")
        below = descendants(client.pid)
        assert len(below) == 3
        client.process.kill()
        await client.wait_exit()
        await eventually(lambda: not any(map(alive, below)), GONE_WITHIN, "the end of every server")


async def test_a_thousand_signals_to_a_child_do_not_matter(workbench: Workbench) -> None:
    """SIGCHLD comes for every helper that ends; none may disturb a call."""
    script = "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid true &); done; exec "
    entry = scripted_entry()
    command = script + shlex.join([entry["command"], *entry["args"]])
    async with workbench.serving({"box": {"server": {"command": "/bin/sh", "args": ["-c", command]}}}) as client:
        for number in range(20):
            result = await client.use_tool("box", "server", "echo", {"n": number})
            assert result["structuredContent"] == {"n": number}
        async with asyncio.timeout(10):
            while zombies(client.pid):
                await asyncio.sleep(0.02)
