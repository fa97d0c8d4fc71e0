"""A server crashes: in a call, between calls, at its start, while it is listed.

Calls in flight fail within a second and say everything; the next use starts it again; nothing is replayed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from tests.faults.running_workbench import Faults, bad_entry, error_text
from tests.support.processes import eventually
from tests.support.workbench import logged

# The promise is one second; a noisy machine gets a few more before a test fails for it.
AT_ONCE = 5.0


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_in_a_call_everything_in_flight_fails_at_once_and_says_why(faults: Faults, era: str) -> None:
    log = faults.path("log")
    async with faults.serving({"bad": bad_entry("--log", log, timeout=60)}, era=era) as workbench:
        assert await workbench.value("bad", "count") == {"count": 1}
        hanging = [await workbench.start("bad", "hang", {"n": number}) for number in range(20)]
        async with asyncio.timeout(AT_ONCE):
            text = await workbench.failure("bad", "crash", {"status": 7, "stderr": "Traceback\nValueError: boom\n"})
            assert text.startswith("[box/bad/crash] the server exited with status 7")
            assert text.endswith("last lines of its stderr:\n  Traceback\n  ValueError: boom")
            for call in hanging:
                text = error_text(await call.result())
                assert text.startswith("[box/bad/hang] the server exited with status 7") and "boom" in text
        await workbench.others_work()
        assert await workbench.value("bad", "count") == {"count": 1}, "the next use starts it again"
    sent = [(call["params"]["name"], call["params"]["arguments"].get("n")) for call in logged(log, "tools/call")]
    assert len(sent) == len(set(sent)) + 1, "only `count` was called twice"


async def test_between_calls_the_next_use_starts_it_again(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}) as workbench:
        for round in range(4):
            # Each open is a plea for another chance: the server is not failed for good.
            await workbench.open()
            found = await workbench.value("bad", "pid")
            os.kill(found["pid"], signal.SIGKILL)
            text = workbench.process
            await text.wait_for(
                lambda seen=round, text=text: text.stderr.count("killed by SIGKILL") > seen,  # type: ignore[misc]
                "word of it in the log",
            )
            # Whether its end is noticed before or after it counts as started is the machine's to decide.
        assert (await workbench.server_status())["state"] in ("backoff", "failed")
        assert (await workbench.value("bad", "count")) == {"count": 1}


@pytest.mark.parametrize(
    "when", [{"start": {}}, {"on": {"initialize": {}}}, {"on": {"tools/list": {}}}], ids=["start", "handshake", "list"]
)
async def test_a_failed_start_is_reported_to_waiting_calls_and_the_server_works_once_fixed(
    faults: Faults, when: dict[str, dict[str, object]]
) -> None:
    fault = {"exit": 4, "stderr": "cannot open the database\n"}
    broken = {"start": fault} if "start" in when else {"on": dict.fromkeys(when["on"], fault)}
    path = faults.write_faults(broken)
    async with faults.serving({"bad": bad_entry("--faults", path)}) as workbench:
        opening = await workbench.client.start_tool("open_toolbox", {"toolbox_name": "box"})
        using = await workbench.start("bad", "echo")
        await workbench.others_work()
        content = (await opening.result())["structuredContent"]
        (entry,) = content["unavailable"]
        assert entry["server"] == "bad" and "status 4" in entry["reason"] and "database" in entry["reason"]
        assert {tool["source_server"] for tool in content["tools"]} == {"good"}, "the rest of the toolbox is shown"
        text = error_text(await using.result())
        assert text.startswith("[box/bad/echo] ") and "status 4" in text and "database" in text
        faults.write_faults({})
        assert await workbench.unavailable() == {}
        assert await workbench.value("bad", "echo", {"n": 1}) == {"n": 1}


async def test_a_crash_during_relisting_fails_calls_and_keeps_the_known_list(faults: Faults) -> None:
    path = faults.write_faults({})
    async with faults.serving({"bad": bad_entry("--faults", path, timeout=60)}) as workbench:
        await workbench.open()
        hanging = [await workbench.start("bad", "hang") for _ in range(10)]
        faults.write_faults({"on": {"tools/list": {"exit": 9, "stderr": "out of memory\n"}}})
        changed = {"method": "notifications/tools/list_changed", "count": 100}
        await workbench.value("bad", "flood", changed)
        async with asyncio.timeout(AT_ONCE):
            for call in hanging:
                text = error_text(await call.result())
                assert text.startswith("[box/bad/hang] the server exited with status 9") and "out of memory" in text
        await workbench.others_work()
        faults.write_faults({})
        assert await workbench.value("bad", "count") == {"count": 1}, "the next use starts it again"


async def test_after_its_handshake_it_dies_at_once_and_the_next_use_starts_it_again(faults: Faults) -> None:
    """Its answer and its end come in one write: it must never count as ready with nobody there."""
    shaken = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    }
    answer = f'{{"jsonrpc":"2.0","id":$ID,"result":{json.dumps(shaken)}}}\n'
    path = faults.write_faults({"on": {"initialize": {"raw": answer, "exit": 5}}})
    async with faults.serving({"bad": bad_entry("--faults", path)}) as workbench:
        assert "status 5" in await workbench.failure("bad", "count")
        assert (await workbench.server_status())["state"] == "backoff"
        faults.write_faults({})
        assert await workbench.value("bad", "count") == {"count": 1}


async def test_a_call_that_races_with_the_crash_is_sent_at_most_once(faults: Faults) -> None:
    log = faults.path("log")
    async with faults.serving({"bad": bad_entry("--log", log)}) as workbench:
        for number in range(6):
            await workbench.open()
            found = await workbench.value("bad", "pid")
            os.kill(found["pid"], signal.SIGKILL)
            result = await workbench.call("bad", "echo", {"n": number})
            if not result.get("isError"):
                assert result["structuredContent"] == {"n": number}
            await eventually(lambda: True)
    sent = [call["params"]["arguments"]["n"] for call in logged(log, "tools/call") if call["params"]["name"] == "echo"]
    assert len(sent) == len(set(sent))
