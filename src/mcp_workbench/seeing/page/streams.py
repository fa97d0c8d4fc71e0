"""Open pages, and what they are told: calls as they happen, what has changed, what servers write.

Calls are told several times a second, in one event that is written once for all pages that see the same. Owns the
streams, at most a few, each with a bounded backlog: a browser that does not read loses events, is told how many, and
never slows a call. While none is open, nobody listens to calls and nothing is kept of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.json import encode

from mcp_workbench.engine.observe.call_figures import state_of
from mcp_workbench.engine.observe.call_record import CallState
from mcp_workbench.engine.observe.ended_calls import EndedCalls
from mcp_workbench.engine.observe.shown_calls import CallDescriber, ShownCall
from mcp_workbench.engine.printable import report_json
from mcp_workbench.engine.steps import AnyPassage
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from mcp_workbench.seeing.page.captured_calls import CapturedCalls
from mcp_workbench.seeing.page.shown_workbench import Json, LogPlace, PageWorkbench
from mcp_workbench.seeing.page.sign_in import PageSession, PageUser

MAX_STREAMS_OF_ONE: Final = 8
# Of all users but those who see everything: they are never kept out by others.
MAX_STREAMS: Final = 64
MAX_BACKLOG_BYTES: Final = 1024 * 1024
# Proxies cut connections that are silent for 30 to 60 seconds.
HEARTBEAT_INTERVAL: Final = 15.0
# How often what is not announced is looked at: states of servers, what waits, what servers wrote.
LOOK_INTERVAL: Final = 1.0
# How often calls are told of. A person sees no delay below a quarter of a second, and many calls share one event.
CALLS_INTERVAL: Final = 0.2
# Of those that ended well, in one such event: as many a second as a page keeps. Further ones are counted and told as
# lost, because nobody could read them; those that failed, or that a page shows as running, are all told.
MAX_ORDINARY_CALLS: Final = 100
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

    def send(self, id: int, event: bytes, data: bytes, number: int = 1) -> None:
        """`number`: of what is lost if the browser does not read."""
        if self._writer.unsent_bytes > MAX_BACKLOG_BYTES:
            self.lost += number
            return
        if self.lost:
            lost, self.lost = self.lost, 0
            self._write(id, b"gap", encode({"lost": lost}))
        self._write(id, event, data)

    def _write(self, id: int, event: bytes, data: bytes) -> None:
        self._writer.write(b"id: %d\nevent: %b\ndata: %b\n\n" % (id, event, data))

    def beat(self) -> None:
        if not self._writer.unsent_bytes:
            self._writer.write(_HEARTBEAT)

    def end(self) -> None:
        self._writer.finish()


class Streams:
    """All open pages of one workbench."""

    def __init__(self, workbench: PageWorkbench) -> None:
        self._workbench = workbench
        self._calls = CapturedCalls(lambda: workbench.capture, workbench.redact)
        self._ended = EndedCalls(self._tell_of_calls, most_ordinary=MAX_ORDINARY_CALLS)
        # What was told of calls that are running.
        self._told: dict[AnyPassage, CallState] = {}
        self._open: list[Stream] = []
        self._events = 0
        self._stop_collecting: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._calls_timer: asyncio.TimerHandle | None = None
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
        if self._stop_collecting is None:
            self._stop_collecting = self._workbench.collect(self._ended)
            self._log = self._workbench.log_lines()
            self._timer = loop.call_later(LOOK_INTERVAL, self._look)
            self._calls_timer = loop.call_later(CALLS_INTERVAL, self._look_at_calls)
        else:
            # Those that the new page gets with all others are not told again.
            self._tell_of_calls()
        self._open.append(stream)
        stream.servers, stream.waiting, stream.toolboxes = _by_place(state), state["waiting"], state["toolboxes"]
        stream.own = {"you": state["you"]} if "you" in state else {}
        self._send(stream, b"state", state)
        describer = CallDescriber(self._workbench.redact)
        self._send_calls((stream,), [*self._calls.shown(), *map(describer.running, self._told)])

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
        if self._stop_collecting is not None:
            self._stop_collecting()
            self._stop_collecting = None
        for timer in (self._timer, self._calls_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._calls_timer = None
        # Content is kept only while somebody looks.
        self._calls.clear()
        self._ended.take()
        self._ended.take_missed()
        self._told.clear()

    def find_call(self, id: int, user: PageUser) -> Json | None:
        """A call with its content; None if it has ended and is not kept, or is somebody else's."""
        if self._open:
            self._tell_of_calls()
        for each in self._told:
            if each.id == id and user.may_see(each.origin.principal):
                return self._calls.running(each, CallDescriber(self._workbench.redact).running(each)[1])
        return self._calls.find(id, user.may_see)

    # ── calls ──

    def _look_at_calls(self) -> None:
        if self._calls_timer is not None:
            self._calls_timer.cancel()
        self._calls_timer = asyncio.get_running_loop().call_later(CALLS_INTERVAL, self._look_at_calls)
        self._tell_of_calls()

    def _tell_of_calls(self) -> None:
        """What has ended, begun or changed since the last time. A call that has begun and ended is told once."""
        ended, running = self._ended.take(), self._workbench.running()
        describer = CallDescriber(self._workbench.redact)
        told = [describer.ended(each) for each in ended]
        self._calls.keep(ended, told)
        states: dict[AnyPassage, CallState] = {each: state_of(each) for each in running}
        for passage, state in states.items():
            if self._told.get(passage) != state:
                told.append(describer.running(passage))
        self._told = states
        if missed := self._ended.take_missed():
            for stream in self._open:
                user = stream.user
                stream.lost += sum(missed.values()) if user.is_owner else missed.get(user.principal, 0)
        self._send_calls(self._open, told)

    def _send_calls(self, streams: Sequence[Stream], calls: Sequence[tuple[str, ShownCall]]) -> None:
        """Calls with their principals."""
        # By principal, and all of them: written once for all pages that see the same.
        written: dict[str | None, tuple[int, bytes]] = {}
        for stream in streams:
            user = stream.user
            whose = None if user.is_owner else user.principal
            if whose not in written:
                seen = [call for principal, call in calls if whose is None or principal == whose]
                written[whose] = len(seen), report_json(seen)
            number, data = written[whose]
            if number:
                self._events += 1
                stream.send(self._events, b"calls", data, number)

    def _send(self, stream: Stream, event: bytes, data: object) -> None:
        self._events += 1
        stream.send(self._events, event, report_json(data))

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
        self._send(stream, b"state", {"servers": changed, **rest} if is_same_set else {**stream.own, **state})
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
                    self._send(stream, b"log", told)


def _by_place(state: Any) -> dict[tuple[str, str], Any]:
    return {(row["toolbox"], row["server"]): row for row in state["servers"]}


def _new_lines(before: list[str], now: list[str]) -> list[str]:
    """What follows in `now` after the end of `before`. Both are the last lines of one output."""
    for kept in range(min(len(before), len(now)), 0, -1):
        if before[-kept:] == now[:kept]:
            return now[kept:]
    return now
