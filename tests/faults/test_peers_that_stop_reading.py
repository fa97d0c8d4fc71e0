"""A client or a server stops reading: what we hold for it is bounded, and only that peer is timed out or dropped."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp_workbench.engine.transport.allocator import KEPT_BYTES
from mcp_workbench.engine.transport.stdio import PAUSE_ABOVE
from tests.faults.bad_client import MuteClient, initialize, line
from tests.faults.running_workbench import Faults, bad_entry, error_text, small_workbench_command, use
from tests.faults.small_workbench import DROP_ABOVE, MAX_UNSENT_BYTES
from tests.faults.vitals import MEMORY_RATIO, descriptors_by_kind, resident_bytes
from tests.support.processes import eventually
from tests.support.workbench import logged, workbench_command

MIB = 1024 * 1024


def large(id: int, size: int = MIB) -> bytes:
    return line(id, "tools/call", {"name": "use_tool", "arguments": use("bad", "large", {"bytes": size})})


async def test_a_client_that_reads_late_gets_everything_and_is_not_read_from_meanwhile(faults: Faults) -> None:
    """Its answers wait for it; its further requests stay in the pipe, where they cost it and not us."""
    log = faults.path("log")
    config = faults.write_config({"bad": bad_entry("--log", log)})
    spawned = MuteClient.spawn(workbench_command(config), faults.environment(), str(faults.path("stderr")))
    async with spawned as client:
        await client.write_all(initialize())
        await client.read_answers(1)
        await client.write_all(large(1) + large(2))
        await client.read_answers(2)
        before, descriptors = resident_bytes(client.pid), descriptors_by_kind(client.pid)
        # More than the first bound, in one write, and nobody reads the answers.
        count = 3 * PAUSE_ABOVE // MIB
        await client.write_all(b"".join(large(number) for number in range(100, 100 + count)))
        await eventually(lambda: len(logged(log, "tools/call")) == 2 + count, what="all of them at the server")
        await eventually(lambda: resident_bytes(client.pid) - before > PAUSE_ABOVE, what="answers that wait")
        # From here on the pipe fills up: it is not read any more.
        padding = line("p", "ping", {"x": "x" * 60_000})
        sent = 0
        for _ in range(200):
            sent += client.write(padding)
            await asyncio.sleep(0.01)
            if sent and client.write(b"") == 0 and sent % len(padding):
                break
        assert sent < 3 * MIB, "it is still being read"
        assert resident_bytes(client.pid) - before < 2 * count * MIB + PAUSE_ABOVE
        answers: list[Any] = []
        while len(answers) < count:
            # A ping that came through before we stopped reading may have been answered among them.
            answers += [answer["id"] for answer in await client.read_answers(1) if answer["id"] != "p"]
        assert sorted(answers) == list(range(100, 100 + count))
        await eventually(
            lambda: resident_bytes(client.pid) < before * MEMORY_RATIO + KEPT_BYTES,
            30,
            "memory that has been given back",
        )
        assert descriptors_by_kind(client.pid) == descriptors


async def test_a_client_that_never_reads_is_disconnected_at_the_second_bound(faults: Faults) -> None:
    """Megabytes that nobody takes: the client is taken for dead, and we end."""
    config = faults.write_config({"bad": bad_entry(timeout=300)})
    spawned = MuteClient.spawn(small_workbench_command(config), faults.environment(), str(faults.path("stderr")))
    async with spawned as client:
        await client.write_all(initialize())
        await client.read_answers(1)
        size = DROP_ABOVE // 8
        requests = b"".join(large(number, size) for number in range(DROP_ABOVE // size + 2))
        await client.write_all(requests)
        peak = 0

        def ended() -> bool:
            nonlocal peak
            if client.process.poll() is not None:
                return True
            peak = max(peak, resident_bytes(client.pid))
            return False

        await eventually(ended, 200, "the end of the workbench")
        assert client.process.returncode == 0
        assert peak < 2 * DROP_ABOVE
    assert "the client has not read" in faults.path("stderr").read_text()
    faults.nothing_left_on_disk()


async def test_a_server_that_stops_reading_times_out_without_blocking_others(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry(timeout=1)}, large=True) as workbench:
        await workbench.value("bad", "count")
        deaf = await workbench.start("bad", "deaf")
        piled = [await workbench.start("bad", "echo", {"x": "y" * MIB}) for _ in range(20)]
        await workbench.others_work()
        for call in (deaf, *piled):
            assert "did not answer within 1 s" in error_text(await call.result())
        await workbench.others_work()


async def test_a_busy_server_refuses_excess_requests_and_recovers(faults: Faults) -> None:
    """One client's large requests are that client's problem: the server reads on when it can, and others are served."""
    async with faults.serving({"bad": bad_entry(timeout=300)}, large=True, small=True) as workbench:
        pid = (await workbench.value("bad", "pid"))["pid"]
        busy = await workbench.start("bad", "busy", {"until": str(faults.path("go"))})
        size = MAX_UNSENT_BYTES // 4 - MIB // 2
        padded = line("padded", "tools/call", {"name": "use_tool", "arguments": use("bad", "size", {"x": "$"})})
        padded = padded.replace(b"$", b"y" * size)
        for number in range(6):
            await workbench.client.send_bytes(padded.replace(b'"padded"', b'"padded-%d"' % number, 1))
        # Four fit below the bound.
        await workbench.client.wait_for(lambda: len(workbench.client.unmatched) == 2, "the two that are refused")
        for answer in workbench.client.unmatched:
            assert "bytes of requests left to read" in error_text(answer["result"])
        beside = await workbench.start("bad", "echo", {"n": 1})
        await workbench.others_work()
        faults.path("go").touch()
        assert (await busy.result())["structuredContent"] == {"busy": False}
        assert (await beside.result())["structuredContent"] == {"n": 1}, "small ones wait, and are served"
        await workbench.client.wait_for(lambda: len(workbench.client.unmatched) == 6, "the four that fit")
        sizes = [answer["result"]["structuredContent"]["bytes"] for answer in workbench.client.unmatched[2:]]
        assert all(each > size for each in sizes)
        assert (await workbench.value("bad", "pid"))["pid"] == pid, "it is the same process"
        assert (await workbench.server_status())["failures"] == 0
