"""Large messages pass, too large ones are refused, and neither costs more memory than a few times itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from tests.end_to_end.harness import ERAS, Workbench, error_text, open_toolbox, opened, raw_entry, start_use
from tests.support.client import RawClient, RpcError
from tests.support.processes import available
from tests.support.scripted_tools import definition
from tests.support.workbench import scripted_entry

pytestmark = pytest.mark.skipif(not available(), reason="asks /proc about memory")

MEBIBYTE = 1024 * 1024
PATIENCE = 60.0


def peak_bytes(pid: int) -> int:
    return _memory(pid, "VmHWM:")


def resident_bytes(pid: int) -> int:
    return _memory(pid, "VmRSS:")


def _memory(pid: int, field: str) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


async def large_result(client: RawClient, size: int) -> None:
    params = {"name": "use_tool", "arguments": start_use("box", "server", "large", {"bytes": size})}
    result = await client.request("tools/call", params, timeout=PATIENCE)
    assert len(result["content"][0]["text"]) == size


async def large_request(client: RawClient, size: int) -> None:
    params = {"name": "use_tool", "arguments": start_use("box", "server", "count", {"text": "y" * size})}
    result = await client.request("tools/call", params, timeout=PATIENCE)
    assert result["structuredContent"] == {"count": 1}


@pytest.mark.requirement("servers.sizes")
async def test_64_mebibytes_pass_in_both_directions(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": raw_entry(resultBudget=None)}}) as client:
        await large_result(client, 64 * MEBIBYTE)
        await large_request(client, 64 * MEBIBYTE)


@pytest.mark.parametrize("pass_through", [large_result, large_request])
@pytest.mark.parametrize("era", ERAS)
async def test_a_large_message_costs_at_most_four_times_itself(
    workbench: Workbench, era: str, pass_through: Callable[[RawClient, int], Awaitable[None]]
) -> None:
    size = 16 * MEBIBYTE
    async with workbench.serving({"box": {"server": raw_entry(resultBudget=None)}}, era=era) as client:
        await open_toolbox(client, "box")
        before = peak_bytes(client.pid)
        await pass_through(client, size)
        # Two mebibytes for what is not the message: the thread that reads it, the pieces it is read in, and the first
        # large one also changes how the allocator works.
        assert peak_bytes(client.pid) - before <= 4 * size + 2 * MEBIBYTE


@pytest.mark.requirement("servers.sizes")
@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_beyond_the_limit_fails_its_call_clearly_and_no_other(workbench: Workbench, era: str) -> None:
    box = {"box": {"server": scripted_entry(resultBudget=None)}}
    async with workbench.serving(box, era=era, maxMessageBytes=MEBIBYTE) as client:
        await open_toolbox(client, "box")
        waiting = await client.start_tool("use_tool", start_use("box", "server", "slow", {"seconds": 0.3}))
        for size in (MEBIBYTE, 3 * MEBIBYTE):
            text = error_text(await client.use_tool("box", "server", "big", {"bytes": size}))
            assert text.startswith("[box/server/big] ") and "more than the limit" in text
            assert "maxMessageBytes" in text
        fitting = await client.use_tool("box", "server", "big", {"bytes": MEBIBYTE - 1000})
        assert len(fitting["content"][0]["text"]) == MEBIBYTE - 1000
        assert (await waiting.result())["structuredContent"] == {"slept": 0.3}
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}


@pytest.mark.requirement("servers.sizes")
async def test_a_request_beyond_the_limit_is_refused_clearly_and_the_connection_lives(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}, maxMessageBytes=MEBIBYTE) as client:
        with pytest.raises(RpcError, match="larger than the limit") as caught:
            await client.use_tool("box", "server", "echo", {"text": "x" * MEBIBYTE})
        assert caught.value.code == -32600
        result = await client.use_tool("box", "server", "echo", {"text": "x" * (MEBIBYTE // 4)})
        assert len(result["structuredContent"]["text"]) == MEBIBYTE // 4


async def test_a_large_answer_does_not_hold_up_small_ones_for_ever(workbench: Workbench) -> None:
    box = {"large": scripted_entry(resultBudget=None), "small": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        await open_toolbox(client, "box")
        large = await client.start_tool("use_tool", start_use("box", "large", "big", {"bytes": 16 * MEBIBYTE}))
        for number in range(20):
            result = await client.use_tool("box", "small", "echo", {"n": number})
            assert result["structuredContent"] == {"n": number}
        assert len((await large.result())["content"][0]["text"]) == 16 * MEBIBYTE


async def test_ten_thousand_tools_are_listed_and_each_costs_little_more_than_its_definition(
    workbench: Workbench,
) -> None:
    boxes = {"small": {"server": scripted_entry("--tools", 1)}, "large": {"server": scripted_entry("--tools", 10_000)}}
    async with workbench.serving(boxes) as client:
        await open_toolbox(client, "small")
        before = resident_bytes(client.pid)
        assert not (await client.use_tool("large", "server", "tool_9999")).get("isError")
        # The server is asked once more before it is denied, so for a moment there are two lists.
        assert "does not exist" in error_text(await client.use_tool("large", "server", "tool_99999"))
        defined = sum(len(json.dumps(definition(f"tool_{number}"))) for number in range(1, 10_001))
        # The threads that read them and write them to the disk keep one to two megabytes each, however many there are.
        most = before + defined + 1024 * 10_000 + 5 * MEBIBYTE
        async with asyncio.timeout(30):
            while resident_bytes(client.pid) > most:
                await asyncio.sleep(0.1)
        result = opened(await open_toolbox(client, "large"))
        assert len(result["tools"]) == 10_000


@pytest.mark.requirement("servers.stderr")
async def test_floods_on_stderr_hold_up_nothing(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await open_toolbox(client, "box")
        before = peak_bytes(client.pid)
        for text, times in (("x" * 1000, 10_000), ("a line\n", 200_000)):
            result = await client.use_tool("box", "server", "stderr", {"text": text, "times": times})
            assert result["content"][0]["text"] == "written"
        text = error_text(await client.use_tool("box", "server", "crash", {"stderr": "x" * 50_000 + "\nthe end\n"}))
        assert text.endswith("the end") and len(text) < 10_000
        assert peak_bytes(client.pid) - before < 8 * MEBIBYTE
