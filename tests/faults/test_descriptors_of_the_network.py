"""No descriptors left while serving HTTP, and for servers at an address: whoever is connected goes on, others are told."""

from __future__ import annotations

import asyncio
import resource

from tests.faults.http_wire import Wire, written
from tests.faults.remote import remote
from tests.faults.running_workbench import Faults
from tests.faults.vitals import descriptors_by_kind, processor_seconds

# An accept that is tried again and again without a pause would burn all of what passes meanwhile.
MAX_PROCESSOR_SECONDS = 1.0


async def test_new_connections_are_turned_away_while_nothing_can_be_opened_and_are_served_afterwards(
    faults: Faults,
) -> None:
    async with faults.serving_http({}) as workbench:
        for is_warm in (False, True):
            _, hard = resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE)
            used = sum(descriptors_by_kind(workbench.pid).values())
            resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (used, hard))
            before = processor_seconds(workbench.pid)
            # The event loop keeps one descriptor in reserve, with which it turns people away.
            wires = [await Wire.open(workbench.port) for _ in range(20)]
            await asyncio.gather(*(wire.closed() for wire in wires[1:]))
            # Those who are connected are served meanwhile.
            await workbench.others_work()
            assert processor_seconds(workbench.pid) - before < MAX_PROCESSOR_SECONDS
            resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (hard, hard))
            for wire in wires:
                wire.abort()
            for _ in range(20):
                wire = await Wire.open(workbench.port)
                assert await wire.ask(written(b"", verb="GET", path="/healthz")) == (200, b"ok\n")
                wire.close()
            if not is_warm:
                # The reserve stays.
                await workbench.remember()
        assert "Traceback" not in workbench.process.stderr


async def test_a_server_at_a_url_is_reported_unreachable_and_works_once_descriptors_are_free(faults: Faults) -> None:
    async with remote(faults) as there, faults.serving({"remote": there.entry()}) as workbench:
        assert await workbench.value("remote", "count") == {"count": 1}
        await workbench.process.wait_for(
            lambda: "without a call" in workbench.process.stderr, "the end of the idle connection"
        )
        await workbench.remember()
        _, hard = resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (3, hard))
        text = await workbench.failure("remote", "count")
        assert text.startswith("[box/remote/count] no more files can be opened"), text
        assert "ulimit -n" in text
        await workbench.others_work()
        resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert await workbench.value("remote", "count") == {"count": 2}
        assert "Traceback" not in workbench.process.stderr
