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
from soak.record import REMOTES_ONE_IN, Ended, Record, describe_machine
from soak.remotes import Remotes
from soak.samples import Reading, read
from tests.faults.http_wire import HttpConversation
from tests.faults.running_workbench import Faults, bad_entry, port_of, use
from tests.support.client import Conversation, Json, RawClient
from tests.support.processes import descendants, describe, reap_zombies
from tests.support.workbench import workbench_command

READINGS = 360
MIN_INTERVAL = 1.0
# A server that is slower than this is slow because it was stopped, or because the machine is.
SERVER_TIMEOUT = 10
# Servers behind each workbench over stdio, and how many callers share its one client.
STDIO_SERVERS, STDIO_CALLERS = 3, 5
STARTING_AT_ONCE = 8
# How long it may take until everything that is over has been cleaned up.
REFRESH_SETTLE_TIMEOUT = 90.0
# What is said of a call whose connection was closed under it.
CLOSED = "closed the connection without a response"
EXIT_SECONDS = 30.0


class Run:
    """One run."""

    def __init__(self, record: Record, folder: Path, report: Callable[[], None]) -> None:
        self._record = record
        self._folder = folder
        self._report = report
        self._notes, self._remote_notes = folder / "notes", folder / "remote-notes"
        self._lifetime = record.settings.minutes * 60 + 3600
        self._remotes = Remotes(folder, (), self._remote_notes, self._lifetime)
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
        local = [f"s{number}" for number in range(settings.servers - settings.remotes)]
        far = [f"r{number}" for number in range(settings.remotes)]
        names = [*local, *far]
        self._remotes = Remotes(self._folder, far, self._remote_notes, self._lifetime)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._end_remotes)
            await self._remotes.start()
            process = await stack.enter_async_context(
                self._workbench("http", names, "--http", "127.0.0.1:0", "--no-token")
            )
            port = await port_of(process)
            asking = HttpConversation(port)
            stack.push_async_callback(asking.close)
            asking.stamp()
            fews = [[*local[:STDIO_SERVERS], *far[number % max(1, len(far)) :][:1]] for number in range(settings.stdio)]
            benches = [
                await stack.enter_async_context(self._workbench(f"stdio-{number}", few))
                for number, few in enumerate(fews)
            ]
            for number, bench in enumerate(benches):
                if number % 2:
                    bench.stamp()
                else:
                    await bench.initialize()
            record.before = await self._at_rest(process.pid, asking, names)
            pairs = list(zip(benches, fews, strict=True))
            earlier = [await self._at_rest(bench.pid, bench, few) for bench, few in pairs]
            await self._storm(process.pid, port, asking, names, pairs)
            await self._remotes.all_listen()
            record.after = await self._at_rest(process.pid, asking, names, record.before)
            for (bench, few), before in zip(pairs, earlier, strict=True):
                record.stdio.append(Ended(before, await self._at_rest(bench.pid, bench, few, before)))
            await asking.close()
            process.process.send_signal(signal.SIGTERM)
            for bench in benches:
                bench.close_stdin()
            for each in (process, *benches):
                if (status := await each.wait_exit(EXIT_SECONDS)) != 0:
                    record.problems.append(f"a workbench ended with status {status}")
        await self._look_for_leftovers()
        far_numbers = _numbers_in(self._remote_notes)
        numbers = _numbers_in(self._notes) + far_numbers
        record.noted, record.remote_noted = len(set(numbers)), len(set(far_numbers))
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

    async def _end_remotes(self) -> None:
        await self._remotes.stop()
        self._record.problems += self._remotes.problems

    def _entry(self, name: str) -> Json:
        if name in self._remotes:
            return self._remotes.entry(name, SERVER_TIMEOUT)
        options = ("--notes", self._notes, "--exit-after", self._lifetime)
        entry = bad_entry(*options, name=name, timeout=SERVER_TIMEOUT)
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
        # Less often, for there are fewer of them; and stopped as often as killed.
        far_pause = settings.kill_pause * REMOTES_ONE_IN
        far_killer = Killer([os.getpid()], far_pause, at_address=True, stops_one_in=2, seed=2)
        large = LargeMessages(port, settings.large_pause, record.accounts)
        self._began = time.monotonic()

        def note_down() -> None:
            record.seconds = time.monotonic() - self._began
            record.arrivals, record.kills, record.stops = crowd.arrivals, killer.kills, killer.stops
            record.remote_kills, record.remote_stops = far_killer.kills, far_killer.stops
            record.remote_restarts = self._remotes.restarts
            record.large = large.passed

        async def watch() -> None:
            await self._watch(pid, asking, note_down)

        watching = asyncio.create_task(watch())
        mischief = {
            "the killer": asyncio.create_task(killer.run()),
            "the killer of servers at an address": asyncio.create_task(far_killer.run()),
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
            note_down()

    async def _watch(self, pid: int, asking: Conversation, note_down: Callable[[], None]) -> None:
        """Take readings, and write the report now and then: whoever kills the run still gets to see it."""
        record = self._record
        interval = max(MIN_INTERVAL, record.settings.minutes * 60 / READINGS)
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
            note_down()
            if len(record.samples.all) % (READINGS // 10) == 0:
                self._report()

    # Rest

    async def _at_rest(
        self, pid: int, client: Conversation, names: Sequence[str], before: Reading | None = None
    ) -> Reading:
        """A reading with every server up and nobody calling; once it is as `before`, or after a while as it is."""
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        places = asyncio.Semaphore(STARTING_AT_ONCE)

        async def wake(name: str) -> None:
            async with places:
                # A server at an address may close an idle connection at the very moment of a call. The workbench must
                # not repeat that call; whoever made it may.
                for is_last in (False, True) if name in self._remotes else (True,):
                    result = await client.call_tool("use_tool", use(name, "echo", {"n": 1}))
                    if result.get("structuredContent") == {"n": 1}:
                        return
                    if is_last or CLOSED not in str(result):
                        found = str(result.get("content", result))[:300]
                        self._record.problems.append(f"{name} does not work when nobody disturbs it: {found}")
                        return

        await asyncio.gather(*map(wake, (*names, "good")))
        deadline = time.monotonic() + REFRESH_SETTLE_TIMEOUT
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


def _numbers_in(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()] if notes.exists() else []


async def broken(tasks: Mapping[str, asyncio.Task[Any]]) -> list[str]:
    """Wait for the end of those who should have gone on until now; who broke off before, and why."""
    ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
    return [
        f"{name} broke off: {end!r}"
        for name, end in zip(tasks, ends, strict=True)
        if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError)
    ]
