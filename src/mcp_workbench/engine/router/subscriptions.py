"""Subscriptions of clients to resources, from the request to their end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.restricted_catalog import real_of
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.sharing import declared_capabilities
from mcp_workbench.engine.face.base import Params
from mcp_workbench.engine.face.decisions import Answer, Reject
from mcp_workbench.engine.jsonrpc.messages import decode_object, decode_string, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.router.routed_call import RoutedCall
from mcp_workbench.engine.steps import Passage, Subject
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.server_subscriptions import ServerSubscriptions, Subscriber
    from mcp_workbench.engine.router.router import Router

log = logging.getLogger(__name__)

SUBSCRIBE = "resources/subscribe"
UNSUBSCRIBE = "resources/unsubscribe"


class Subscription:
    """One client's subscription to one resource, which its server knows by `uri`. Kept by the client under the address
    that it named, and ended at the server where it was made, even if the resource belongs to a different server by
    then."""

    __slots__ = ("call", "entry", "subscriptions", "uri")

    def __init__(self, call: RoutedCall, entry: ServerEntry, uri: str, subscriptions: ServerSubscriptions) -> None:
        # The request that it was made for, on whose behalf it is made again at another server.
        self.call = call
        self.entry = entry
        self.uri = uri
        self.subscriptions = subscriptions


class _WithToolbox(Struct, frozen=True):
    """A client that named a resource with its toolbox and server in front, and is told of it in the same way."""

    client: Subscriber
    prefix: str

    def on_updated(self, params: Raw) -> None:
        fields = decode_object(params)
        address = self.prefix + decode_string(fields["uri"])
        self.client.on_updated(Raw(encode({**fields, "uri": address})))

    def on_subscription_lost(self) -> None:
        self.client.on_subscription_lost()


class Subscriptions:
    """Subscribes to resources for clients of both eras."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def subscribe(
        self, call: RoutedCall, params: Params, subscriber: Subscriber, kept: dict[str, Subscription]
    ) -> None:
        """Handle a `resources/subscribe`, answered when the server has accepted it. `kept` are the subscriptions that
        end with the client."""

        def subscribe_now() -> None:
            found = _owner(call, params)
            if isinstance(found, Reject):
                self._router.act(call, found)
            else:
                self._subscribe_at(call, *found, decode_string(params["uri"]), subscriber, kept)

        if isinstance(_owner(call, params), Reject):
            # It may be the client's first request, and the server with this resource may not be listed yet.
            self._router.when_listed(call, "resources", subscribe_now)
        else:
            subscribe_now()

    def _subscribe_at(
        self,
        call: RoutedCall,
        entry: ServerEntry,
        uri: str,
        address: str,
        subscriber: Subscriber,
        kept: dict[str, Subscription],
    ) -> None:
        call.route.entry = entry

        async def work() -> None:
            passage = call.route.passage if isinstance(call.route.passage, Passage) else None
            await self._begin(call, entry, uri, address, subscriber, kept, passage)

        def send() -> None:
            self._router.start_for(call, _answer(call, work))

        self._admit(call, SUBSCRIBE, entry, uri, send)

    def unsubscribe(
        self, call: RoutedCall, address: str, params: Params, subscriber: Subscriber, kept: dict[str, Subscription]
    ) -> None:
        """Handle a `resources/unsubscribe`. Without a subscription, it succeeds if the resource exists."""
        if address not in kept:
            found = _owner(call, params)
            self._router.act(call, found if isinstance(found, Reject) else Answer(b"{}"))
            return
        subscription = kept[address]
        call.route.entry = subscription.entry

        async def work() -> None:
            kept.pop(address, None)
            await _end(address, subscription, subscriber)

        def send() -> None:
            self._router.start_for(call, _answer(call, work))

        self._admit(call, UNSUBSCRIBE, subscription.entry, subscription.uri, send)

    def _admit(self, call: RoutedCall, method: str, entry: ServerEntry, uri: str, send: Callable[[], None]) -> None:
        steps = self._router.steps
        if steps is None:
            send()
        else:
            steps.admit(call, method, entry, uri, _body(uri), send)

    async def subscribe_all(
        self, call: RoutedCall, uris: Sequence[str], subscriber: Subscriber, kept: dict[str, Subscription]
    ) -> None:
        """Subscribe to the resources of a `subscriptions/listen`, and add those that succeed to `kept`."""
        has_listed = False
        for uri in uris:
            params = {"uri": Raw(encode(uri))}
            found = _owner(call, params)
            if isinstance(found, Reject) and not has_listed:
                has_listed = True
                await self._router.wait_for_list(call, "resources")
                found = _owner(call, params)
            # Unknown resources are left out of the acknowledgement, which lists what the client will get.
            if not isinstance(found, Reject):
                try:
                    await self._run(call, *found, uri, subscriber, kept)
                except WorkbenchError:
                    kept.pop(uri, None)

    async def _run(
        self,
        call: RoutedCall,
        entry: ServerEntry,
        uri: str,
        address: str,
        subscriber: Subscriber,
        kept: dict[str, Subscription],
    ) -> None:
        """Subscribe if the steps let it pass. Raises `WorkbenchError`."""

        async def work(passage: Passage | None = None) -> None:
            await self._begin(call, entry, uri, address, subscriber, kept, passage)

        steps = self._router.steps
        if steps is None:
            await work()
        else:
            await steps.run(call, SUBSCRIBE, entry, uri, _body(uri), work)

    async def _begin(
        self,
        call: RoutedCall,
        entry: ServerEntry,
        uri: str,
        address: str,
        subscriber: Subscriber,
        kept: dict[str, Subscription],
        passage: Passage | None,
    ) -> None:
        former = kept.get(address)
        connection = await self._router.connections.ready(entry, call)
        await self._router.judge_by_list(call, SUBSCRIBE, connection, uri, passage)
        if kept.get(address) is not former:
            # It was ended, or made elsewhere, while the server started.
            return
        # Kept before the server has answered, so that it is ended even if the client disconnects meanwhile.
        kept[address] = Subscription(call, entry, uri, connection.subscriptions)
        told = _told(subscriber, address, uri)
        await connection.subscriptions.subscribe(uri, told, _capabilities(call, entry))
        if self._router.connections.is_replaced(entry, call):
            self.renew(subscriber, kept)

    def end(self, subscriber: Subscriber, kept: dict[str, Subscription]) -> None:
        """End all subscriptions, because the client or its stream has ended. No step is asked, because no client
        requested it."""
        if kept:
            self._router.in_background(_end_all(subscriber, kept.copy()))
            kept.clear()

    def end_refused(self, principal: str, subscriber: Subscriber, kept: dict[str, Subscription]) -> None:
        """End those about resources that a principal may no longer read: each update reveals that the resource exists,
        and when it changes."""
        refused = {uri: each for uri, each in kept.items() if self._is_refused(principal, each)}
        for uri in refused:
            del kept[uri]
        self.end(subscriber, refused)

    def _is_refused(self, principal: str, kept: Subscription) -> bool:
        entry = kept.entry
        request = Subject(
            principal=principal, method=SUBSCRIBE, toolbox=entry.toolbox, server=entry.name, item=kept.uri
        )
        return self._router.gate.refuses(request) is not None

    # ── servers that a new configuration has replaced ──

    def renew(self, subscriber: Subscriber, kept: dict[str, Subscription]) -> None:
        """Subscribe again, at the servers that are now in the place of those that a new configuration has replaced."""
        for address, subscription in kept.items():
            if self._router.connections.is_replaced(subscription.entry, subscription.call):
                self._router.in_background(self._renew(address, subscription, subscriber, kept))

    async def _renew(
        self, address: str, former: Subscription, subscriber: Subscriber, kept: dict[str, Subscription]
    ) -> None:
        call = former.call
        is_lost = True
        try:
            owner = await self._new_owner(address, former)
            if owner is not None and kept.get(address) is former:
                await self._run(call, *owner, address, subscriber, kept)
                is_lost = kept.get(address) is former
        except RemoteError as error:
            log.info("[%s] a subscription could not be renewed: %s", former.entry.label, error.message)
        except WorkbenchError:
            is_lost = not self._renew_at_start(address, former, subscriber, kept)
        # It is not the last catalogue that shows the server, or was subscribed to at the last moment.
        await _end(address, former, subscriber)
        if is_lost and address in kept and kept[address].call is call:
            del kept[address]
            subscriber.on_subscription_lost()

    async def _new_owner(self, address: str, former: Subscription) -> tuple[ServerEntry, str] | None:
        """The server that the resource belongs to now, and what it calls it. Raises `WorkbenchError` if that cannot be
        found out."""
        call, params = former.call, {"uri": Raw(encode(address))}
        found = _owner(call, params)
        if isinstance(found, Reject) and (entry := _in_place_of(former)) is not None:
            connection = await self._router.connections.ready(entry, call)
            await connection.ensure_listed()
            found = _owner(call, params)
        return None if isinstance(found, Reject) else found

    def _renew_at_start(
        self, address: str, former: Subscription, subscriber: Subscriber, kept: dict[str, Subscription]
    ) -> bool:
        """Subscribe when the new server starts, as after a crash, because it cannot be started now. Returns whether it
        can be left to that."""
        entry = _in_place_of(former)
        if entry is None:
            return False
        connection = self._router.connections.of_call(entry, former.call)
        if connection.state is State.READY:
            return False
        if address in kept:
            told = _told(subscriber, address, former.uri)
            connection.subscriptions.expect(former.uri, told, _capabilities(former.call, entry))
            kept[address] = Subscription(former.call, entry, former.uri, connection.subscriptions)
        return True


