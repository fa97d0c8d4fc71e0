"""What `top` asks of a workbench: looking, stopping, restarting, logs; and whom it does not serve."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.app import watching
from mcp_workbench.app.watching import MAX_WATCHERS, Watching
from mcp_workbench.engine.observe.call_figures import CallFigures
from mcp_workbench.engine.observe.day_ring import OUTLINE_STEP_SECONDS
from mcp_workbench.engine.observe.log_tail import MAX_FOLLOWED_LINES
from tests.engine.observe.test_call_figures import OK, origin, unchecked

pytestmark = pytest.mark.processes


class Server:
    """A connection, as far as it is watched."""

    def __init__(self) -> None:
        self.entry, self.config = SimpleNamespace(toolbox="box"), SimpleNamespace(name="s")
        self.run = SimpleNamespace(process_id=7, last_lines=lambda count: ["one", "two"])
        self.done: list[str] = []

    def request_stop(self) -> None:
        self.done.append("stop")

    async def wait_stopped(self) -> None:
        self.done.append("stopped")

    def start_in_background(self) -> None:
        self.done.append("start")


class Watched:
    """A socket with a workbench of one server behind it."""

    def __init__(self, folder: Path) -> None:
        self.server: Any = Server()
        self.figures = CallFigures()
        # Whether calls are counted, as it was decided.
        self.counting: list[bool] = []
        self.watching = Watching(
            lambda: [self.server],
            lambda: b'{"pid":1}',
            self.count_calls,
            lambda: self.counting.append(False),
            redact=lambda text: text.replace("two", "***"),
        )
        self.path = str(folder / "w.sock")
        self._tasks: list[asyncio.Task[None]] = []

    def count_calls(self) -> CallFigures:
        self.counting.append(True)
        return self.figures

    async def __aenter__(self) -> Watched:
        self._socket = await asyncio.start_unix_server(self._serve, self.path)
        return self

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.create_task(self.watching.serve(reader, writer)))

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def join(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.path)


async def ask(link: tuple[asyncio.StreamReader, asyncio.StreamWriter], **request: str | int) -> Any:
    link[1].write(json.dumps(request).encode() + b"\n")
    line = await link[0].readline()
    return json.loads(line) if line else None


async def test_measuring_ends_with_the_last_watcher(tmp_path: Path) -> None:
    async with Watched(tmp_path) as watched:
        first, second = await watched.join(), await watched.join()
        found = await ask(first, do="look")
        assert found.pop("now") >= found.pop("since") == watched.figures.since
        assert found == {
            "status": {"pid": 1}, "figures": {}, "day": {}, "processes": {"box/s": [7]}, "lastCalls": [], "running": []
        }  # fmt: skip
        await ask(second, do="look")
        first[1].close()
        await ask(second, do="look")
        assert watched.counting == [True]
        second[1].write_eof()
        assert await second[0].read() == b""
        assert watched.counting == [True, False]
        second[1].close()


async def test_calls_are_not_counted_while_no_view_shows_them(tmp_path: Path) -> None:
    async with Watched(tmp_path) as watched:
        link, looking = await watched.join(), await watched.join()
        for request in ("lines", "log", "page"):
            await ask(link, do=request)
        assert (watched.counting, watched.figures.has_collectors) == ([], False)
        await ask(looking, do="look")
        assert (watched.counting, watched.figures.has_collectors) == ([True], True)
        looking[1].write_eof()
        assert await looking[0].read() == b""
        await ask(link, do="lines")
        assert (watched.counting, watched.figures.has_collectors) == ([True, False], False)
        link[1].close()
        looking[1].close()


async def test_figures_are_those_that_everybody_gets_and_calls_have_their_reason(tmp_path: Path) -> None:
    async with Watched(tmp_path) as watched:
        # Counted before anybody looked.
        unchecked(watched.figures).end("result", OK)
        link = await watched.join()
        await ask(link, do="look")
        watched.figures.begin(unchecked(watched.figures, origin("sleep")))
        unchecked(watched.figures).end("error", b'{"code":1,"message":"not two"}')
        found = await ask(link, do="look")
        assert found["figures"]["box/s"] | {"p50": 0, "p95": 0} == {
            "calls": 2, "errors": 1, "running": 1, "p50": 0, "p95": 0
        }  # fmt: skip
        assert [(each["end"], each["reason"]) for each in found["lastCalls"]] == [("error", "not ***")]
        assert [(each["item"], each["state"]) for each in found["running"]] == [("sleep", "sent")]
        watched.figures._turn_at = 0.0
        ((step,),) = (await ask(link, do="look"))["day"].values()
        assert step[1:] == [2, 1] and step[0] * OUTLINE_STEP_SECONDS <= found["now"]
        link[1].close()


async def test_a_server_that_is_looked_at_has_how_long_its_calls_of_the_day_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Watched(tmp_path) as watched:
        link = await watched.join()
        one = {"toolbox": "box", "server": "s"}
        await ask(link, do="look")
        assert (await ask(link, do="log", **one))["day"] == {"p50": None, "p95": None}
        unchecked(watched.figures).end("result", OK)
        assert (await ask(link, do="log", **one))["day"]["p50"] is None, "a day is not read every second"
        monkeypatch.setattr(watching, "BUCKET_SECONDS", 0)
        day = (await ask(link, do="log", **one))["day"]
        assert 0 < day["p50"] <= day["p95"]
        assert (await ask(link, do="log", toolbox="box", server="other"))["day"]["p50"] is None
        link[1].close()


async def test_the_log_is_followed_until_the_last_watcher_leaves(tmp_path: Path) -> None:
    ours = logging.getLogger("mcp_workbench")
    before = list(ours.handlers)
    async with Watched(tmp_path) as watched:
        link, other = await watched.join(), await watched.join()
        await ask(other, do="look")
        assert len(ours.handlers) == len(before), "nothing is kept until somebody follows"
        assert await ask(link, do="lines") == {"lines": [], "next": 0, "lost": 0}
        for number in range(MAX_FOLLOWED_LINES + 3):
            ours.error("line %d", number)
        found = await ask(link, do="lines", after=1)
        assert (len(found["lines"]), found["next"], found["lost"]) == (MAX_FOLLOWED_LINES, MAX_FOLLOWED_LINES + 3, 2)
        assert await ask(link, do="lines", after=found["next"]) == {"lines": [], "next": found["next"], "lost": 0}
        for each in (link, other):
            each[1].write_eof()
            assert await each[0].read() == b""
            each[1].close()
        assert ours.handlers == before


async def test_a_server_is_stopped_restarted_and_quoted(tmp_path: Path) -> None:
    async with Watched(tmp_path) as watched:
        link = await watched.join()
        one = {"toolbox": "box", "server": "s"}
        assert await ask(link, do="log", **one) == {"lines": ["one", "***"], "day": {}}
        assert await ask(link, do="stop", **one) == {"connections": 1}
        assert watched.server.done == ["stop", "stopped"]
        assert await ask(link, do="restart", **one) == {"connections": 1}
        assert watched.server.done[2:] == ["stop", "stopped", "start"]
        assert await ask(link, do="stop", toolbox="box", server="other") == {"connections": 0}
        watched.server.run = None
        assert await ask(link, do="log", **one) == {"lines": [], "day": {}}
        assert (await ask(link, do="look"))["processes"] == {}
        link[1].close()


@pytest.mark.parametrize("sent", [b"nonsense\n", b'{"do":"erase"}\n', b"x" * 100_000])
async def test_an_invalid_message_ends_only_its_connection(tmp_path: Path, sent: bytes) -> None:
    async with Watched(tmp_path) as watched:
        link, other = await watched.join(), await watched.join()
        link[1].write(sent)
        # What it has not read of us may come back as a reset.
        try:
            assert await link[0].read() == b""
        except ConnectionResetError:
            pass
        assert await ask(other, do="look")
        link[1].close()
        other[1].close()


async def test_more_than_a_few_are_turned_away_and_a_silent_one_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Watched(tmp_path) as watched:
        links = [await watched.join() for _ in range(MAX_WATCHERS)]
        for link in links:
            assert await ask(link, do="look")
        late = await watched.join()
        assert await late[0].read() == b""
        for link in (*links, late):
            link[1].close()
    monkeypatch.setattr(watching, "SILENT_WATCHER_TIMEOUT", 0.01)
    (tmp_path / "again").mkdir()
    async with Watched(tmp_path / "again") as watched:
        link = await watched.join()
        assert await link[0].read() == b""
        link[1].close()
