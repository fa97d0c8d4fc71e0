"""Servers that crash: calls under way fail at once and say everything, the next use works, nothing is repeated."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from tests.end_to_end.harness import ERAS, Workbench, error_text, open_toolbox, start_use, tool_names, unavailable
from tests.support.processes import alive, eventually
from tests.support.scripted_tools import TOOLS
from tests.support.workbench import logged, scripted_entry


@pytest.mark.requirement("errors.gone", "servers.stderr")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_crash_in_a_call_names_where_the_status_and_the_stderr(
    workbench: Workbench, client_era: str, server_era: str
) -> None:
    box = {"server": scripted_entry("--era", server_era), "sibling": scripted_entry()}
    async with workbench.serving({"box": box}, era=client_era) as client:
        await open_toolbox(client, "box")
        other = await client.start_tool("use_tool", start_use("box", "server", "hang"))
        text = error_text(
            await client.use_tool("box", "server", "crash", {"code": 7, "stderr": "Traceback\nValueError: boom\n"})
        )
        assert text.startswith("[box/server/crash] ")
        assert "status 7" in text and "ValueError: boom" in text
        text = error_text(await other.result())
        assert text.startswith("[box/server/hang] ") and "status 7" in text
        assert (await client.use_tool("box", "sibling", "count"))["structuredContent"] == {"count": 1}


@pytest.mark.requirement("servers.restart")
async def test_the_next_use_starts_a_crashed_server_again(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--starts", workbench.path("starts"))}
    async with workbench.serving({"box": box}) as client:
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
        await client.use_tool("box", "server", "crash")
        assert len(workbench.starts()) == 1, "not before it is needed"
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
        assert len(workbench.starts()) == 2


async def test_a_server_that_was_killed_between_calls_is_started_again(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry("--starts", workbench.path("starts"))}}) as client:
        await client.use_tool("box", "server", "count")
        (first,) = workbench.starts()
        os.kill(first, signal.SIGKILL)
        await client.wait_for(lambda: "killed by SIGKILL" in client.stderr, "word of it in the log")
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
        assert len(workbench.starts()) == 2


@pytest.mark.requirement("servers.never-replayed")
async def test_a_call_that_meets_a_dying_server_is_answered_and_never_repeated(workbench: Workbench) -> None:
    """The signal and the call race; whoever wins, the call runs at most once and ends."""
    log = workbench.path("log")
    box = {"server": scripted_entry("--starts", workbench.path("starts"), "--log", log)}
    async with workbench.serving({"box": box}) as client:
        for number in range(4):
            await open_toolbox(client, "box")
            os.kill((await client.use_tool("box", "server", "pid"))["structuredContent"]["pid"], signal.SIGKILL)
            result = await client.use_tool("box", "server", "echo", {"n": number})
            if not result.get("isError"):
                assert result["structuredContent"] == {"n": number}
    sent = [
        message["params"]["arguments"]["n"]
        for message in logged(log, "tools/call")
        if message["params"]["name"] == "echo"
    ]
    assert len(sent) == len(set(sent))


@pytest.mark.requirement("servers.never-replayed")
async def test_no_call_is_ever_repeated(workbench: Workbench) -> None:
    log = workbench.path("log")
    async with workbench.serving({"box": {"server": scripted_entry("--log", log)}}) as client:
        await open_toolbox(client, "box")
        calls = [await client.start_tool("use_tool", start_use("box", "server", "hang", {"n": n})) for n in range(10)]
        await client.use_tool("box", "server", "crash")
        for call in calls:
            assert "status 3" in error_text(await call.result())
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
    sent = [message["params"] for message in logged(log, "tools/call")]
    assert sorted(call["arguments"]["n"] for call in sent if call["name"] == "hang") == list(range(10))
    assert [call["name"] for call in sent if call["name"] != "hang"] == ["crash", "count"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--crash-on", "server/discover", "--crash-on", "initialize"), "status 9"),
        (("--crash-on", "tools/list"), "status 9"),
        (("--exit-at-start", 0), "status 0"),
    ],
)
async def test_crash_at_start_or_while_listing_fails_waiting_requests(
    workbench: Workbench, flags: tuple[Any, ...], reason: str
) -> None:
    box = {"server": scripted_entry(*flags, "--stderr", "last words"), "sibling": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        opening = await client.start_tool("open_toolbox", {"toolbox_name": "box"})
        using = await client.start_tool("use_tool", start_use("box", "server", "echo"))
        failed = unavailable(await opening.result())["server"]
        assert reason in failed["reason"] and "last words" in failed["reason"]
        assert reason in error_text(await using.result())


@pytest.mark.requirement("servers.given-up")
async def test_a_crash_loop_ends_after_five_failures_until_somebody_asks(workbench: Workbench) -> None:
    needed = workbench.path("needed")
    flags = ("--starts", workbench.path("starts"), "--require-file", needed, "--stderr", "cannot live")
    async with workbench.serving({"box": {"server": scripted_entry(*flags, protocol="legacy")}}) as client:
        # Each open is an explicit request for another try; uses are not.
        texts = [error_text(await client.use_tool("box", "server", "count")) for _ in range(7)]
        assert len(workbench.starts()) == 5
        assert all("cannot live" in text for text in texts)
        assert [("not restarted" in text) for text in texts] == [False] * 5 + [True] * 2
        assert "open the toolbox `box`" in texts[-1]
        assert list(unavailable(await open_toolbox(client, "box"))) == ["server"]
        assert len(workbench.starts()) == 6
        needed.touch()
        assert tool_names(await open_toolbox(client, "box")) == sorted(TOOLS)
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}


@pytest.mark.requirement("isolation.failures")
async def test_a_server_that_failed_for_good_costs_no_processes_and_others_go_on(workbench: Workbench) -> None:
    box = {"bad": scripted_entry("--exit-at-start", 1, protocol="legacy"), "good": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        calls = [await client.start_tool("use_tool", start_use("box", "bad", "count")) for _ in range(50)]
        for call in calls:
            assert "status 1" in error_text(await call.result())
        assert (await client.use_tool("box", "good", "count"))["structuredContent"] == {"count": 1}


async def test_a_server_that_closes_its_output_but_lives_on_fails_its_calls_and_is_ended(workbench: Workbench) -> None:
    script = (
        "import json, os, sys, time\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    result = {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 's'}}\n"
        "    if message['method'] == 'tools/list':\n"
        "        result = {'tools': [{'name': 't', 'inputSchema': {}}]}\n"
        "    if message['method'] == 'tools/call':\n"
        "        os.close(1)\n"
        "        time.sleep(600)\n"
        "    if 'id' in message:\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': result}), flush=True)\n"
    )
    pids = workbench.path("pids")
    command = f'echo $$ >> {pids}; exec python3 -c "$SCRIPT"'
    entry = {"command": "/bin/sh", "args": ["-c", command], "env": {"SCRIPT": script}, "protocol": "legacy"}
    async with workbench.serving({"box": {"server": entry}}) as client:
        text = error_text(await client.use_tool("box", "server", "t"))
        assert "closed its output" in text
        pid = int(pids.read_text())
        await eventually(lambda: not alive(pid), what="the end of the server")


async def test_many_crashes_leave_no_process_and_no_descriptor(workbench: Workbench) -> None:
    from tests.support.processes import descendants, open_descriptors

    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await client.use_tool("box", "server", "count")
        before = len(descendants(client.pid)), len(open_descriptors(client.pid))
        for _ in range(4):
            await client.use_tool("box", "server", "crash")
            await open_toolbox(client, "box")
            await client.use_tool("box", "server", "count")
        await eventually(
            lambda: (len(descendants(client.pid)), len(open_descriptors(client.pid))) == before,
            what="as many processes and descriptors as before",
        )


async def test_a_crash_is_reported_within_moments_even_when_a_grandchild_holds_the_pipes(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--spawn-grandchild", workbench.path("grandchild"))}
    async with workbench.serving({"box": box}) as client:
        await client.use_tool("box", "server", "count")
        async with asyncio.timeout(10):
            assert "status 3" in error_text(await client.use_tool("box", "server", "crash"))
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
