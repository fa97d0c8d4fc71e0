"""Every request ends: deadlines for start, list and call, and an end for servers that nobody uses."""

from __future__ import annotations

import pytest

from tests.end_to_end.harness import ERAS, Workbench, error_text, open_toolbox, start_use, tool_names, unavailable
from tests.support.processes import alive, eventually
from tests.support.scripted_tools import PROGRESS_INTERVAL, TOOLS
from tests.support.workbench import logged, scripted_entry

# What a healthy call or start may take on a busy machine.
TIMEOUT = 2.0
STARTUP = 4.0


@pytest.mark.requirement("servers.deadlines")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_call_that_takes_too_long_ends_with_an_error_and_is_cancelled_at_its_server(
    workbench: Workbench, client_era: str, server_era: str
) -> None:
    box = {"server": scripted_entry("--era", server_era, timeout=TIMEOUT), "sibling": scripted_entry()}
    async with workbench.serving({"box": box}, era=client_era) as client:
        await open_toolbox(client, "box")
        hanging = await client.start_tool("use_tool", start_use("box", "server", "hang"))
        assert (await client.use_tool("box", "sibling", "count"))["structuredContent"] == {"count": 1}
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
        text = error_text(await hanging.result())
        assert text.startswith("[box/server/hang] ") and f"did not answer within {TIMEOUT:g} s" in text
        assert "`timeout`" in text
        seen = await client.use_tool("box", "server", "cancelled", {"wait": 1})
        (cancelled,) = seen["structuredContent"]["cancelled"]
        assert cancelled["reason"] == "timeout"


async def test_an_answer_after_the_deadline_is_dropped(workbench: Workbench) -> None:
    log = workbench.path("log")
    async with workbench.serving({"box": {"server": scripted_entry("--log", log, timeout=TIMEOUT)}}) as client:
        await client.use_tool("box", "server", "count")
        assert "did not answer" in error_text(await client.use_tool("box", "server", "hang"))
        late = logged(log, "tools/call")[-1]["id"]
        answer = f'{{"jsonrpc":"2.0","id":{late},"result":{{"content":[],"structuredContent":{{"late":1}}}}}}\n'
        assert (await client.use_tool("box", "server", "write", {"text": answer}))["content"][0]["text"] == "written"
        assert client.unmatched == []


@pytest.mark.requirement("servers.deadlines")
async def test_progress_extends_the_deadline_and_its_absence_does_not(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry(timeout=TIMEOUT)}}) as client:
        await client.use_tool("box", "server", "count")
        patient = await client.start_tool(
            "use_tool", start_use("box", "server", "slow", {"seconds": 2 * TIMEOUT}), _meta={"progressToken": 1}
        )
        silent = await client.start_tool("use_tool", start_use("box", "server", "slow", {"seconds": 2 * TIMEOUT}))
        assert f"did not answer within {TIMEOUT:g} s" in error_text(await silent.result())
        assert (await patient.result())["structuredContent"] == {"slept": 2 * TIMEOUT}
        assert len(client.received("notifications/progress")) == 2 * TIMEOUT / PROGRESS_INTERVAL


@pytest.mark.requirement("servers.deadlines")
async def test_progress_cannot_extend_a_call_for_ever(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry(timeout=0.2)}}) as client:
        await client.use_tool("box", "server", "count")
        call = start_use("box", "server", "slow", {"seconds": 300})
        result = await client.call_tool("use_tool", call, _meta={"progressToken": 1})
        assert "did not answer" in error_text(result)


@pytest.mark.requirement("servers.deadlines")
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            ("--hang-on", "server/discover", "--hang-on", "initialize"),
            f"did not answer the handshake within {STARTUP:g} s",
        ),
        (("--era", "legacy", "--hang-on", "initialize"), f"did not answer the handshake within {STARTUP:g} s"),
        (("--hang-on", "tools/list"), "its tools cannot be listed"),
    ],
)
async def test_a_server_that_hangs_at_its_start_or_in_a_list_is_unavailable_in_time(
    workbench: Workbench, flags: tuple[str, ...], reason: str
) -> None:
    box = {
        "slow": scripted_entry("--starts", workbench.path("starts"), *flags, startupTimeout=STARTUP),
        "good": scripted_entry(),
    }
    async with workbench.serving({"box": box}) as client:
        opening = await client.start_tool("open_toolbox", {"toolbox_name": "box"})
        assert (await client.use_tool("box", "good", "count"))["structuredContent"] == {"count": 1}
        result = await opening.result()
        assert reason in unavailable(result)["slow"]["reason"]
        assert tool_names(result) == sorted(TOOLS)
        if "handshake" in reason:
            await eventually(lambda: not alive(workbench.starts()[0]), what="the end of the server")


# Idle servers


@pytest.mark.requirement("servers.idle")
async def test_an_unused_server_is_stopped_and_started_again_when_needed(workbench: Workbench) -> None:
    box = {"idle": scripted_entry("--starts", workbench.path("starts"), idleTimeout=0.4), "busy": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        opened = await open_toolbox(client, "box")
        assert (await client.use_tool("box", "idle", "count"))["structuredContent"] == {"count": 1}
        first = workbench.starts()[-1]
        await eventually(lambda: not alive(first), what="the end of the idle server")
        assert await open_toolbox(client, "box") == opened, "what it offers is still known"
        assert (await client.use_tool("box", "idle", "count"))["structuredContent"] == {"count": 1}
        assert workbench.starts()[-1] != first
        assert (await client.use_tool("box", "busy", "count"))["structuredContent"] == {"count": 1}


@pytest.mark.requirement("servers.idle")
async def test_a_server_with_a_call_under_way_is_not_idle(workbench: Workbench) -> None:
    log = workbench.path("log")
    flags = ("--starts", workbench.path("starts"), "--log", log)
    box = {"idle": scripted_entry(*flags, idleTimeout=0.2), "clock": scripted_entry(timeout=1)}
    async with workbench.serving({"box": box}) as client:
        hanging = await client.start_tool("use_tool", start_use("box", "idle", "hang"))
        await eventually(lambda: bool(logged(log, "tools/call")), what="the call at its server")
        before = workbench.starts()
        # Several times the idle timeout, by the clock of the workbench.
        await client.use_tool("box", "clock", "hang")
        assert not hanging.answered
        assert workbench.starts() == before and alive(before[-1])
        await client.cancel(hanging)
        await eventually(lambda: not alive(before[-1]), what="the end of the idle server")


async def test_an_idle_timeout_of_zero_means_never(workbench: Workbench) -> None:
    box = {
        "server": scripted_entry("--starts", workbench.path("starts"), idleTimeout=0),
        "clock": scripted_entry(timeout=0.5),
    }
    async with workbench.serving({"box": box}) as client:
        await client.use_tool("box", "server", "count")
        await client.use_tool("box", "clock", "hang")
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 2}
