"""Large messages in both directions, one byte over the limit, floods on stderr.

Time grows with the size and not faster, memory stays within four times the message, beyond the limit there is a clear
error; what nobody asked for is drained and bounded.
"""

from __future__ import annotations

import pytest

from tests.faults.http_wire import HttpConversation
from tests.faults.remote import playing, remote
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry, error_text, use
from tests.faults.vitals import forget_peak, peak_bytes, processor_seconds, resident_bytes
from tests.support.client import Json, RpcError

MIB = 1024 * 1024
# A bound for what hangs: what it costs is measured in processor time, however many others want some.
PATIENCE = 240.0
# Four times the size should take four times the work. Twice that is noise; a reader that looks at everything again for
# each piece would need sixteen times as much.
LINEAR = 8.0
# Work that does not depend on the size, and the grain of the measurement.
WORK_FLOOR = 0.02
# MiB. What is compared with is measured three times and the most counts: on a busy machine the same work may take twice
# the time.
MEASURED = (1, 16, 16, 16, 64)


async def measured(workbench: RunningWorkbench, method: str, params: Json) -> tuple[Json, float, int]:
    """The result, the processor time and the memory beyond what there was."""
    before = resident_bytes(workbench.pid)
    forget_peak(workbench.pid)
    began = processor_seconds(workbench.pid)
    result = await workbench.client.request(method, params, timeout=PATIENCE)
    return result, processor_seconds(workbench.pid) - began, peak_bytes(workbench.pid) - before


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_results_pass_in_linear_time_and_bounded_memory(faults: Faults, era: str) -> None:
    async with faults.serving({"bad": bad_entry()}, era=era, large=True) as workbench:
        await workbench.value("bad", "count")
        work: dict[int, float] = {}
        for size in MEASURED:
            params = {"name": "use_tool", "arguments": use("bad", "large", {"bytes": size * MIB})}
            result, seconds, memory = await measured(workbench, "tools/call", params)
            work[size] = max(seconds, work.get(size, 0.0))
            assert len(result["content"][0]["text"]) > size * MIB - 200
            assert memory <= 4 * size * MIB + workbench.kept_bytes, f"{memory:,} bytes for {size} MiB"
        assert work[64] <= LINEAR * work[16] + WORK_FLOOR, work
        assert await workbench.value("bad", "count") == {"count": 2}


async def test_results_are_shortened_in_linear_time_and_bounded_memory(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry(resultBudget=20_000)}, large=True) as workbench:
        await workbench.value("bad", "count")
        work: dict[int, float] = {}
        for size in MEASURED:
            params = {"name": "use_tool", "arguments": use("bad", "large", {"bytes": size * MIB})}
            result, seconds, memory = await measured(workbench, "tools/call", params)
            work[size] = max(seconds, work.get(size, 0.0))
            assert result["content"][0]["text"].startswith("Full result: ")
            # The whole result is kept for a while.
            assert memory <= 4 * size * MIB + workbench.kept_bytes, f"{memory:,} bytes for {size} MiB"
            # And the C library keeps a little more for each.
            workbench.kept_bytes += size * MIB + 2 * MIB
        assert work[64] <= LINEAR * work[16] + WORK_FLOOR, work


async def test_requests_pass_in_linear_time_and_bounded_memory(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}, large=True) as workbench:
        await workbench.value("bad", "count")
        work: dict[int, float] = {}
        for size in MEASURED:
            params = {"name": "use_tool", "arguments": use("bad", "size", {"text": "x" * (size * MIB)})}
            result, seconds, memory = await measured(workbench, "tools/call", params)
            work[size] = max(seconds, work.get(size, 0.0))
            assert result["structuredContent"]["bytes"] > size * MIB
            assert memory <= 4 * size * MIB + workbench.kept_bytes, f"{memory:,} bytes for {size} MiB"
        assert work[64] <= LINEAR * work[16] + WORK_FLOOR, work


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_over_http_results_and_requests_pass_in_linear_time_and_bounded_memory(faults: Faults, era: str) -> None:
    async with faults.serving_http({"bad": bad_entry()}, era=era, large=True) as workbench:
        await workbench.value("bad", "count")
        await _both_ways(workbench, "bad")
        if isinstance(workbench.client, HttpConversation) and era == "legacy":
            # What took a second or more is kept for a while, so that this client could resume it; its session can go.
            await workbench.client.end_session()
            await workbench.client.initialize()


