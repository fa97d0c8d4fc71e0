"""A server hangs: in a call, at its start, in a list, in the middle of a message, or stopped as a whole.

The call ends at its deadline, the server is told to give it up, a late answer is dropped; others go on meanwhile, and
nothing that hangs can hold up our own end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from tests.faults.running_workbench import Faults, bad_entry, error_text
from tests.support.workbench import logged

# What a healthy call or start may take on a busy machine.
TIMEOUT = 2.0
STARTUP = 4.0
# What a client waits for us to end before it kills us, several times over: a machine may be busy.
SOON = 15.0


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_in_a_call_the_deadline_ends_it_and_the_late_answer_is_dropped(faults: Faults, era: str) -> None:
    async with faults.serving({"bad": bad_entry(timeout=TIMEOUT)}, era=era) as workbench:
        assert await workbench.value("bad", "count") == {"count": 1}
        hanging = [await workbench.start("bad", "hang") for _ in range(10)]
        late = await workbench.start("bad", "late", {"seconds": 2 * TIMEOUT})
        await workbench.others_work()
        for call in hanging:
            text = error_text(await call.result())
            assert text.startswith(f"[box/bad/hang] the server did not answer within {TIMEOUT:g} s")
            assert "hint: raise `timeout`" in text
        assert "did not answer" in error_text(await late.result())
        given_up = (await workbench.value("bad", "cancelled"))["cancelled"]
        assert len(given_up) == 11 and all(each["reason"] == "timeout" for each in given_up)
        unmatched = "unmatchedAnswers"
        while (await workbench.server_status())[unmatched] == 0:
            await asyncio.sleep(0.05)
        assert (await workbench.server_status())[unmatched] == 1
        assert workbench.client.unmatched == []
        assert await workbench.value("bad", "count") == {"count": 2}, "it is the same process"


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ({"start": {"hang": True}}, f"did not answer the handshake within {STARTUP:g} s"),
        ({"on": {"initialize": {"hang": True}}}, f"did not answer the handshake within {STARTUP:g} s"),
        ({"on": {"tools/list": {"hang": True}}}, "its tools cannot be listed: no answer in time"),
    ],
    ids=["start", "handshake", "list"],
)
async def test_at_its_start_it_is_unavailable_in_time_and_works_once_mended(
    faults: Faults, when: dict[str, Any], reason: str
) -> None:
    path = faults.write_faults(when)
    async with faults.serving({"bad": bad_entry("--faults", path, startupTimeout=STARTUP)}) as workbench:
        opening = await workbench.client.start_tool("open_toolbox", {"toolbox_name": "box"})
        await workbench.others_work()
        content = (await opening.result())["structuredContent"]
        (entry,) = content["unavailable"]
        assert entry["server"] == "bad" and reason in entry["reason"]
        assert {tool["source_server"] for tool in content["tools"]} == {"good"}
        faults.write_faults({})
        if "on" in when and "tools/list" in when["on"]:
            # It runs, so it is not started anew; it is asked again when it says that something has changed.
            await workbench.call("bad", "flood", {"method": "notifications/tools/list_changed", "count": 100})
        assert await workbench.unavailable() == {}
        assert await workbench.value("bad", "echo", {"n": 1}) == {"n": 1}


async def test_other_toolboxes_are_listed_and_used_while_one_hangs(faults: Faults) -> None:
    path = faults.write_faults({"start": {"hang": True}})
    bad = bad_entry("--faults", path, startupTimeout=2)
    async with faults.serving({"bad": bad}, beside={"calm": {"other": bad_entry(name="other")}}) as workbench:
        hanging = await workbench.client.start_tool("open_toolbox", {"toolbox_name": "box"})
        waiting = await workbench.start("bad", "count")
        calm = await workbench.client.call_tool("open_toolbox", {"toolbox_name": "calm"})
        assert {tool["source_server"] for tool in calm["structuredContent"]["tools"]} == {"other"}
        used = await workbench.client.use_tool("calm", "other", "echo", {"n": 1})
        assert used["structuredContent"] == {"n": 1}
        assert not hanging.answered and not waiting.answered, "they were not waited for"
        for call in (hanging, waiting):
            assert "did not answer the handshake within 2 s" in str(await call.result())


async def test_a_server_that_is_stopped_as_a_whole_hits_its_deadlines_and_goes_on_when_it_may(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry(timeout=TIMEOUT)}) as workbench:
        pid = (await workbench.value("bad", "stop"))["pid"]
        calls = [await workbench.start("bad", "echo", {"n": number}) for number in range(10)]
        await workbench.others_work()
        for call in calls:
            assert f"did not answer within {TIMEOUT:g} s" in error_text(await call.result())
        os.kill(pid, signal.SIGCONT)
        assert await workbench.value("bad", "echo", {"n": 11}) == {"n": 11}


@pytest.mark.parametrize("method", ["initialize", "tools/list", "resources/list"])
async def test_shutdown_does_not_wait_for_a_server_that_hangs_in_its_handshake_or_lists(
    faults: Faults, method: str
) -> None:
    path = faults.write_faults({"on": {method: {"hang": True}}})
    log = faults.path("log")
    async with faults.serving({"bad": bad_entry("--faults", path, "--log", log, startupTimeout=60)}) as workbench:
        opening = await workbench.client.start_tool("open_toolbox", {"toolbox_name": "box"})
        while not logged(log, method):
            await asyncio.sleep(0.02)
        assert not opening.answered
        # Else we would give it some seconds to come to its end.
        await workbench.client.cancel(opening)
        workbench.is_over = True
        workbench.process.close_stdin()
        assert await workbench.process.wait_exit(SOON) == 0


@pytest.mark.parametrize("again", [False, True])
async def test_a_subscription_that_the_server_never_answers_ends(faults: Faults, again: bool) -> None:
    """`again`: the server is asked anew after it was started again, and then hangs."""
    hangs = {"on": {"resources/subscribe": {"hang": True}}}
    path = faults.write_faults({} if again else hangs)
    log = faults.path("log")
    async with faults.serving(
        {"bad": bad_entry("--faults", path, "--log", log, timeout=TIMEOUT, startupTimeout=STARTUP)}
    ) as workbench:
        await workbench.open()
        await workbench.value("bad", "count")
        subscribing = await workbench.client.start("resources/subscribe", {"uri": "bad://bad/watched"})
        answer = await subscribing.response()
        if again:
            assert answer["result"] == {}
            faults.write_faults(hangs)
            await workbench.failure("bad", "crash")
            assert await workbench.unavailable() == {}
        else:
            assert f"did not answer within {TIMEOUT:g} s" in answer["error"]["message"]
        assert await workbench.value("bad", "count") == {"count": 1 if again else 2}
        await workbench.others_work()
