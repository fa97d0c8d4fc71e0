"""One run of a server: from its start until nothing is left of it, in one task.

Owns the links of this run, and our own requests on them: the handshake, fetching lists, and stopping an idle server.
After a crash, the next run may start while this one is still cleaning up, so shared state belongs to the connection,
and only the current run may modify it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, decode
from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Servers
from mcp_workbench.engine.catalog.offer import Collected, Definitions, Offer, about_oversized, offered_kinds
from mcp_workbench.engine.config.model import DEFAULT_MAX_DEFINITION_BYTES
from mcp_workbench.engine.downstream.lifecycle import RETIRED_POLL_INTERVAL, State, unexpected
from mcp_workbench.engine.downstream.quoted_output import QUOTED_STDERR, READ_STDERR, with_quoted_output
from mcp_workbench.engine.downstream.sharing import expected_revision
from mcp_workbench.engine.jsonrpc.messages import METHOD_NOT_FOUND, decode_object, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError, within
from mcp_workbench.engine.protocol.handshake import OtherEra, ServerProfile, perform_handshake, second_try
from mcp_workbench.engine.protocol.revisions import SpokenEras
from mcp_workbench.engine.slices import SLICE_BYTES, sliced
from mcp_workbench.engine.transport.allocator import trim
from mcp_workbench.engine.transport.link import Link, UrlLink
from mcp_workbench.errors import DownstreamError, ServerGone, SignInNeeded, WorkbenchError, shortage

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.downstream.server_link import LinkOpener, ServerLink

log = logging.getLogger(__name__)

# A link stops within a few seconds by itself. If a fault keeps one from doing so, neither the next start of the server
# nor our own end waits for it any longer than this.
STOP_TIMEOUT: Final = 30.0
MAX_LIST_PAGES: Final = 1000
MAX_LISTED_ITEMS: Final = 50_000
# The total size of the definitions of one list, equal to the limit of a manifest.
MAX_SERVER_LIST_BYTES: Final = 64 * 1024 * 1024
# The longest instructions of a server that are kept; clients show two to four thousand characters.
MAX_SERVER_INSTRUCTIONS_LENGTH: Final = 16 * 1024
# How many items are processed at a time, which takes a few milliseconds.
MAX_ITEMS_AT_ONCE: Final = 1000
LIST_METHODS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "skills": "skills/list",
}


class Lister(Protocol):
    """What listing needs of a connection."""

    async def ask_as_era(self, method: str, members: bytes = b"") -> Raw:
        """Send a request and wait for its result."""


_decode_items: Final = Decoder(list[Raw]).decode
_decode_cursor: Final = Decoder(str | None).decode
_decode_number: Final = Decoder(float).decode


async def list_offer(
    label: str,
    lister: Lister,
    profile: ServerProfile,
    before: Offer | None,
    largest: int = DEFAULT_MAX_DEFINITION_BYTES,
) -> Offer:
    """List everything that the server offers, fetching the lists concurrently.

    A server that cannot list its tools fails. One that cannot list anything else is still useful: its other lists stay
    as they were, and the reason is logged. Definitions larger than `largest` are left out.
    """
    kinds = offered_kinds(profile.capabilities)
    answers = await asyncio.gather(*(_all_pages(lister, kind, largest) for kind in kinds), return_exceptions=True)
    lists: dict[str, Definitions] = {}
    ttls: dict[str, int] = {}
    oversized: dict[str, dict[str, int]] = {}
    dropped = 0
    left_out: list[str] = []
    for kind, answer in zip(kinds, answers, strict=True):
        if isinstance(answer, WorkbenchError) and kind != "tools":
            lists[kind] = _instead(label, kind, answer, before)
        elif isinstance(answer, BaseException):
            try:
                raise answer
            finally:
                # Its traceback refers to this frame and the pages it has read: a reference cycle that would keep them
                # in memory until the next garbage collection.
                del answer, answers
        else:
            found, ttl = answer
            lists[kind] = found.definitions
            dropped += found.dropped
            left_out += found.left_out
            if found.oversized:
                oversized[kind] = found.oversized
            if ttl is not None:
                ttls[kind] = ttl
    if dropped:
        log.warning("[%s] left out %d entries with a missing, invalid or repeated name", label, dropped)
    for reason in left_out:
        log.warning("[%s] %s", label, reason)
    for kind, sizes in oversized.items():
        log.warning("[%s] %s", label, about_oversized(kind, sizes))
    if profile.instructions is not None and len(profile.instructions) > MAX_SERVER_INSTRUCTIONS_LENGTH:
        profile = replace(profile, instructions=profile.instructions[:MAX_SERVER_INSTRUCTIONS_LENGTH])
    return Offer(profile, lists, dropped, ttls, tuple(left_out), oversized)


async def offered_over_http(label: str, offer: Offer, link: Link | None) -> Offer:
    """The offer of a server at an address: only what can be used over HTTP, and the transport that it uses."""
    is_sse = isinstance(link, UrlLink) and link.is_sse
    return replace(await usable_over_http(label, offer), transport="sse" if is_sse else "http")


async def usable_over_http(label: str, offer: Offer) -> Offer:
    """The offer without tools whose `x-mcp-header` annotations are invalid: over HTTP, these must be rejected."""
    tools = offer.lists.get("tools", {})
    annotated = [name for name, definition in tools.items() if b'"x-mcp-header"' in bytes(definition)]
    if not annotated:
        return offer
    from mcp_workbench.engine.transport.http.header_parameters import InvalidAnnotation, read_annotations

    usable = dict(tools)
    read = 0
    for name in annotated:
        read += len(bytes(tools[name]))
        if read > SLICE_BYTES:
            read = 0
            await asyncio.sleep(0)
        try:
            read_annotations(decode(tools[name]).get("inputSchema"))
        except InvalidAnnotation as error:
            log.warning("[%s] tool `%s` is left out: %s", label, name, error)
            del usable[name]
    return replace(offer, lists={**offer.lists, "tools": usable}, dropped=offer.dropped + len(tools) - len(usable))


def _instead(label: str, kind: str, error: WorkbenchError, before: Offer | None) -> Definitions:
    # Many servers with resources but without templates do not implement the method at all.
    if not (isinstance(error, RemoteError) and error.code == METHOD_NOT_FOUND):
        log.warning("[%s] %s cannot be listed: %s", label, kind, error.message)
    return {} if before is None else before.lists.get(kind, {})


async def _all_pages(lister: Lister, kind: str, largest: int) -> tuple[Collected, int | None]:
    """The items of all pages, and the shortest `ttlMs` of any page."""
    method = LIST_METHODS[kind]
    found = Collected(kind, largest)
    ttls: list[int] = []
    count = 0
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_LIST_PAGES):
        members = b"" if cursor is None else b'"cursor":' + encode(cursor)
        try:
            answer = await lister.ask_as_era(method, members)
            # A large page was read in pieces; scanning it again needs its own step of the event loop.
            page = decode_object(answer) if memoryview(answer).nbytes <= SLICE_BYTES else await _members(answer)
            async for items in _items(page[kind]):
                count += len(items)
                if count > MAX_LISTED_ITEMS:
                    raise DownstreamError(f"`{method}` lists more than {MAX_LISTED_ITEMS} items")
                found.add(items)
                if found.bytes > MAX_SERVER_LIST_BYTES:
                    raise DownstreamError(f"`{method}` lists definitions of more than {MAX_SERVER_LIST_BYTES} bytes")
            cursor = _decode_cursor(page["nextCursor"]) if "nextCursor" in page else None
            if "ttlMs" in page:
                ttls += _read_ttl(page["ttlMs"])
        except (DecodeError, ValidationError, KeyError) as error:
            raise DownstreamError(f"its answer to `{method}` cannot be used: {error}") from None
        if cursor is None:
            return found, min(ttls, default=None)
        if cursor in seen:
            raise DownstreamError(f"`{method}` repeats the cursor {cursor[:80]!r}: its pages never end")
        seen.add(cursor)
    raise DownstreamError(f"`{method}` has more than {MAX_LIST_PAGES} pages")


async def _members(answer: Raw) -> dict[str, Raw]:
    await asyncio.sleep(0)
    return decode_object(answer)


async def _items(array: Raw) -> AsyncIterator[list[Raw]]:
    """The items of a page, a few at a time, so that other requests are served in between."""
    is_first = memoryview(array).nbytes <= SLICE_BYTES
    for items in sliced(array, _decode_items):
        if not items:
            await asyncio.sleep(0)
        for start in range(0, len(items), MAX_ITEMS_AT_ONCE):
            if not is_first:
                await asyncio.sleep(0)
            is_first = False
            # Too many at once are yielded whole, so that the caller's limit applies before the next step.
            yield items if len(items) > MAX_LISTED_ITEMS else items[start : start + MAX_ITEMS_AT_ONCE]


def _read_ttl(raw: Raw) -> list[int]:
    # Only a hint: an invalid value is no reason to reject the list.
    try:
        return [max(0, int(_decode_number(raw)))]
    except (DecodeError, ValidationError, ValueError, OverflowError):
        return []


class ServerRun:
    """The owner task of a connection."""

    def __init__(self, connection: Connection, servers: Servers, open_link: LinkOpener) -> None:
        self._connection = connection
        self._servers = servers
        self._open_link = open_link
        # More than one if the server had to be restarted in the other era.
        self._links: list[ServerLink] = []
        # The link whose server is quoted in errors.
        self._link: ServerLink | None = None
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Make the task check what has changed."""
        self._wake.set()

    @property
    def _is_current(self) -> bool:
        return self._connection.run is self

    async def main(self) -> None:
        """Run the server from its start until nothing is left of it."""
        connection = self._connection
        began = self._loop.time()
        try:
            profile = await self._connect()
            connection.on_started()
            log.info("[%s] ready after %.2f s (MCP %s)", connection.label, self._loop.time() - began, profile.version)
            # From here on, calls are sent while lists are fetched. Subscribe first, so that no change in between is
            # missed.
            await connection.subscriptions.begin(connection.traffic)
            await self._list()
            await self._look_after()
        except SignInNeeded as error:
            self._fail(error)
        except WorkbenchError as error:
            self._fail(self.quoting(error.message, error.hint))
        except TimeoutError:
            self._fail(
                self.quoting(
                    f"the server did not answer the handshake within {self._connection.config.startup_timeout:g} s",
                    "raise `startupTimeout` of this server if it needs longer to start",
                )
            )
        except Exception as error:
            if self._is_current:
                connection.on_failed(unexpected(error))
            if shortage(error) is None:
                raise
        finally:
            await self._clean_up()

    @property
    def process_id(self) -> int | None:
        """The server's process id, if it is our child."""
        return getattr(self._links[-1], "pid", None) if self._links else None

    def last_lines(self, count: int) -> list[str]:
        """The last lines of the server's stderr."""
        return self._links[-1].stderr_lines(count) if self._links else []

    def quoting(self, what: str, hint: str | None) -> DownstreamError:
        """An error that quotes the server's last output."""
        if self._link is None:
            return DownstreamError(what, hint=hint)
        connection = self._connection
        # Later, noise on stdout is old and does not explain why the server ended.
        is_starting = connection.state is State.STARTING
        noise = connection.traffic.noise.lines if is_starting else ()
        # After its start, a server shared by several users may write about any of them.
        is_private = connection.traffic.is_everyones and not is_starting
        stderr = [] if is_private else self._link.stderr_lines(QUOTED_STDERR)
        return DownstreamError(with_quoted_output(what, stderr, noise), hint=hint)

    def _fail(self, error: DownstreamError) -> None:
        connection = self._connection
        if not self._is_current:
            return
        if connection.state is State.STARTING:
            error.hint = self.advice_on(error)
        connection.on_failed(error)

    def advice_on(self, error: DownstreamError) -> str | None:
        """The hint of an error, with what the server's output suggests."""
        connection = self._connection
        # After its start, a server shared by several users may write about any of them.
        if not self._links or (connection.traffic.is_everyones and connection.state is not State.STARTING):
            return error.hint
        said = "\n".join((error.message, *self._links[-1].stderr_lines(READ_STDERR)))
        return "; ".join(filter(None, (error.hint, connection.advise(said)))) or None

    # ── the handshake ──

    async def _connect(self) -> ServerProfile:
        connection = self._connection
        tried_first = expected_revision(connection.entry, connection.identity.era).era
        gone: ServerGone | None = None
        try:
            async with within(self._connection.config.startup_timeout):
                try:
                    profile = await self._open(self._connection.config.protocol)
                except (ServerGone, OtherEra) as error:
                    # A server that did not read anything we sent would only fail again.
                    is_unread = self._links[-1].unread_bytes >= connection.traffic.bytes_sent
                    other = second_try(tried_first, error) if self._connection.config.protocol == "auto" else None
                    if other is None or is_unread:
                        raise
                    gone = error if isinstance(error, ServerGone) else None
                    log.info("[%s] no handshake in the %s era; trying the other", connection.label, tried_first)
                    await self._stop(self._links[-1])
                    del self._links[-1]
                    profile = replace(await self._open(other), eras=SpokenEras.only(other))
        except TimeoutError:
            if gone is None:
                raise
            # Why it ended the first time is more helpful than that there was no time for a second attempt.
            self._link = None
            raise gone from None
        self._servers.on_handshake(connection.entry, profile)
        connection.on_handshake()
        return profile

    async def _open(self, protocol: str) -> ServerProfile:
        connection = self._connection
        traffic = connection.new_traffic()
        self._link = link = await self._open_link(connection, traffic)
        self._links.append(link)
        traffic.attach(link)
        profile = await perform_handshake(traffic, protocol, connection.entry.eras, connection.identity)
        traffic.on_handshake(profile)
        if traffic.ended is not None:
            # It answered and exited before we read the response.
            raise traffic.ended
        return profile

    # ── while it runs ──

    async def _look_after(self) -> None:
        """Wait until the server is idle or has crashed."""
        connection, wake = self._connection, self._wake
        while self._is_current and connection.state is State.READY:
            if connection.is_retired and connection.is_idle:
                return
            # Asked each time, because the configuration may change while the server runs, and so may its clients.
            stops_at = connection.stops_at
            patience = None if stops_at is None else max(0.05, stops_at - self._loop.time())
            if connection.is_retired:
                patience = RETIRED_POLL_INTERVAL
            try:
                async with asyncio.timeout(patience):
                    await wake.wait()
                wake.clear()
            except TimeoutError:
                # A subscription keeps a server up as a call does.
                if connection.is_needed:
                    connection.traffic.last_used = self._loop.time()
                elif (stops_at := connection.stops_at) is not None and self._loop.time() >= stops_at:
                    connection.on_idle()
                    return
            if connection.lists.is_due:
                await self._list()

    async def _list(self) -> None:
        connection = self._connection
        entry, lists, traffic = connection.entry, connection.lists, connection.traffic
        announced = lists.on_asked()
        assert traffic.profile is not None
        try:
            async with within(self._connection.config.startup_timeout):
                largest = entry.context.max_definition_bytes
                offer = await list_offer(connection.label, traffic, traffic.profile, entry.offer, largest)
                if self._connection.config.url is not None:
                    offer = await offered_over_http(connection.label, offer, self._link)
        except (WorkbenchError, TimeoutError) as error:
            lists.on_not_listed(announced)
            if not self._is_current or connection.state is not State.READY:
                return
            reason = error.message if isinstance(error, WorkbenchError) else "no answer in time"
            failure = self.quoting(f"its tools cannot be listed: {reason}", None)
            if isinstance(error, SignInNeeded):
                failure = error
            connection.on_trouble(failure)
            log.warning("[%s] %s", connection.label, failure.message)
            lists.on_end(failure)
            return
        lists.on_listed(offer.ttls)
        self._servers.learn(entry, offer, announced, remember=not offer.is_large)
        lists.on_learnt()
        if offer.is_large:
            from mcp_workbench.engine.blocking_work import aside

            await aside(entry.remember)
            # Reading and writing a large list took several times its size in memory, interleaved with what stays.
            trim()

    async def _clean_up(self) -> None:
        self._link = None
        if self._is_current:
            self._connection.on_stopping()
        try:
            for link in self._links:
                await self._stop(link)
        finally:
            if self._is_current:
                self._connection.on_stopped()

    async def _stop(self, link: ServerLink) -> None:
        limit = asyncio.timeout(STOP_TIMEOUT)
        try:
            async with limit:
                await link.stop()
        except (TimeoutError, asyncio.CancelledError):
            # In a task that has been cancelled, Python 3.11.2 raises the latter for a timeout.
            if not limit.expired():
                raise
            log.error("[%s] could not be stopped within %g s", self._connection.label, STOP_TIMEOUT)