async def test_to_a_network_server_results_and_requests_pass_in_linear_time_and_bounded_memory(faults: Faults) -> None:
    async with remote(faults) as there, playing(faults, there, large=True) as workbench:
        await _both_ways(workbench, "remote")


async def _both_ways(workbench: RunningWorkbench, server: str) -> None:
    work: dict[tuple[int, str], float] = {}
    for size in MEASURED:
        for tool, arguments in (("large", {"bytes": size * MIB}), ("size", {"text": "x" * (size * MIB)})):
            params = {"name": "use_tool", "arguments": use(server, tool, arguments)}
            result, seconds, memory = await measured(workbench, "tools/call", params)
            work[size, tool] = max(seconds, work.get((size, tool), 0.0))
            assert result.get("isError") is not True
            assert memory <= 4 * size * MIB + workbench.kept_bytes, f"{memory:,} bytes for {size} MiB, {tool}"
    for tool in ("large", "size"):
        assert work[64, tool] <= LINEAR * work[16, tool] + WORK_FLOOR, work


async def test_the_limit_is_exact_and_one_byte_more_is_a_clear_error_for_that_call_alone(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}, large=True, maxMessageBytes=MIB) as workbench:
        await workbench.value("bad", "count")
        hanging = await workbench.start("bad", "hang")
        result = await workbench.call("bad", "large", {"bytes": MIB})
        assert not result.get("isError"), "exactly the limit passes"
        for size in (MIB + 1, 2 * MIB, 40 * MIB):
            text = await workbench.failure("bad", "large", {"bytes": size})
            assert text.startswith(f"[box/bad/large] the server's answer has {size} bytes, more than the limit")
            assert "hint: raise `maxMessageBytes`" in text
        await workbench.client.cancel(hanging)
        assert await workbench.value("bad", "count") == {"count": 2}


async def test_a_request_one_byte_over_the_limit_is_refused_and_the_connection_lives(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}, large=True, maxMessageBytes=MIB) as workbench:
        await workbench.value("bad", "count")
        line = b'{"jsonrpc":"2.0","id":"%d","method":"ping","params":{"x":"%b"}}'
        for size, is_refused in ((MIB, False), (MIB + 1, True), (20 * MIB, True)):
            message = line % (size, b"x" * (size - len(line % (size, b""))))
            assert len(message) == size
            await workbench.client.send_bytes(message + b"\n")
            await workbench.client.wait_for(lambda: bool(workbench.client.unmatched), "an answer")
            answer = workbench.client.unmatched.pop()
            assert answer["id"] == str(size)
            if is_refused:
                assert answer["error"]["code"] == -32600
                assert f"message of {size} bytes is larger than the limit" in answer["error"]["message"]
            else:
                assert answer["result"] == {}
        with pytest.raises(RpcError, match="larger than the limit"):
            await workbench.call("bad", "size", {"text": "x" * MIB})
        await workbench.others_work()


@pytest.mark.parametrize("lines", [True, False], ids=["lines", "no newline"])
async def test_a_hundred_megabytes_on_stderr_are_drained_and_cost_nothing(faults: Faults, lines: bool) -> None:
    async with faults.serving({"bad": bad_entry()}, large=True) as workbench:
        await workbench.value("bad", "count")
        before = resident_bytes(workbench.pid)
        forget_peak(workbench.pid)
        flooding = await workbench.start("bad", "flood_stderr", {"bytes": 100_000_000, "lines": lines})
        await workbench.others_work()
        assert (await flooding.result())["structuredContent"] == {"written": True}
        assert peak_bytes(workbench.pid) - before < 4 * MIB + workbench.kept_bytes
        text = await workbench.failure("bad", "crash", {"stderr": "x" * 5000 + "\nthe very end\n"})
        assert text.endswith("the very end") and len(text) < 12_000
        assert len(workbench.process.stderr) < 20_000


async def test_answers_beyond_every_bound_at_once_fail_each_for_itself(faults: Faults) -> None:
    """Many servers' worth of oversized answers never add up: they are dropped while they pass."""
    async with faults.serving({"bad": bad_entry()}, large=True, maxMessageBytes=MIB) as workbench:
        await workbench.value("bad", "count")
        before = resident_bytes(workbench.pid)
        forget_peak(workbench.pid)
        calls = [await workbench.start("bad", "large", {"bytes": 8 * MIB}) for _ in range(20)]
        for call in calls:
            assert "more than the limit" in error_text(await call.result())
        assert peak_bytes(workbench.pid) - before < 4 * MIB + workbench.kept_bytes
