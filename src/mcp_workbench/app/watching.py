"""Serves `mcp-workbench top`, over the same kind of socket as the status.

One JSON object per line in each direction: `look` is answered with the status, figures and the latest calls; `stop`,
`restart` and `log` concern one server, `lines` follows our own log, `offers` is for `mcp-workbench team lock`, `page`
for `mcp-workbench page`. A workbench that does not count calls anyway does while at least one client looks. The
socket is in a folder that only our user can enter. Loaded with the first connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, decode

from mcp_workbench.engine.catalog.manifests import written_offer
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.engine.observe.call_figures import CallFigures, Label, ServerTotals
from mcp_workbench.engine.observe.day_ring import BUCKET_SECONDS
from mcp_workbench.engine.observe.log_tail import LogTail
from mcp_workbench.engine.observe.recent_calls import RecentCalls
from mcp_workbench.engine.socket_peers import described_peer, may_decide
from mcp_workbench.errors import WorkbenchError

# `top` asks every second; a client that is suspended is dropped.
SILENT_WATCHER_TIMEOUT: Final = 30.0
# More than a person has terminals.
MAX_WATCHERS: Final = 8
LOG_LINES: Final = 200
# More than a screen has lines.
MAX_RUNNING_SHOWN: Final = 100
# Stopping a server is bounded by its sequence of signals; this is somewhat more.
SERVERS_END_TIMEOUT: Final = 10.0


class PageOpener(Protocol):
    """The page of our own user (`page_serving.OwnPage`)."""

    async def open(self, port: int, connect: list[dict[str, Any]], *, by: str, may_decide: bool) -> str:
        """An address that signs our own user in, once. Raises `WorkbenchError`."""

    async def close(self) -> None: ...


class WatchRequest(Struct):
    """A request from `top`."""

    do: Literal["look", "stop", "restart", "log", "lines", "offers", "page"]
    toolbox: str = ""
    server: str = ""
    # The path of a configuration, for `offers`.
    config: str = ""
    # For `lines`: how many lines of the log have been seen; None begins with the next one.
    after: int | None = None
    # For `page`: the port, 0 for the usual one, and how to connect each client.
    port: int = 0
    connect: list[dict[str, Any]] = []


_decode: Final = Decoder(WatchRequest).decode


class Watching:
    """Serves all connections of `top` to one process."""

    def __init__(
        self,
        connections: Callable[[], list[Connection]],
        describe: Callable[[], bytes],
        count_calls: Callable[[], CallFigures],
        stop_counting: Callable[[], None],
        make_page: Callable[[], PageOpener] | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._redact = redact
        self._make_page = make_page
        self._page: PageOpener | None = None
        self._connections = connections
        self._describe = describe
        # Whoever looks wants the calls of the process to be counted.
        self._count_calls = count_calls
        self._stop_counting = stop_counting
        self._figures: CallFigures | None = None
        self._recent = RecentCalls(redact)
        self._tail: LogTail | None = None
        # Of the server that was asked for last, and when.
        self._day: tuple[Label, float, dict[str, float | None]] | None = None
        self._watchers = 0
        # Those that have asked for calls, which each call pays for: whoever follows a log does not.
        self._lookers = 0
        self._stop_collecting: Callable[[], None] = lambda: None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it closes."""
        if self._watchers >= MAX_WATCHERS:
            writer.close()
            return
        self._watchers += 1
        looks = False
        try:
            with contextlib.suppress(OSError, TimeoutError, ValueError, MsgspecError):
                while True:
                    async with asyncio.timeout(SILENT_WATCHER_TIMEOUT):
                        line = await reader.readline()
                    if not line:
                        break
                    request = _decode(line)
                    if request.do == "look" and not looks:
                        looks = True
                        self._begin_to_look()
                    writer.write(encode(await self._answer(request, writer)) + b"\n")
                    async with asyncio.timeout(SILENT_WATCHER_TIMEOUT):
                        await writer.drain()
        finally:
            self._watchers -= 1
            if looks:
                self._end_looking()
            if not self._watchers and self._tail is not None:
                self._tail.end()
                self._tail = None
            writer.close()

    def _begin_to_look(self) -> None:
        self._lookers += 1
        if self._lookers == 1:
            self._recent = RecentCalls(self._redact)
            self._figures = self._count_calls()
            self._stop_collecting = self._figures.collect(self._recent.ended)

    def _end_looking(self) -> None:
        self._lookers -= 1
        if not self._lookers:
            self._stop_collecting()
            self._stop_counting()
            self._day = None

    async def _open_page(self, request: WatchRequest, writer: asyncio.StreamWriter) -> dict[str, Any]:
        connection = writer.get_extra_info("socket")
        if self._make_page is None:
            return {"error": "it serves no client"}
        if self._page is None:
            self._page = self._make_page()
        try:
            by, may = described_peer(connection), may_decide(connection)
            return {"address": await self._page.open(request.port, request.connect, by=by, may_decide=may)}
        except WorkbenchError as error:
            return {"error": error.message}

    async def close_page(self) -> None:
        if self._page is not None:
            await self._page.close()

    async def _answer(self, request: WatchRequest, writer: asyncio.StreamWriter) -> dict[str, Any]:
        if request.do == "page":
            return await self._open_page(request, writer)
        if request.do == "look":
            return self._look()
        if request.do == "lines":
            return self._lines(request.after)
        if request.do == "offers":
            return {"offers": self._offers(request.config)}
        meant = [
            each
            for each in self._connections()
            if (each.entry.toolbox, each.config.name) == (request.toolbox, request.server)
        ]
        if request.do == "log":
            runs = [each.run for each in meant if each.run is not None]
            lines = [self._redact(line) for run in runs for line in run.last_lines(LOG_LINES)]
            return {"lines": lines, "day": self._day_of(request.toolbox, request.server)}
        for connection in meant:
            connection.request_stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SERVERS_END_TIMEOUT):
                await asyncio.gather(*(each.wait_stopped() for each in meant))
        if request.do == "restart":
            for connection in meant:
                connection.start_in_background()
        return {"connections": len(meant)}

    def _lines(self, after: int | None) -> dict[str, Any]:
        """What was logged since somebody follows the log."""
        if self._tail is None:
            self._tail = LogTail()
        count = self._tail.count
        lines = [] if after is None else self._tail.since(after)
        return {"lines": lines, "next": count, "lost": 0 if after is None else max(0, count - after - len(lines))}

    def _offers(self, config: str) -> list[dict[str, Any]]:
        """What the servers of a configuration have listed to our own user, as this process has it."""
        return [
            {"toolbox": entry.toolbox, "server": entry.name, "offer": Raw(written_offer(entry.offer))}
            for entry in dict.fromkeys(each.entry for each in self._connections() if each.principal in OWN_PRINCIPALS)
            if entry.offer is not None and entry.is_live and any(each.path == config for each in entry.catalogs)
        ]

    def _day_of(self, toolbox: str, server: str) -> dict[str, float | None]:
        """How long calls of the last day took, for whoever looks at calls. Read again when there can be news of it: to
        read a whole day takes milliseconds."""
        if not self._lookers or self._figures is None:
            return {}
        now, place = time.monotonic(), (toolbox, server)
        if self._day is None or self._day[0] != place or now - self._day[1] >= BUCKET_SECONDS:
            found = self._figures.day_durations(toolbox, server)
            self._day = place, now, {"p50": found.quantile(0.5), "p95": found.quantile(0.95)}
        return self._day[2]

    def _look(self) -> dict[str, Any]:
        processes: dict[str, list[int]] = {}
        for each in self._connections():
            pid = None if each.run is None else each.run.process_id
            if pid is not None:
                processes.setdefault(f"{each.entry.toolbox}/{each.config.name}", []).append(pid)
        figures = self._figures
        assert figures is not None
        totals = figures.totals()
        return {
            "status": decode(self._describe()),
            "now": time.time(),
            "since": totals.since,
            "figures": {"/".join(label): _figures(each) for label, each in totals.by_server().items()},
            # Calls and errors of quarters of an hour, by their number (`day_ring.OUTLINE_STEP_SECONDS`).
            "day": {"/".join(label): outline for label, outline in figures.outlines().items()},
            "processes": processes,
            "lastCalls": self._recent.calls(),
            "running": [each.as_json() for each in figures.running()[:MAX_RUNNING_SHOWN] if each.server],
        }


def _figures(totals: ServerTotals) -> dict[str, Any]:
    return {
        "calls": totals.calls,
        "errors": totals.errors,
        "running": totals.running + totals.waiting,
        "p50": totals.durations.quantile(0.5),
        "p95": totals.durations.quantile(0.95),
    }
