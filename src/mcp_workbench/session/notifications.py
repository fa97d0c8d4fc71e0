"""Notifications to a client: lists that changed, resources that changed.

Legacy clients are told as such, modern ones on the streams that they opened with `subscriptions/listen`. Changes of a
list are told at most once a second, however many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.jsonrpc import messages
from mcp_workbench.jsonrpc.messages import decode_object
from mcp_workbench.protocol.constants import SUBSCRIPTION_ID
from mcp_workbench.protocol.results import COMPLETE

if TYPE_CHECKING:
    from mcp_workbench.router.subscriptions import Subscription

# Seconds between two notifications of one list: each of them makes clients fetch it again.
LEAST_PAUSE: Final = 1.0
# One is enough for a client; each costs a subscription at every server whose resources it names.
MOST_STREAMS: Final = 100


class ListenFilter(Struct):
    """What a modern client wants to be told."""

    toolsListChanged: bool = False
    promptsListChanged: bool = False
    resourcesListChanged: bool = False
    resourceSubscriptions: list[str] = field(default_factory=list)

    def wants(self, kind: str) -> bool:
        """Whether changes of this list are wanted."""
        return bool(getattr(self, f"{kind}ListChanged"))


_decode_filter: Final = Decoder(ListenFilter).decode


def read_filter(raw: Raw | None) -> ListenFilter | None:
    """The filter of a `subscriptions/listen`; None when it cannot be used."""
    try:
        return None if raw is None else _decode_filter(raw)
    except (DecodeError, ValidationError):
        return None


class ListenStream:
    """One `subscriptions/listen` of a modern client."""

    def __init__(self, id: bytes, wanted: ListenFilter, send: Callable[[bytes, bytes | None], None]) -> None:
        self.id = id
        self.wanted = wanted
        self.on_end: Callable[[], None] | None = None
        # Resources that are watched on it, by address.
        self.subscriptions: dict[str, Subscription] = {}
        # The params of the request, for whoever has to repeat it.
        self.request: dict[str, Raw] = {}
        # The client has been told what it will be told, by a workbench before us.
        self.is_acknowledged = False
        # Lists that have changed before the stream was acknowledged, which has to come first; None from then on.
        self._early: set[str] | None = set()
        self._send = send
        self._stamp = {SUBSCRIPTION_ID: Raw(id)}

    def acknowledge(self, granted: dict[str, object]) -> None:
        """The first message on the stream: what will be told."""
        if not self.is_acknowledged:
            self._notify("notifications/subscriptions/acknowledged", {"notifications": granted})
        early, self._early = self._early, None
        for kind in sorted(early or ()):
            self.on_list_changed(kind)

    def on_list_changed(self, kind: str) -> bool:
        """One of the lists changed. Returns whether the client wants to know."""
        if not self.wanted.wants(kind):
            return False
        if self._early is None:
            self._notify(f"notifications/{kind}/list_changed", {})
        else:
            self._early.add(kind)
        return True

    def on_resource_updated(self, params: Raw) -> None:
        """A resource changed (`Subscriber`)."""
        fields: dict[str, object] = dict(without_subscription(params))
        self._notify("notifications/resources/updated", fields)

    def close(self) -> None:
        """We end it, as the specification asks: with the answer to the request that opened it."""
        # The stream was opened by a request, and JSON-RPC owes that an answer.
        result = b"{%b,%b}" % (COMPLETE, b'"_meta":' + messages.encode(self._stamp))
        self._send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (self.id, result), None)
        self.end()

    def end(self) -> None:
        """It is over, however that came."""
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def _notify(self, method: str, fields: dict[str, object]) -> None:
        params = messages.encode({**fields, "_meta": self._stamp})
        self._send(messages.notification(method, params), self.id)


class ListChangeNotifier:
    """Tells list changes to one client, at most once a second each. `tell` returns whether it wanted to know."""

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
                    self._not_before[kind] = now + LEAST_PAUSE
        if self._pending:
            wait = min(self._not_before[kind] for kind in self._pending) - now
            self._timer = loop.call_later(wait, self._flush)


def without_subscription(params: Raw) -> dict[str, Raw]:
    """The members of a notification, without the id of the subscription that it came on."""
    fields = decode_object(params)
    if "_meta" in fields:
        try:
            meta = {key: value for key, value in decode_object(fields["_meta"]).items() if key != SUBSCRIPTION_ID}
        except (DecodeError, ValidationError):
            # It is the server's, and must be an object; nobody can make anything else of it.
            meta = {}
        if meta:
            fields["_meta"] = Raw(messages.encode(meta))
        else:
            del fields["_meta"]
    return fields
