"""Subscriptions to a server: changed resources, changed lists, log messages.

Legacy servers accept one `resources/subscribe` for each resource, and `logging/setLevel`; modern ones a single
`subscriptions/listen` that names everything and is replaced when something is added or removed. Both are repeated when
the server restarts. Owns who subscribed to what. Knows nothing about what subscribers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import decode

from mcp_workbench.downstream.traffic import Traffic
from mcp_workbench.errors import DownstreamError, WorkbenchError
from mcp_workbench.jsonrpc.messages import decode_object, decode_string, encode
from mcp_workbench.jsonrpc.pending import RemoteError
from mcp_workbench.protocol.logging_levels import is_at_least

log = logging.getLogger(__name__)

# Servers acknowledge a subscription at once; wait no longer than this.
ACKNOWLEDGE_TIMEOUT: Final = 5.0
# The pause before a listen request that the server ended is sent again.
LISTEN_AGAIN_AFTER: Final = 1.0
# The pause doubles each time, up to this, if streams keep ending.
MOST_PAUSE: Final = 60.0
MOST_RESOURCES: Final = 1000


class Subscriber(Protocol):
    """Notified when a resource changes."""

    def on_resource_updated(self, params: Raw) -> None:
        """The resource has changed; `params` are the server's."""

    def on_subscription_lost(self) -> None:
        """Called when a subscription that was made cannot continue at the server that replaces its own."""


class ServerSubscriptions:
    """All subscriptions on one connection."""

    def __init__(
        self,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        timeout: float,
        relist: Callable[[], None],
    ) -> None:
        self._start_task = start_task
        self.timeout = timeout
        # Fetches the lists again.
        self._relist = relist
        # Whether a stream has ended since the last acknowledgement.
        self._has_missed = False
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._traffic: Traffic | None = None
        self._listening: asyncio.Task[None] | None = None
        self._acknowledged: asyncio.Event = asyncio.Event()
        self.log_level: str | None = None
        # Whether the server has refused `subscriptions/listen`.
        self._is_refused = False

    @property
    def is_needed(self) -> bool:
        """Whether the server has to keep running for a subscriber."""
        return bool(self._subscribers)

    # ── the server's life ──

    async def begin(self, traffic: Traffic) -> None:
        """Renew all subscriptions after the server has started."""
        self._traffic = traffic
        self._has_missed = self._is_refused = False
        assert traffic.profile is not None
        if traffic.profile.revision.has_listen:
            if self._filter():
                await self._listen_again()
            return
        if self.log_level is not None:
            self._send_log_level()
        for uri in self._subscribers:
            traffic.ask_in_background("resources/subscribe", encode({"uri": uri}))

    def forget(self) -> None:
        """Drop all subscriptions."""
        self._subscribers.clear()

    def end(self) -> None:
        self._traffic = None
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    # ── resources ──

    async def subscribe(self, uri: str, subscriber: Subscriber) -> None:
        """Subscribe to a resource. Raises the server's error."""
        subscribers = self._subscribers.get(uri)
        if subscribers is not None:
            if subscriber not in subscribers:
                subscribers.append(subscriber)
            return
        if len(self._subscribers) >= MOST_RESOURCES:
            raise WorkbenchError(f"more than {MOST_RESOURCES} resources of one server are subscribed to")
        traffic = self._traffic
        if traffic is None or traffic.profile is None:
            raise DownstreamError("the server stopped before it could be asked", hint="try again")
        if not traffic.profile.revision.has_listen:
            await traffic.ask_within(self.timeout, "resources/subscribe", encode({"uri": uri}))
            self._subscribers.setdefault(uri, []).append(subscriber)
        else:
            self._subscribers[uri] = [subscriber]
            await self._listen_again()

    def expect(self, uri: str, subscriber: Subscriber) -> None:
        """Subscribe to a resource when the server starts."""
        self._subscribers.setdefault(uri, []).append(subscriber)

    async def unsubscribe(self, uri: str, subscriber: Subscriber) -> None:
        subscribers = self._subscribers.get(uri)
        if subscribers is None or subscriber not in subscribers:
            return
        subscribers.remove(subscriber)
        if subscribers:
            return
        del self._subscribers[uri]
        traffic = self._traffic
        if traffic is None or traffic.profile is None:
            return
        if not traffic.profile.revision.has_listen:
            with contextlib.suppress(WorkbenchError):
                await traffic.ask_within(self.timeout, "resources/unsubscribe", encode({"uri": uri}))
        else:
            await self._listen_again()

    def on_updated(self, params: Raw) -> None:
        """The server reports that a resource has changed."""
        try:
            uri = decode_string(decode_object(params)["uri"])
        except (DecodeError, ValidationError, KeyError):
            return
        # A server may report a part of a resource, so subscribers to its parent are notified too.
        for subscribed, subscribers in list(self._subscribers.items()):
            if uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/"):
                for subscriber in list(subscribers):
                    subscriber.on_resource_updated(params)

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

    def on_acknowledged(self) -> None:
        """The server has accepted the latest filter: acknowledgements of older ones arrived before it was sent."""
        self._acknowledged.set()
        if self._has_missed:
            # There was no stream for a while, so announcements may have been missed.
            self._has_missed = False
            self._relist()

    def announces(self, kind: str) -> bool:
        """Whether the server notifies us when its tools, prompts or resources change."""
        traffic = self._traffic
        if traffic is None or traffic.profile is None or self._is_refused:
            return False
        declared = decode_object(traffic.profile.capabilities)
        return kind in declared and _says_list_changed(declared[kind])

    def _filter(self) -> dict[str, object]:
        assert self._traffic is not None and self._traffic.profile is not None
        declared = decode_object(self._traffic.profile.capabilities)
        wanted: dict[str, object] = {}
        for kind in ("tools", "prompts", "resources"):
            if kind in declared and _says_list_changed(declared[kind]):
                wanted[f"{kind}ListChanged"] = True
        if self._subscribers:
            wanted["resourceSubscriptions"] = sorted(self._subscribers)
        return wanted

    async def _listen_again(self) -> None:
        """Open a stream with the current filter, then end the previous one, so that nothing is missed in between."""
        before, self._acknowledged = self._listening, asyncio.Event()
        self._listening = self._start_task(self._listen()) if self._filter() else None
        if self._listening is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ACKNOWLEDGE_TIMEOUT):
                    await self._acknowledged.wait()
        if before is not None:
            before.cancel()

    async def _listen(self) -> None:
        """Listen until the server is gone or refuses. Over HTTP, a stream may break while the server keeps running."""
        pause = LISTEN_AGAIN_AFTER
        while (traffic := self._traffic) is not None and traffic.ended is None:
            began = traffic.loop.time()
            try:
                await traffic.ask_as_era("subscriptions/listen", b'"notifications":' + encode(self._filter()))
            except RemoteError as error:
                self._is_refused = True
                log.info("[%s] does not announce changes: %s", traffic.label, error.message)
                self._acknowledged.set()
                return
            except WorkbenchError as error:
                log.info("[%s] its notification stream broke: %s", traffic.label, error.message)
                self._acknowledged.set()
            self._has_missed = True
            if traffic.loop.time() - began > MOST_PAUSE:
                pause = LISTEN_AGAIN_AFTER
            await asyncio.sleep(pause)
            pause = min(pause * 2, MOST_PAUSE)


def _says_list_changed(capability: Raw) -> bool:
    with contextlib.suppress(DecodeError):
        declared = decode(capability)
        return isinstance(declared, dict) and declared.get("listChanged") is True
    return False
