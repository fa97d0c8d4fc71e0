"""Open pages, and what they are told: calls as they happen, what has changed, what servers write.

Owns the streams, at most a few, each with a bounded backlog: a browser that does not read loses events, is told how
many, and never slows a call. While none is open, nobody listens to calls and nothing is kept of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from msgspec.json import encode

from mcp_workbench.engine.observe.call_record import CallRecord
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from mcp_workbench.seeing.page.captured_calls import CapturedCalls
from mcp_workbench.seeing.page.shown_workbench import LogPlace, PageWorkbench
from mcp_workbench.seeing.page.sign_in import PageSession, PageUser

MAX_STREAMS_OF_ONE: Final = 8
# Of all users but those who see everything: they are never kept out by others.
MAX_STREAMS: Final = 64
MAX_BACKLOG_BYTES: Final = 1024 * 1024
# Proxies cut connections that are silent for 30 to 60 seconds.
HEARTBEAT_INTERVAL: Final = 15.0
# How often what is not announced is looked at: states of servers, what waits, what servers wrote.
LOOK_INTERVAL: Final = 1.0
# How often the memory of servers is measured, which takes milliseconds in a thread.
MEMORY_INTERVAL: Final = 5.0
_HEARTBEAT: Final = b": still here\n\n"
# How many new lines of one server are sent at a time; a server may write thousands.
MAX_NEW_LOG_LINES: Final = 50


class Stream:
    """One open page."""

    def __init__(self, writer: ResponseWriter, session: PageSession, is_valid: Callable[[], bool]) -> None:
        self._writer = writer
        self._session = session
        self.is_valid = is_valid
        self.lost = 0
        self.quiet_since = 0.0
        # What it was told last.
        self.servers: dict[tuple[str, str], Any] = {}
        self.waiting: Any = None
        self.toolboxes: Any = None
        # What the state of this session has in addition.
        self.own: dict[str, Any] = {}

    @property
    def is_over(self) -> bool:
        return self._writer.is_over

    @property
    def user(self) -> PageUser:
        return self._session.user

    def may_see(self, principal: str) -> bool:
        return self.user.is_owner or principal == self.user.principal

    def send(self, id: int, event: str, data: object) -> None:
        if self._writer.unsent_bytes > MAX_BACKLOG_BYTES:
            self.lost += 1
            return
        if self.lost:
            lost, self.lost = self.lost, 0
            self._write(id, "gap", {"lost": lost})
        self._write(id, event, data)

    def _write(self, id: int, event: str, data: object) -> None:
        self._writer.write(b"id: %d\nevent: %b\ndata: %b\n\n" % (id, event.encode(), encode(data)))

    def beat(self) -> None:
        if not self._writer.unsent_bytes:
            self._writer.write(_HEARTBEAT)

    def end(self) -> None:
        self._writer.finish()


class Streams:
    """All open pages of one workbench (`CallListener`)."""

    def __init__(self, workbench: PageWorkbench) -> None:
        self._workbench = workbench
        self.calls = CapturedCalls(lambda: workbench.capture, workbench.redact)
        self._open: list[Stream] = []
        self._events = 0
        self._unsubscribe: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._log: dict[LogPlace, list[str]] = {}
        self._measured = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def has_room_for(self, user: PageUser) -> bool:
        if sum(each.user.principal == user.principal for each in self._open) >= MAX_STREAMS_OF_ONE:
            return False
        return user.is_owner or len(self._open) < MAX_STREAMS

    def open(self, writer: ResponseWriter, session: PageSession, is_valid: Callable[[], bool], state: Any) -> None:
        """Begin a stream, whose head has been written. There is room for it."""
        loop = asyncio.get_running_loop()
        stream = Stream(writer, session, is_valid)
        stream.quiet_since = loop.time()
        writer.gone = lambda: self._close(stream)
        self._open.append(stream)
        if self._unsubscribe is None:
            self._unsubscribe = self._workbench.subscribe(self, content=self._workbench.capture != "none")
            self._log = self._workbench.log_lines()
            self._timer = loop.call_later(LOOK_INTERVAL, self._look)
        stream.servers, stream.waiting, stream.toolboxes = _by_place(state), state["waiting"], state["toolboxes"]
        stream.own = {"you": state["you"]} if "you" in state else {}
        self._send(stream, "state", state)
        for record in self.calls.records(stream.may_see):
            self._send(stream, "call-end", record)

    def close(self) -> None:
        """End all streams."""
        for stream in list(self._open):
            stream.end()
            self._close(stream)

    def _close(self, stream: Stream) -> None:
        if stream in self._open:
            self._open.remove(stream)
        if self._open:
            return
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Content is kept only while somebody looks.
        self.calls.clear()

    # ── calls (`CallListener`) ──

    def begun(self, call: CallRecord) -> None:
        self._tell(call, "call-begin")

    def changed(self, call: CallRecord) -> None:
        self._tell(call, "call-change")

    def ended(self, call: CallRecord) -> None:
        self.calls.keep(call)
        self._tell(call, "call-end")

    def _tell(self, call: CallRecord, event: str) -> None:
        record: dict[str, Any] | None = None
        for stream in self._open:
            if stream.may_see(call.principal):
                record = record or self.calls.shown_record(call)
                self._send(stream, event, record)

    def _send(self, stream: Stream, event: str, data: object) -> None:
        self._events += 1
        stream.send(self._events, event, data)

    # ── what is looked at ──

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(LOOK_INTERVAL, self._look)
        for stream in [each for each in self._open if each.is_over or not each.is_valid()]:
            stream.end()
            self._close(stream)
        if self._open and now - self._measured >= MEMORY_INTERVAL:
            self._measured = now
            self._workbench.measure()
        states: dict[PageUser, Any] = {}
        for stream in self._open:
            if stream.user not in states:
                states[stream.user] = self._workbench.state(stream.user)
            if self._tell_of_state(stream, states[stream.user]):
                stream.quiet_since = now
            elif now - stream.quiet_since >= HEARTBEAT_INTERVAL:
                stream.quiet_since = now
                stream.beat()
        self._tell_of_log()

    def _tell_of_state(self, stream: Stream, state: Any) -> bool:
        servers = _by_place(state)
        is_same_set = servers.keys() == stream.servers.keys()
        changed = [row for place, row in servers.items() if stream.servers.get(place) != row]
        rest = {name: state[name] for name in ("waiting", "toolboxes", "now")}
        if is_same_set and not changed and (rest["waiting"], rest["toolboxes"]) == (stream.waiting, stream.toolboxes):
            return False
        stream.servers, stream.waiting, stream.toolboxes = servers, rest["waiting"], rest["toolboxes"]
        self._send(stream, "state", {"servers": changed, **rest} if is_same_set else {**stream.own, **state})
        return True

    def _tell_of_log(self) -> None:
        owners = [stream for stream in self._open if stream.user.is_owner]
        if not owners:
            return
        before, self._log = self._log, self._workbench.log_lines()
        for place, lines in self._log.items():
            for line in _new_lines(before.get(place, []), lines)[-MAX_NEW_LOG_LINES:]:
                told = {"toolbox": place[0], "server": place[1], "line": self._workbench.redact(line)}
                for stream in owners:
                    self._send(stream, "log", told)


def _by_place(state: Any) -> dict[tuple[str, str], Any]:
    return {(row["toolbox"], row["server"]): row for row in state["servers"]}


def _new_lines(before: list[str], now: list[str]) -> list[str]:
    """What follows in `now` after the end of `before`. Both are the last lines of one output."""
    for kept in range(min(len(before), len(now)), 0, -1):
        if before[-kept:] == now[:kept]:
            return now[kept:]
    return now
