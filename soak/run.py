"""One run: workbenches, servers, a crowd and mischief, for as long as it takes; then what is left of it all.

Owns the order of things. Everything that is found goes into the `Record`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from soak.accounts import repeated
from soak.crowd import Crowd
from soak.mischief import Killer, LargeMessages, end_with_parent
from soak.record import Ended, Record, describe_machine
from soak.samples import Reading, read
from tests.faults.http_wire import HttpConversation
from tests.faults.stage import Faults, bad_entry, port_of, use
from tests.support.client import Conversation, Json, RawClient
from tests.support.processes import descendants, describe, reap_zombies
from tests.support.workbench import workbench_command

READINGS = 360
SHORTEST_INTERVAL = 1.0
# A server that is slower than this is slow because it was stopped, or because the machine is.
SERVER_TIMEOUT = 10
# Servers behind each workbench over stdio, and how many callers share its one client.
STDIO_SERVERS, STDIO_CALLERS = 3, 5
STARTING_AT_ONCE = 8
# How long it may take until everything that is over has been cleaned up.
SETTLE_SECONDS = 90.0
EXIT_SECONDS = 30.0


class Run:
    """One run."""

    def __init__(self, record: Record, folder: Path, report: Callable[[], None]) -> None:
        self._record = record
        self._folder = folder
        self._report = report
        self._notes = folder / "notes"
        self._began = time.monotonic()
        self._is_over = asyncio.Event()

    def end(self) -> None:
        """Come to an end now, in order."""
        self._record.is_interrupted = True
        self._is_over.set()

    async def play(self) -> None:
        """From the first start to the last process gone."""
        record, settings = self._record, self._record.settings
        record.machine = describe_machine()
        names = [f"s{number}" for number in range(settings.servers)]
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(self._workbench("http", names, "--http", "127.0.0.1:0"))
            port = await port_of(process)
            asking = HttpConversation(port)
            stack.push_async_callback(asking.close)
            asking.stamp()
            few = names[:STDIO_SERVERS]
            benches = [
                await stack.enter_async_context(self._workbench(f"stdio-{number}", few))
                for number in range(settings.stdio)
            ]
            for number, bench in enumerate(benches):
                if number % 2:
                    bench.stamp()
                else:
                    await bench.initialize()
            record.before = await self._at_rest(process.pid, asking, names)
            earlier = [await self._at_rest(bench.pid, bench, few) for bench in benches]
            await self._storm(process.pid, port, asking, names, [(bench, few) for bench in benches])
            record.after = await self._at_rest(process.pid, asking, names, record.before)
            for bench, before in zip(benches, earlier, strict=True):
                record.stdio.append(Ended(before, await self._at_rest(bench.pid, bench, few, before)))
            await asking.close()
            process.process.send_signal(signal.SIGTERM)
            for bench in benches:
                bench.close_stdin()
            for each in (process, *benches):
                if (status := await each.wait_exit(EXIT_SECONDS)) != 0:
                    record.problems.append(f"a workbench ended with status {status}")
        await self._look_for_leftovers()
        numbers = [int(line) for line in self._notes.read_text().split()] if self._notes.exists() else []
        record.noted = len(set(numbers))
        record.repeated = len(repeated(numbers, record.accounts.started))

    @asynccontextmanager
    async def _workbench(self, name: str, servers: Sequence[str], *flags: str) -> AsyncIterator[RawClient]:
        folder = self._folder / name
        folder.mkdir()
        faults = Faults(folder)
        config = faults.write_config({server: self._entry(server) for server in servers})
        command = workbench_command(config, *flags)
        # Ctrl-C is meant for us, who then end everything in order.
        alone: dict[str, Any] = {"start_new_session": True, "preexec_fn": end_with_parent}
        async with RawClient.spawn(command, env=faults.environment(), **alone) as process:
            yield process
        left = [path for path in faults.temporary.rglob("*") if not path.is_dir()]
        if left:
            self._record.problems.append(f"left on disk: {left}")

    def _entry(self, name: str) -> Json:
        lifetime = self._record.settings.minutes * 60 + 3600
        entry = bad_entry("--notes", self._notes, "--exit-after", lifetime, name=name, timeout=SERVER_TIMEOUT)
        # Without `site`: a hundred of them should be light.
        return {**entry, "args": ["-S", *entry["args"]]}

    # The storm

    async def _storm(
        self,
        pid: int,
        port: int,
        asking: Conversation,
        names: Sequence[str],
        benches: Sequence[tuple[RawClient, Sequence[str]]],
    ) -> None:
        record, settings = self._record, self._record.settings
        crowd = Crowd(port, names, settings.clients, settings.pause, record.accounts)
        killer = Killer([pid, *(bench.pid for bench, _ in benches)], settings.kill_pause)
        large = LargeMessages(port, settings.large_pause, record.accounts)
        self._began = time.monotonic()

        async def watch() -> None:
            await self._watch(pid, asking, crowd, killer, large)

        watching = asyncio.create_task(watch())
        mischief = {
            "the killer": asyncio.create_task(killer.run()),
            "the sender of large messages": asyncio.create_task(large.run(self._is_over.is_set)),
        }
        try:
            also = [bench for bench in benches for _ in range(STDIO_CALLERS)]
            await crowd.stay(settings.minutes * 60, also, self._is_over)
        finally:
            self._is_over.set()
            for task in mischief.values():
                task.cancel()
            record.problems += await broken({**mischief, "the watcher": watching})
            self._note_down(crowd, killer, large)

    async def _watch(self, pid: int, asking: Conversation, crowd: Crowd, killer: Killer, large: LargeMessages) -> None:
        """Take readings, and write the report now and then: whoever kills the run still gets to see it."""
        record = self._record
        interval = max(SHORTEST_INTERVAL, record.settings.minutes * 60 / READINGS)
        while not self._is_over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), interval)
                return
            try:
                reading = await read(pid, asking)
            except (OSError, EOFError, TimeoutError) as error:
                record.problems.append(f"the status could not be read: {error!r}")
                continue
            seconds = time.monotonic() - self._began
            record.samples.take(seconds, reading, record.accounts.started, record.accounts.take_latencies())
            self._note_down(crowd, killer, large)
            if len(record.samples.all) % (READINGS // 10) == 0:
                self._report()

    def _note_down(self, crowd: Crowd, killer: Killer, large: LargeMessages) -> None:
        record = self._record
        record.seconds = time.monotonic() - self._began
        record.arrivals, record.kills, record.stops = crowd.arrivals, killer.kills, killer.stops
        record.large = large.passed

    # Rest

    async def _at_rest(
        self, pid: int, client: Conversation, names: Sequence[str], before: Reading | None = None
    ) -> Reading:
        """A reading with every server up and nobody calling; once it is as `before`, or after a while as it is."""
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        door = asyncio.Semaphore(STARTING_AT_ONCE)

        async def wake(name: str) -> None:
            async with door:
                result = await client.call_tool("use_tool", use(name, "echo", {"n": 1}))
                if result.get("structuredContent") != {"n": 1}:
                    self._record.problems.append(f"{name} does not work when nobody disturbs it: {str(result)[:300]}")

        await asyncio.gather(*map(wake, (*names, "good")))
        deadline = time.monotonic() + SETTLE_SECONDS
        last: Reading | None = None
        while True:
            if isinstance(client, HttpConversation):
                client.rest()
            reading = await read(pid, client)
            counts = (reading.descriptors, reading.tasks)
            is_as_before = before is None or (
                reading.descriptors <= before.descriptors and reading.tasks <= before.tasks
            )
            is_steady = last is not None and counts == (last.descriptors, last.tasks)
            if (is_steady and is_as_before) or time.monotonic() > deadline:
                return reading
            last = reading
            await asyncio.sleep(1.0)

    async def _look_for_leftovers(self) -> None:
        deadline = time.monotonic() + 5.0
        while left := descendants(os.getpid()):
            reap_zombies()
            if time.monotonic() > deadline:
                self._record.problems.append(f"left over:\n{describe(left)}")
                return
            await asyncio.sleep(0.1)


async def broken(tasks: Mapping[str, asyncio.Task[Any]]) -> list[str]:
    """Wait for the end of those who should have gone on until now; who broke off before, and why."""
    ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
    return [
        f"{name} broke off: {end!r}"
        for name, end in zip(tasks, ends, strict=True)
        if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError)
    ]
