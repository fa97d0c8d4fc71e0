"""A workbench with a bad server and a healthy one behind it, and what must hold when the fault is over.

Every case ends with the same three checks, in `RunningWorkbench.recovered`:

- the healthy server, still the same process, answers as it did before: all of as many calls, for as much work;
- nothing is left over: processes, descriptors (pipes, sockets, files), tasks; and temporary files, when all is over;
- memory is back within 10 %.

Owns those checks and how a workbench is started for them. Refuses to know any fault.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from mcp_workbench.engine.transport.allocator import KEPT_BYTES
from tests.faults.http_wire import HttpConversation
from tests.faults.vitals import Vitals, processor_seconds, read_vitals
from tests.support.client import Call, Conversation, Json, RawClient
from tests.support.processes import command_line, descendants
from tests.support.workbench import workbench_command, write_config

BAD_SERVER = str(Path(__file__).with_name("bad_server.py"))
# Calls to the healthy server before and after.
HEALTHY_CALLS = 40
# The same work may cost this many times as much, and a little more: caches are cold, the machine is noisy.
WORK_RATIO = 4.0
WORK_SLACK = 0.01
MAX_ROUNDS = 10
# The one that serves, and the owner of the healthy server. Whatever else runs is over after a while.
QUIET_TASKS = 2
# How long what is over may take to be cleaned up, on a busy machine.
REFRESH_SETTLE_TIMEOUT = 45.0
POLL_INTERVAL = 0.05


def bad_entry(*flags: object, name: str = "bad", **settings: Any) -> Json:
    """An entry of `mcpServers` for a bad server. It is spoken to as legacy, which needs no probing, and its results are
    not shortened: how they pass is the subject."""
    arguments = [BAD_SERVER, "--name", name, *map(str, flags)]
    return {"command": sys.executable, "args": arguments, "protocol": "legacy", "resultBudget": None, **settings}


def small_workbench_command(config: Path) -> list[str]:
    return [sys.executable, "-m", "tests.faults.small_workbench", "serve", "--config", str(config)]


def use(server: str, tool: str, arguments: Json | None = None) -> Json:
    """The arguments of `use_tool`."""
    return {"tool": {"toolbox": "box", "server": server, "tool": tool}, "arguments": arguments or {}}


def error_text(result: Json) -> str:
    """The text of a result that says that something went wrong."""
    assert result.get("isError") is True, result
    text: str = result["content"][0]["text"]
    return text


async def port_of(process: RawClient) -> int:
    """Where a workbench that was just started over HTTP listens."""
    await process.wait_for(lambda: "serving MCP at" in process.stderr, "address")
    return int(process.stderr.partition("serving MCP at http://127.0.0.1:")[2].partition("/")[0])


class RunningWorkbench:
    """One workbench that is running, and the client who talks to it."""

    def __init__(self, client: Conversation, process: RawClient, folder: Path) -> None:
        self.client = client
        # The workbench itself; over stdio this is the client as well.
        self.process = process
        self.pid = process.pid
        self.folder = folder
        # What the C library may keep: nothing, unless a case sends large messages. From the first of them on we keep
        # up to 8 MiB of freed memory on purpose (`transport/memory.py`).
        self.kept_bytes = 0
        # For a case whose subject is our own end: nothing is left to be asked.
        self.is_over = False
        self.status_at_end = 0
        self.port = 0
        self._before: Vitals | None = None
        self._work_before = 0.0

    # Talking

    async def start(self, server: str, tool: str, arguments: Json | None = None, **fields: Any) -> Call:
        """A call under way."""
        return await self.client.start_tool("use_tool", use(server, tool, arguments), **fields)

    async def call(self, server: str, tool: str, arguments: Json | None = None, **fields: Any) -> Json:
        """A call, and its result."""
        return await (await self.start(server, tool, arguments, **fields)).result()

    async def value(self, server: str, tool: str, arguments: Json | None = None) -> Json:
        """The structured content of a call that must work."""
        result = await self.call(server, tool, arguments)
        assert not result.get("isError"), result
        content: Json = result["structuredContent"]
        return content

    async def failure(self, server: str, tool: str, arguments: Json | None = None) -> str:
        """The words of a call that must fail."""
        return error_text(await self.call(server, tool, arguments))

    async def open(self) -> Json:
        """What `open_toolbox` says."""
        result = await self.client.call_tool("open_toolbox", {"toolbox_name": "box"})
        assert "structuredContent" in result, result
        content: Json = result["structuredContent"]
        return content

    async def unavailable(self) -> dict[str, str]:
        """Which servers the toolbox says it lacks, and why."""
        return {entry["server"]: entry["reason"] for entry in (await self.open())["unavailable"]}

    async def status(self) -> Json:
        """`workbench://status`."""
        result = await self.client.request("resources/read", {"uri": "workbench://status"})
        found: Json = json.loads(result["contents"][0]["text"])
        return found

    async def server_status(self, name: str = "bad") -> Json:
        """What the status says of one server."""
        found = [server for server in (await self.status())["servers"] if server["server"] == name]
        assert len(found) == 1, found
        return dict(found[0])

    async def others_work(self, count: int = 5) -> None:
        """In the middle of a fault: the healthy server is listed, and answers."""
        for number in range(count):
            assert await self.value("good", "echo", {"n": number}) == {"n": number}

    # The three checks

    async def remember(self) -> None:
        """Take the readings that everything is compared with: when the start is over, or again after a warm-up.

        What a load needs at its height the allocator keeps; a leak shows when the same load comes again.
        """
        self._end_bad_servers()
        await self._healthy_work()
        # Side by side, as in a crowd: what is bought once for that (a larger queue, say) is no leak.
        calls = [await self.start("good", "echo", {"n": number}) for number in range(HEALTHY_CALLS)]
        for call in calls:
            await call.result()
        self._work_before = await self._healthy_work()
        self._before = await self._settled(lambda reading, last: reading == last and reading.tasks == QUIET_TASKS)

    async def recovered(self) -> None:
        """The three checks."""
        assert self._before is not None
        before = self._before
        self._end_bad_servers()
        # One quiet round is enough: what has really become slower is slow in all of them.
        rounds = [await self._healthy_work()]
        while rounds[-1] > (allowed := self._work_before * WORK_RATIO + WORK_SLACK):
            assert len(rounds) < MAX_ROUNDS, f"the healthy server costs {rounds} s, not at most {allowed} s"
            rounds.append(await self._healthy_work())
        await self._settled(lambda reading, last: not reading.leftovers(before, self.kept_bytes))

    async def _healthy_work(self) -> float:
        """The processor time that the workbench needs for some calls to the healthy server, every one answered."""
        began = processor_seconds(self.pid)
        for number in range(HEALTHY_CALLS):
            assert await self.value("good", "echo", {"n": number}) == {"n": number}
        return processor_seconds(self.pid) - began

    async def _settled(self, is_settled: Callable[[Vitals, Vitals | None], bool]) -> Vitals:
        deadline = time.monotonic() + REFRESH_SETTLE_TIMEOUT
        last: Vitals | None = None
        while True:
            if isinstance(self.client, HttpConversation):
                self.client.rest()
            reading = read_vitals(self.pid, (await self.status())["tasks"])
            if is_settled(reading, last):
                return reading
            if time.monotonic() > deadline:
                raise AssertionError(
                    "not as before:\n" + "\n".join(reading.leftovers(self._before or reading, self.kept_bytes))
                )
            last = reading
            await asyncio.sleep(POLL_INTERVAL)

    def _end_bad_servers(self) -> None:
        for pid in descendants(self.pid):
            words = command_line(pid)
            if BAD_SERVER in words and "--name good" not in words:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Faults:
    """Starts stages over one folder."""

    def __init__(self, folder: Path, temporary: Path | None = None) -> None:
        self.folder = folder
        # Best has a short path: those of sockets end at some hundred characters.
        self.temporary = temporary or folder / "temporary"
        self.temporary.mkdir(exist_ok=True)

    def path(self, name: str) -> Path:
        """A file for a server to write, or to be told by."""
        return self.folder / name

    def write_faults(self, faults: Json, name: str = "faults") -> Path:
        """The file that tells a bad server what to do."""
        path = self.path(name)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(faults))
        os.replace(draft, path)
        return path

    def environment(self) -> dict[str, str]:
        """The workbench's: what it leaves in temporary folders is found."""
        return {**os.environ, "TMPDIR": str(self.temporary), "XDG_RUNTIME_DIR": str(self.temporary)}

    def write_config(
        self, servers: Mapping[str, Json], beside: Mapping[str, Mapping[str, Json]] | None = None, **settings: Any
    ) -> Path:
        """Without a budget, so that opening the toolbox shows every tool in full; `beside` are further toolboxes."""
        box = {"good": bad_entry(name="good"), **servers}
        return write_config(self.folder, {"box": box, **(beside or {})}, **{"budget": None, **settings})

    @asynccontextmanager
    async def serving(
        self,
        servers: Mapping[str, Json],
        *flags: object,
        era: str = "legacy",
        capabilities: Json | None = None,
        large: bool = False,
        small: bool = False,
        **settings: Any,
    ) -> AsyncIterator[RunningWorkbench]:
        """A workbench over stdio that knows its healthy server, for one fault; then the three checks. `small`: it lets
        less wait for those who do not read."""
        config = self.write_config(servers, **settings)
        command = small_workbench_command(config) if small else workbench_command(config, *flags)
        spawned = RawClient.spawn(command, env=self.environment())
        async with spawned as process:
            workbench = RunningWorkbench(process, process, self.folder)
            async with self._played(workbench, era, capabilities, large):
                yield workbench
            if not workbench.is_over:
                process.close_stdin()
            assert await process.wait_exit() == workbench.status_at_end, process.stderr
        if workbench.status_at_end >= 0:
            self.nothing_left_on_disk()

    @asynccontextmanager
    async def serving_http(
        self,
        servers: Mapping[str, Json],
        *flags: object,
        era: str = "legacy",
        capabilities: Json | None = None,
        large: bool = False,
        impatient: bool = False,
        **settings: Any,
    ) -> AsyncIterator[RunningWorkbench]:
        """The same over HTTP; `impatient` makes its deadlines short."""
        config = self.write_config(servers, **settings)
        command = workbench_command(config, "--http", "127.0.0.1:0", "--no-token", *flags)
        if impatient:
            command = [sys.executable, "-m", "tests.faults.impatient_workbench", str(config)]
        async with RawClient.spawn(command, env=self.environment()) as process:
            port = await port_of(process)
            client = HttpConversation(port)
            workbench = RunningWorkbench(client, process, self.folder)
            workbench.port = port
            try:
                async with self._played(workbench, era, capabilities, large):
                    yield workbench
            finally:
                await client.close()
            if not workbench.is_over:
                process.process.terminate()
            assert await process.wait_exit() == workbench.status_at_end, process.stderr
            process.close_stdin()
        if workbench.status_at_end >= 0:
            self.nothing_left_on_disk()

    @asynccontextmanager
    async def _played(
        self, workbench: RunningWorkbench, era: str, capabilities: Json | None, large: bool
    ) -> AsyncIterator[None]:
        if era == "modern":
            workbench.client.stamp(capabilities=capabilities)
        else:
            await workbench.client.initialize(capabilities=capabilities)
        workbench.kept_bytes = KEPT_BYTES if large else 0
        await workbench.remember()
        yield
        if not workbench.is_over:
            await workbench.recovered()

    def nothing_left_on_disk(self) -> None:
        """When all is over: no temporary file, socket or half-written manifest."""
        left = [path for path in self.temporary.rglob("*") if not path.is_dir()]
        left += (self.folder / "cache").rglob("*.new")
        assert not left, f"left behind: {left}"