def _in_place_of(former: Subscription) -> ServerEntry | None:
    """The server that has the name of a former one, as far as the client sees it."""
    toolboxes = former.call.view.face.catalog.toolboxes
    found = toolboxes.get(former.entry.toolbox, {}).get(former.entry.name)
    return None if found is None else real_of(found)


async def _end_all(subscriber: Subscriber, kept: dict[str, Subscription]) -> None:
    for address, subscription in kept.items():
        await _end(address, subscription, subscriber)


async def _end(address: str, subscription: Subscription, subscriber: Subscriber) -> None:
    uri = subscription.uri
    await subscription.subscriptions.unsubscribe(uri, _told(subscriber, address, uri))


def _told(subscriber: Subscriber, address: str, uri: str) -> Subscriber:
    """Who is told of a resource: the client itself, or with its own address for what the server calls `uri`."""
    return subscriber if address == uri else _WithToolbox(subscriber, address.removesuffix(uri))


def _owner(call: RoutedCall, params: Params) -> tuple[ServerEntry, str] | Reject:
    """The server that the resource belongs to."""
    return call.view.face.resource_owner(call.view, params, call.revision)


def _capabilities(call: RoutedCall, entry: ServerEntry) -> bytes:
    return declared_capabilities(entry, call.route.caller.capabilities)


def _body(uri: str) -> bytes:
    return encode({"uri": uri})[:-1]


async def _answer(call: RoutedCall, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except RemoteError as error:
        call.on_error(Raw(encode(error.error)))
    except WorkbenchError as error:
        call.on_failure(error)
    else:
        call.finish_result(b"{}")
