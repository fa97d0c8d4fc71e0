"""Subscriptions to a server: changed resources, changed lists, states of tasks, log messages.

Legacy servers accept one `resources/subscribe` for each resource, and `logging/setLevel`; modern ones a
`subscriptions/listen` for all clients with equal capabilities, which names everything and is replaced when something is
added or removed. Both are repeated when the server restarts. Tasks have streams of their own, so that a server without
them, or that refuses one, still reports everything else. Owns who subscribed to what. Knows nothing about what
subscribers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder, decode

from mcp_workbench.engine.downstream.traffic import Traffic
from mcp_workbench.engine.jsonrpc.messages import decode_object, decode_string, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError, new_id
from mcp_workbench.engine.protocol.constants import SUBSCRIPTION_ID
from mcp_workbench.engine.protocol.logging_levels import is_at_least
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES
from mcp_workbench.errors import DownstreamError, WorkbenchError

log = logging.getLogger(__name__)

# Servers acknowledge a subscription at once; wait no longer than this.
ACKNOWLEDGE_TIMEOUT: Final = 5.0
# The pause before a listen request that the server ended is sent again.
LISTEN_AGAIN_AFTER: Final = 1.0
# The pause doubles each time, up to this, if streams keep ending.
MAX_SUBSCRIPTION_RETRY_DELAY: Final = 60.0
MAX_SUBSCRIBED_RESOURCES: Final = 1000
# How many streams a modern server is asked for, one for each set of capabilities; further clients use the first one.
MAX_SERVER_STREAMS: Final = 16
# How many streams that have ended are remembered: each may report for the moment until the server has read so.
MAX_ENDED: Final = 100
# The members of the filter of `subscriptions/listen` that name what a subscriber wants to hear of.
RESOURCE_SUBSCRIPTIONS: Final = "resourceSubscriptions"
TASK_IDS: Final = "taskIds"


class Subscriber(Protocol):
    """Notified when what it subscribed to changes."""

    def on_updated(self, params: Raw) -> None:
        """The resource or task has changed; `params` are the server's."""

    def on_subscription_lost(self) -> None:
        """Called when a subscription that was made cannot continue at the server that replaces its own."""


class _AcknowledgedFilter(Struct):
    taskIds: list[str] = []


class _Acknowledged(Struct):
    notifications: _AcknowledgedFilter = field(default_factory=_AcknowledgedFilter)


class _Stream:
    """The subscriptions of clients with equal capabilities to resources or to tasks, and the stream on which a modern
    server reports them."""

    __slots__ = (
        "acknowledged",
        "capabilities",
        "granted",
        "has_missed",
        "listening",
        "member",
        "opening",
        "reporting",
        "subscribers",
    )

    def __init__(self, capabilities: bytes, member: str = RESOURCE_SUBSCRIPTIONS) -> None:
        self.capabilities = capabilities
        self.member = member
        # By address of the resource, or id of the task.
        self.subscribers: dict[str, list[Subscriber]] = {}
        # The tasks that the server has acknowledged.
        self.granted: frozenset[str] = frozenset()
        # Held while the stream is opened, because an acknowledgement belongs to the latest filter.
        self.opening = asyncio.Lock()
        self.listening: asyncio.Task[None] | None = None
        # The id of the request on which the server reports. While another replaces it, the server reports on both, and
        # the new one counts from its acknowledgement on.
        self.reporting: int | None = None
        self.acknowledged = asyncio.Event()
        # Whether it has ended since the last acknowledgement.
        self.has_missed = False


