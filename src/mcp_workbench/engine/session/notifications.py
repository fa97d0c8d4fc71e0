"""Notifications to a client about changed lists and changed resources.

Legacy clients get them directly, modern ones on the streams that they opened with `subscriptions/listen`. A client is
notified about each list at most once a second, however often it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import decode_object
from mcp_workbench.engine.protocol.constants import SUBSCRIPTION_ID
from mcp_workbench.engine.protocol.results import COMPLETE_TYPE

if TYPE_CHECKING:
    from mcp_workbench.engine.router.subscriptions import Subscription
    from mcp_workbench.engine.router.task_requests import TaskSubscription

# Seconds between two notifications about the same list, because clients fetch it again each time.
MIN_NOTIFICATION_INTERVAL: Final = 1.0
# A client needs one; each costs a subscription at every server whose resources are in its filter.
MAX_CLIENT_STREAMS: Final = 100
# Notifications that arrive before the acknowledgement are kept, but a server may not fill our memory with them.
MAX_EARLY: Final = 1000


class ListenFilter(Struct):
    """The notifications that a modern client wants."""

    toolsListChanged: bool = False
    promptsListChanged: bool = False
    resourcesListChanged: bool = False
    resourceSubscriptions: list[str] = field(default_factory=list)
    # Of the extension of tasks.
    taskIds: list[str] = field(default_factory=list)

    def wants(self, kind: str) -> bool:
        return bool(getattr(self, f"{kind}ListChanged"))


_decode_filter: Final = Decoder(ListenFilter).decode


def read_filter(raw: Raw | None) -> ListenFilter | None:
    """The filter of a `subscriptions/listen`; None if it is missing or invalid."""
    try:
        return None if raw is None else _decode_filter(raw)
    except (DecodeError, ValidationError):
        return None


class ListenStream:
    """One `subscriptions/listen` of a modern client."""

    def __init__(
        self,
        id: bytes,
        wanted: ListenFilter,
        request: dict[str, Raw],
        send: Callable[[bytes, bytes | None], None],
        on_lost: Callable[[ListenStream], None],
    ) -> None:
        """`request`: the params of the request, so that another workbench can repeat it. `on_lost`: called when it no
        longer reports everything that was acknowledged."""
        self.id = id
        self.wanted = wanted
        self.on_end: Callable[[], None] | None = None
        # Resources subscribed to on this stream, by address.
        self.subscriptions: dict[str, Subscription] = {}
        # The tasks whose states are reported on this stream, by the client's id.
        self.tasks: dict[str, TaskSubscription] = {}
        self.request = request
        # The client got the acknowledgement from a previous workbench.
        self.is_acknowledged = False
        # What came before the acknowledgement, which has to be the first message; None once it is sent. A dict, because
        # of equal notifications one is enough.
        self._early: dict[bytes, None] | None = {}
        # Servers may go on for a moment after it.
        self._has_ended = False
        self._send = send
        self._on_lost = on_lost
        self._stamp = {SUBSCRIPTION_ID: Raw(id)}

    def acknowledge(self, granted: dict[str, object]) -> None:
        """Send the acknowledgement, which has to be the first message on the stream."""
        if not self.is_acknowledged:
            self._send(self._written("notifications/subscriptions/acknowledged", {"notifications": granted}), self.id)
        early, self._early = self._early, None
        for message in early or ():
            self._send(message, self.id)

    def on_list_changed(self, kind: str) -> bool:
        """Notify the client of a changed list. Returns whether it wants to know."""
        if not self.wanted.wants(kind):
            return False
        self._notify(f"notifications/{kind}/list_changed", {})
        return True

    def on_updated(self, params: Raw) -> None:
        """Notify the client of a changed resource (`Subscriber`)."""
        self._notify("notifications/resources/updated", without_subscription(params))

    def on_task_changed(self, params: Raw) -> None:
        """Notify the client of the state of a task."""
        self._notify("notifications/tasks", without_subscription(params))

    def on_subscription_lost(self) -> None:
        """End the stream, so that the client can ask for what there is now (`Subscriber`)."""
        if self._early is None:
            self._on_lost(self)

    def close(self) -> None:
        """End the stream as the specification asks, with the response to the request that opened it."""
        # The stream was opened by a request, and JSON-RPC requires a response to it.
        result = b"{%b,%b}" % (COMPLETE_TYPE, b'"_meta":' + messages.encode(self._stamp))
        self._send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (self.id, result), None)
        self.end()

    def end(self) -> None:
        """Release what the stream holds, whichever side ended it."""
        self._has_ended = True
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def _notify(self, method: str, fields: Mapping[str, object]) -> None:
        if self._has_ended:
            return
        message = self._written(method, fields)
        if self._early is None:
            self._send(message, self.id)
        elif len(self._early) < MAX_EARLY:
            self._early[message] = None

    def _written(self, method: str, fields: Mapping[str, object]) -> bytes:
        meta = fields.get("_meta")
        stamp = {**decode_object(meta), **self._stamp} if isinstance(meta, Raw) else self._stamp
        return messages.notification(method, messages.encode({**fields, "_meta": stamp}))


class ListChangeNotifier:
    """Notifies one client of list changes, at most once a second for each list. `notify` returns whether the client
    wanted to know."""

    def __init__(self, notify: Callable[[str], bool]) -> None:
        self._notify = notify
        self._pending: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, kinds: frozenset[str]) -> None:
        self._pending |= kinds
        if self._pending and self._timer is None:
            self._flush()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for kind in sorted(self._pending):
            if self._not_before.get(kind, 0.0) <= now:
                self._pending.discard(kind)
                if self._notify(kind):
                    self._not_before[kind] = now + MIN_NOTIFICATION_INTERVAL
        if self._pending:
            wait = min(self._not_before[kind] for kind in self._pending) - now
            self._timer = loop.call_later(wait, self._flush)


def without_subscription(params: Raw) -> dict[str, Raw]:
    """The members of a notification, without the id of the subscription it arrived on."""
    fields = decode_object(params)
    if "_meta" in fields:
        try:
            meta = {key: value for key, value in decode_object(fields["_meta"]).items() if key != SUBSCRIPTION_ID}
        except (DecodeError, ValidationError):
            # `_meta` must be an object; anything else is useless to a client.
            meta = {}
        if meta:
            fields["_meta"] = Raw(messages.encode(meta))
        else:
            del fields["_meta"]
    return fields