class ServerSubscriptions:
    """All subscriptions on one connection."""

    def __init__(
        self,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        timeout: float,
        relist: Callable[[], None],
        capabilities: bytes = NO_CAPABILITIES,
    ) -> None:
        self._start_task = start_task
        self.timeout = timeout
        # Fetches the lists again.
        self._relist = relist
        # By capabilities, because a server may hold the state of clients with different ones in different places, as
        # another workbench does. The first is that of the connection, which also reports changed lists.
        self._main = _Stream(capabilities)
        self._streams = {(capabilities, RESOURCE_SUBSCRIPTIONS): self._main}
        # By the id of the request that opened it.
        self._opened: dict[int, _Stream] = {}
        # Those that ended last. What still arrives on one was reported on the stream that replaced it.
        self._ended: deque[int] = deque(maxlen=MAX_ENDED)
        self._traffic: Traffic | None = None
        self.log_level: str | None = None
        # Whether the server has refused `subscriptions/listen`.
        self._is_refused = False

    @property
    def is_needed(self) -> bool:
        """Whether the server has to keep running for a subscriber."""
        return any(stream.subscribers for stream in self._streams.values())

    # ── the server's life ──

    async def begin(self, traffic: Traffic) -> None:
        """Renew all subscriptions after the server has started."""
        self._traffic = traffic
        self._is_refused = False
        assert traffic.profile is not None
        if traffic.profile.revision.has_listen:
            for stream in list(self._streams.values()):
                stream.has_missed = False
                if self._filter(stream):
                    await self._listen_again(stream)
            return
        if self.log_level is not None:
            self._send_log_level()
        for uri in self._subscribed():
            traffic.ask_in_background("resources/subscribe", encode({"uri": uri}))

    def forget(self) -> None:
        """Drop all subscriptions."""
        for stream in self._streams.values():
            stream.subscribers.clear()

    def end(self) -> None:
        self._traffic = None
        for stream in self._streams.values():
            if stream.listening is not None:
                stream.listening.cancel()
                stream.listening = None

    # ── resources ──

    def _subscribed(self) -> dict[str, None]:
        return dict.fromkeys(uri for stream in self._of(RESOURCE_SUBSCRIPTIONS) for uri in stream.subscribers)

    def _of(self, member: str) -> list[_Stream]:
        return [stream for stream in self._streams.values() if stream.member == member]

    def _stream_of(self, capabilities: bytes, member: str = RESOURCE_SUBSCRIPTIONS) -> _Stream | None:
        stream = self._streams.get((capabilities, member))
        if stream is None and len(self._of(member)) < MAX_SERVER_STREAMS:
            stream = self._streams[capabilities, member] = _Stream(capabilities, member)
        return stream

    async def subscribe(self, uri: str, subscriber: Subscriber, capabilities: bytes) -> None:
        """Subscribe to a resource, for a client with these capabilities. Raises the server's error."""
        stream = self._stream_of(capabilities) or self._main
        subscribers = stream.subscribers.get(uri)
        if subscribers is not None:
            if subscriber not in subscribers:
                subscribers.append(subscriber)
            return
        subscribed = self._subscribed()
        if len(subscribed) >= MAX_SUBSCRIBED_RESOURCES:
            raise WorkbenchError(f"more than {MAX_SUBSCRIBED_RESOURCES} resources of one server are subscribed to")
        traffic = self._running()
        assert traffic.profile is not None
        if traffic.profile.revision.has_listen:
            stream.subscribers[uri] = [subscriber]
            await self._listen_again(stream)
        else:
            if uri not in subscribed:
                await traffic.ask_within(self.timeout, "resources/subscribe", encode({"uri": uri}))
            stream.subscribers.setdefault(uri, []).append(subscriber)

    def expect(self, uri: str, subscriber: Subscriber, capabilities: bytes) -> None:
        """Subscribe to a resource when the server starts."""
        stream = self._stream_of(capabilities) or self._main
        stream.subscribers.setdefault(uri, []).append(subscriber)

    async def unsubscribe(self, name: str, subscriber: Subscriber, member: str = RESOURCE_SUBSCRIPTIONS) -> None:
        for stream in self._of(member):
            subscribers = stream.subscribers.get(name, [])
            if subscriber in subscribers:
                subscribers.remove(subscriber)
                if not subscribers:
                    del stream.subscribers[name]
                    await self._narrow(stream, name)

    def _running(self) -> Traffic:
        """The traffic to the server that is running. Raises `DownstreamError`."""
        if self._traffic is None or self._traffic.profile is None:
            raise DownstreamError("the server stopped before it could be asked", hint="try again")
        return self._traffic

    async def _narrow(self, stream: _Stream, uri: str) -> None:
        """Nobody with these capabilities wants to know of this resource or task any more."""
        traffic = self._traffic
        if traffic is None or traffic.profile is None:
            return
        if traffic.profile.revision.has_listen:
            await self._listen_again(stream)
        elif uri not in self._subscribed():
            with contextlib.suppress(WorkbenchError):
                await traffic.ask_within(self.timeout, "resources/unsubscribe", encode({"uri": uri}))
        if stream is not self._main and not stream.subscribers:
            self._streams.pop((stream.capabilities, stream.member), None)

    def on_updated(self, params: Raw) -> None:
        """The server reports that a resource has changed."""
        try:
            fields = decode_object(params)
            uri = decode_string(fields["uri"])
        except (DecodeError, ValidationError, KeyError):
            return
        # A server may report a part of a resource, so subscribers to its parent are notified too: each of them once.
        told: dict[Subscriber, None] = {}
        for stream in self._reported_to(fields, RESOURCE_SUBSCRIPTIONS):
            for subscribed, subscribers in stream.subscribers.items():
                if uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/"):
                    told.update(dict.fromkeys(subscribers))
        for subscriber in told:
            subscriber.on_updated(params)

    def _reported_to(self, fields: dict[str, Raw], member: str) -> Sequence[_Stream]:
        """The streams that a notification belongs to: one, all if it does not say, none if another reports the same."""
        id = _subscription_id(fields)
        if id in self._opened:
            stream = self._opened[id]
            return (stream,) if stream.reporting == id and stream.member == member else ()
        return () if id in self._ended else self._of(member)

    # ── tasks ──

    async def subscribe_to_task(self, id: str, subscriber: Subscriber, capabilities: bytes) -> None:
        """Have the server report the states of a task. Raises `WorkbenchError` if it does not."""
        traffic = self._running()
        assert traffic.profile is not None
        stream = self._stream_of(capabilities, TASK_IDS) if traffic.profile.revision.has_listen else None
        is_first = stream is not None and id not in stream.subscribers
        if stream is None or (is_first and len(stream.subscribers) >= MAX_SUBSCRIBED_RESOURCES):
            raise WorkbenchError("the server cannot be asked to report on another task")
        stream.subscribers.setdefault(id, []).append(subscriber)
        if is_first:
            await self._listen_again(stream)
        if id not in stream.granted:
            await self.unsubscribe(id, subscriber, TASK_IDS)
            raise WorkbenchError("the server does not report on this task")

    def on_task_changed(self, params: Raw) -> bool:
        """The server reports the state of a task. Returns False if it did not do so on a stream of ours."""
        try:
            fields = decode_object(params)
            id = decode_string(fields["taskId"])
        except (DecodeError, ValidationError, KeyError):
            return False
        opened = _subscription_id(fields)
        if opened not in self._opened and opened not in self._ended:
            return False
        for stream in self._reported_to(fields, TASK_IDS):
            for subscriber in list(stream.subscribers.get(id, ())):
                subscriber.on_updated(params)
        return True

    # ── logs ──

    def want_log_level(self, level: str) -> None:
        """A request wants log messages of this level; the most verbose level so far counts."""
        if self.log_level is None or not is_at_least(level, self.log_level):
            self.set_log_level(level)

    def set_log_level(self, level: str) -> None:
        """Set the log level of a legacy server. For modern servers, it is sent with each request."""
        if level != self.log_level:
            self.log_level = level
            self._send_log_level()

    def _send_log_level(self) -> None:
        traffic = self._traffic
        if traffic is None or traffic.profile is None or traffic.profile.revision.has_log_level_per_request:
            return
        if "logging" in decode_object(traffic.profile.capabilities):
            traffic.ask_in_background("logging/setLevel", encode({"level": self.log_level}))

    # ── listening to a modern server ──

    def on_acknowledged(self, params: Raw | None) -> None:
        """The server has accepted the latest filter of a stream: acknowledgements of older ones arrived before it was
        sent."""
        try:
            id = None if params is None else _subscription_id(decode_object(params))
        except (DecodeError, ValidationError):
            id = None
        if id in self._ended:
            return
        if id in self._opened:
            self._opened[id].reporting = id
        for stream in (self._opened[id],) if id in self._opened else list(self._streams.values()):
            stream.granted = _granted_tasks(params) if stream.member == TASK_IDS else stream.granted
            stream.acknowledged.set()
            if stream.has_missed:
                # There was no stream for a while, so announcements may have been missed.
                stream.has_missed = False
                if stream is self._main:
                    self._relist()

    def announces(self, kind: str) -> bool:
        """Whether the server notifies us when its tools, prompts or resources change."""
        traffic = self._traffic
        if traffic is None or traffic.profile is None or self._is_refused:
            return False
        declared = decode_object(traffic.profile.capabilities)
        return kind in declared and _says_list_changed(declared[kind])

    def _filter(self, stream: _Stream) -> dict[str, object]:
        assert self._traffic is not None and self._traffic.profile is not None
        wanted: dict[str, object] = {}
        if stream is self._main:
            declared = decode_object(self._traffic.profile.capabilities)
            for kind in ("tools", "prompts", "resources"):
                if kind in declared and _says_list_changed(declared[kind]):
                    wanted[f"{kind}ListChanged"] = True
        if stream.subscribers:
            wanted[stream.member] = sorted(stream.subscribers)
        return wanted

    async def _listen_again(self, stream: _Stream) -> None:
        """Open a stream with the current filter, then end the previous one, so that nothing is missed in between."""
        async with stream.opening:
            if self._traffic is None:
                # It stopped while another filter was on its way; both are repeated when it starts.
                return
            before, stream.acknowledged, stream.granted = stream.listening, asyncio.Event(), frozenset()
            stream.listening = self._start_task(self._listen(stream)) if self._filter(stream) else None
            if stream.listening is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ACKNOWLEDGE_TIMEOUT):
                        await stream.acknowledged.wait()
            if before is not None:
                before.cancel()

    async def _listen(self, stream: _Stream) -> None:
        """Listen until the server is gone or refuses. Over HTTP, a stream may break while the server keeps running."""
        pause = LISTEN_AGAIN_AFTER
        while (traffic := self._traffic) is not None and traffic.ended is None:
            began = traffic.loop.time()
            id = new_id()
            self._opened[id] = stream
            if stream.reporting is None:
                stream.reporting = id
            try:
                members = b'"notifications":' + encode(self._filter(stream))
                await traffic.ask_as_era("subscriptions/listen", members, stream.capabilities, id)
            except RemoteError as error:
                self._is_refused = self._is_refused or stream.member == RESOURCE_SUBSCRIPTIONS
                log.info("[%s] does not announce changes: %s", traffic.label, error.message)
                stream.acknowledged.set()
                return
            except WorkbenchError as error:
                log.info("[%s] the notification stream broke: %s", traffic.label, error.message)
                stream.acknowledged.set()
            finally:
                self._close(id)
            stream.has_missed = True
            if traffic.loop.time() - began > MAX_SUBSCRIPTION_RETRY_DELAY:
                pause = LISTEN_AGAIN_AFTER
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_SUBSCRIPTION_RETRY_DELAY)

    def _close(self, id: int) -> None:
        stream = self._opened.pop(id)
        self._ended.append(id)
        if stream.reporting == id:
            # Another that was opened meanwhile, although the server has not acknowledged it.
            stream.reporting = next((other for other, each in self._opened.items() if each is stream), None)


def _subscription_id(fields: dict[str, Raw]) -> int | None:
    """The id of the request that opened the stream that a notification arrived on; None if it does not say."""
    try:
        return int(bytes(decode_object(fields["_meta"])[SUBSCRIPTION_ID]))
    except (DecodeError, ValidationError, KeyError, ValueError):
        return None


def _granted_tasks(params: Raw | None) -> frozenset[str]:
    try:
        return frozenset(Decoder(_Acknowledged).decode(params or b"{}").notifications.taskIds)
    except (DecodeError, ValidationError):
        return frozenset()


def _says_list_changed(capability: Raw) -> bool:
    with contextlib.suppress(DecodeError):
        declared = decode(capability)
        return isinstance(declared, dict) and declared.get("listChanged") is True
    return False
