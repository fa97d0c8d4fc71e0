"""Decides when a list can be returned: which servers have to be listed first, how long to wait for them, and whose
lists are out of date.

Owns the waiting. Knows neither the content of a list nor the caller, which passes a function that returns the
connection to a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcp_workbench.engine.catalog.catalog import Catalog, read_manifests
from mcp_workbench.engine.catalog.entry import Manifest, ServerEntry
from mcp_workbench.engine.catalog.offer import CAPABILITY, Offer
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.face.view import View
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.connection import Connection

log = logging.getLogger(__name__)

# How long the first list waits for servers that have not been listed yet. Clients allow a server at least five seconds,
# which include starting us and the handshake.
FIRST_LIST_PATIENCE: Final = 3.0
# How long the introduction to a client waits for them, so that it can say which extensions they have. Less, because
# clients that try both eras wait a few seconds for each.
INTRODUCTION_TIMEOUT: Final = 1.0
# Reading a cache takes milliseconds. If the disk does not respond, the servers are listed instead.
CACHE_READ_TIMEOUT: Final = 10.0
# How many servers are started at once to be listed.
STARTS_AT_ONCE: Final = 8
# Cached lists that are older are fetched again in the background, one server after another, after this delay.
CACHE_MAX_AGE: Final = 86400.0
CACHE_REFRESH_DELAY: Final = 30.0
# Each waits until no call is in progress, because to start a server takes a processor for seconds; but not for ever,
# because in a busy workbench there is always one.
IDLE_TIMEOUT: Final = 600.0
IDLE_POLL_INTERVAL: Final = 1.0
# A server that was started only to be listed is stopped after this long, unless it is called: an agent that searches
# fifty servers uses one of them, and soon.
LISTED_STAYS: Final = 60.0
# A failed server is started again for a list at most this often.
ASK_AGAIN_AFTER: Final = 30.0
# How long a list, or a call of an unknown tool, waits for a running server to list its tools again. Servers respond at
# once; one that hangs must not delay the lists of all others.
REFRESH_PATIENCE: Final = 3.0

# Tool definitions with more bytes than this are written in a thread: shortening a megabyte of them takes about a tenth
# of a second.
LARGE_LISTING: Final = 512 * 1024


class ServerReach(Protocol):
    """How one caller's requests reach servers."""

    def __call__(self, entry: ServerEntry) -> Connection:
        """The caller's connection to this server."""

    def is_busy(self) -> bool:
        """Whether any call is in progress, of this caller or another."""


# A function rather than a coroutine, which would have to be closed if its caller is cancelled before it runs.
Preparation = Callable[[], Coroutine[Any, Any, None]]


def is_rested(connection: Connection) -> bool:
    """Whether a server that failed may be tried again for a list."""
    return asyncio.get_running_loop().time() - connection.failed_at > ASK_AGAIN_AFTER


def is_large(entries: Iterable[ServerEntry]) -> bool:
    """Whether these servers have so many tools that writing them would delay other requests."""
    total = 0
    for entry in entries:
        for definition in entry.tools.values():
            total += memoryview(definition).nbytes
            if total > LARGE_LISTING:
                return True
    return False


async def _until_idle(reach: ServerReach) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(IDLE_TIMEOUT):
            # Polled, because calls should not have to set events for this.
            while reach.is_busy():  # noqa: ASYNC110
                await asyncio.sleep(IDLE_POLL_INTERVAL)


class Lists:
    """Does what is needed before a list is returned."""

    def __init__(
        self,
        catalog: Catalog,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        *,
        patience: float = FIRST_LIST_PATIENCE,
        use_cache: bool = True,
    ) -> None:
        self._catalog = catalog
        self._start_task = start_task
        self._patience = patience
        self._use_cache = use_cache
        # Servers that a list has waited for once. It does not wait for them again.
        self._waited_for: set[ServerEntry] = set()
        # Servers whose cached lists are refreshed if they are old, one server at a time.
        self._considered: set[ServerEntry] = set()
        self._refreshing = asyncio.Lock()

    def follow(self, catalog: Catalog) -> None:
        """Save which names the tools in this catalogue have, ours or a user's, whenever that changes."""
        catalog.on_unsaved_names.append(partial(self._save_names_soon, catalog))

    def prepare(self, view: View, kind: str, reach: ServerReach) -> Preparation | None:
        """What to await before this list is returned; None if it can be returned at once."""
        unread = view.face.catalog.unread(view.face.needed(view, kind))
        if unread:
            return partial(self._load_and_prepare, unread, view, kind, reach)
        awaited = view.face.awaited(view)
        if kind != "tools" and view.opened:
            awaited = [*awaited, *(each for each in _never_listed(view) if each not in awaited)]
        unlisted = [entry for entry in awaited if not entry.is_available]
        known = [entry for entry in awaited if entry.is_available and not entry.is_live]
        if (unlisted or known) and view.face.client_of(view).health_check:
            # A health check only tests whether we respond, and disconnects before any server would have started.
            unlisted, known = [], []
        if known:
            self._refresh_later(known, reach)
        outdated = self.outdated(view.face.listed(view, kind), reach)
        if not unlisted and not outdated:
            return None
        if unlisted:
            view.face.settle_names(unlisted)
        return partial(self._wait_for_lists, view, kind, unlisted, outdated, reach)

    def prepare_introduction(self, view: View, reach: ServerReach) -> Preparation | None:
        """What to await before a client is told which extensions servers have; None if it can be told at once. Starts
        only what the first list would start anyway."""
        face = view.face
        if not face.lists_everything or face.client_of(view).health_check:
            return None
        unread = face.catalog.unread(face.needed(view, "tools"))
        unknown = [entry for entry in face.awaited(view) if not entry.is_available]
        return partial(self._list_for_introduction, unread, view, reach) if unread or unknown else None

    async def _list_for_introduction(self, unread: list[ServerEntry], view: View, reach: ServerReach) -> None:
        if unread:
            await self.load(unread)
        unknown = [reach(entry) for entry in view.face.awaited(view) if not entry.is_available]
        starting = {self._start_task(self._list_one(each)) for each in unknown if _is_worth_asking(each)}
        if starting:
            await asyncio.wait(starting, timeout=INTRODUCTION_TIMEOUT)

    def forget(self, entries: Iterable[ServerEntry]) -> None:
        """Remove servers that have ended."""
        ended = list(entries)
        self._waited_for.difference_update(ended)
        self._considered.difference_update(ended)

    async def look_up(self, entries: Iterable[ServerEntry]) -> None:
        """Learn which of these servers have a manifest, and in which state, without reading it."""
        unread = [entry for entry in entries if not (entry.is_read or entry.is_stored)]
        if not unread:
            return
        from mcp_workbench.engine.blocking_work import aside

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CACHE_READ_TIMEOUT):
                for entry, state in (await aside(lambda: {each: each.manifest_state() for each in unread})).items():
                    entry.note_stored(state)
        # What has no manifest, or a disk that does not respond.
        await self.load(entry for entry in unread if not entry.is_stored)

    async def load(self, entries: Iterable[ServerEntry]) -> None:
        """Read the manifests of these servers in a thread, because they may be large and disks slow."""
        unread = [entry for entry in entries if not entry.is_read]
        if not unread:
            return
        held_names = {catalog.held_names for entry in unread for catalog in entry.catalogs}
        # Not in the thread pool: it has few threads, and a disk that hangs would block them for everything else.
        from mcp_workbench.engine.blocking_work import aside

        try:
            async with asyncio.timeout(CACHE_READ_TIMEOUT):
                names, manifests = await aside(lambda: ([each.read() for each in held_names], read_manifests(unread)))
        except TimeoutError:
            log.warning(
                "the cache of what servers offer could not be read within %g s; asking the servers instead",
                CACHE_READ_TIMEOUT,
            )
            names, manifests = [None] * len(held_names), dict.fromkeys(unread, Manifest(None, asks=False))
        for each, stored in zip(held_names, names, strict=True):
            each.take(stored)
        self._catalog.take(manifests)

    def _save_names_soon(self, catalog: Catalog) -> None:
        # Outside of the event loop (commands), nothing is saved.
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            _ = self._start_task(self._save_names(catalog))

    async def _save_names(self, catalog: Catalog) -> None:
        # A task begins in the next iteration of the loop: with everything that is noted until then.
        save = catalog.held_names.unsaved()
        if save is not None:
            from mcp_workbench.engine.blocking_work import aside

            await aside(save)

    async def _load_and_prepare(self, unread: list[ServerEntry], view: View, kind: str, reach: ServerReach) -> None:
        await self.load(unread)
        waiting = self.prepare(view, kind, reach)
        if waiting is not None:
            await waiting()

    async def _wait_for_lists(
        self, view: View, kind: str, unlisted: list[ServerEntry], outdated: list[Connection], reach: ServerReach
    ) -> None:
        refreshing = self._start_task(self.refresh(outdated)) if outdated else None
        if unlisted:
            await self._list_missing(view, kind, unlisted, reach)
        if refreshing is not None:
            await asyncio.wait({refreshing})

    # ── servers that have not been listed ──

    async def _list_missing(self, view: View, kind: str, unlisted: list[ServerEntry], reach: ServerReach) -> None:
        for entry in unlisted:
            # It may have failed for a different caller, while it runs for this one.
            if entry.failure is not None and reach(entry).state is State.READY:
                self._catalog.servers.works(entry)
        unknown = [entry for entry in unlisted if not entry.is_available]
        new = [entry for entry in unknown if entry not in self._waited_for]
        starting = {
            self._start_task(self._list_one(reach(entry))) for entry in unknown if _is_worth_asking(reach(entry))
        }
        if new and starting:
            _, starting = await asyncio.wait(starting, timeout=self._patience)
            self._waited_for.update(new)
        # With nothing to show yet, a late response is better for a client than an error, and it has its own timeout.
        # Each start is bounded by `startupTimeout`.
        while starting and not self._has_something(view, kind):
            _, starting = await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)

    def _has_something(self, view: View, kind: str) -> bool:
        if kind == "tools":
            return bool(view.face.definitions(view, kind))
        # Most servers have neither prompts nor resources, so an empty list is good enough once one server is listed.
        return any(entry.is_available for entry in view.face.catalog.whole.entries())

    async def _list_one(self, connection: Connection) -> None:
        try:
            await connection.ensure_listed(asked=True)
        except WorkbenchError as error:
            self._catalog.servers.missed(connection.entry, error)
        else:
            self._catalog.servers.works(connection.entry)

    # ── servers that are known from the cache ──

    def _refresh_later(self, entries: list[ServerEntry], reach: ServerReach) -> None:
        """List servers again whose cached lists are old. Others are not started before they are called."""
        new = [entry for entry in entries if entry not in self._considered]
        if new:
            self._considered.update(new)
            _ = self._start_task(self._refresh_one_by_one(new, reach))

    async def _refresh_one_by_one(self, entries: list[ServerEntry], reach: ServerReach) -> None:
        # After the client's first requests, which must not wait for servers that start.
        await asyncio.sleep(CACHE_REFRESH_DELAY)
        from mcp_workbench.engine.blocking_work import aside

        ages = await aside(lambda: {entry: entry.store.age(entry.key_here) for entry in entries})
        for entry in sorted(entries, key=lambda entry: -ages[entry]):
            if ages[entry] <= CACHE_MAX_AGE:
                return
            async with self._refreshing:
                await _until_idle(reach)
                if entry.ended is not None or entry.is_live:
                    continue
                connection = reach(entry)
                starts = connection.starts
                try:
                    await connection.ensure_listed()
                except WorkbenchError as error:
                    self._catalog.servers.missed(entry, error)
                if connection.starts > starts and not connection.traffic.call_count:
                    connection.linger(LISTED_STAYS)

    def why_empty(self, view: View) -> str | None:
        """The failure of each server, if a list is empty because all of them failed."""
        entries = list(view.face.catalog.entries())
        if not entries or any(entry.is_available for entry in entries):
            return None
        reasons = [
            f"[{entry.toolbox}/{entry.name}] " + (entry.trouble.message if entry.trouble else "has not answered yet")
            for entry in entries
        ]
        return "no server is available:\n" + "\n".join(reasons)

    # ── servers whose lists may have changed ──

    def outdated(self, entries: Iterable[ServerEntry], reach: Callable[[ServerEntry], Connection]) -> list[Connection]:
        """The running servers that cannot announce changes and whose lists have expired by their own TTL.

        Without the cache, these are all servers that cannot announce changes."""
        found = []
        for entry in entries:
            if entry.is_live and entry.offer is not None and (entry.offer.ttls or not self._use_cache):
                connection = reach(entry)
                if connection.state is State.READY and self._may_have_changed(connection, entry.offer):
                    found.append(connection)
        return found

    def _may_have_changed(self, connection: Connection, offer: Offer) -> bool:
        unannounced = [kind for kind in offer.lists if not connection.subscriptions.announces(CAPABILITY[kind])]
        return bool(unannounced) and (not self._use_cache or connection.lists.has_expired(unannounced))

    async def refresh(self, connections: Sequence[Connection]) -> None:
        """List these servers again. If one does not respond in time, its previous lists are kept."""
        await asyncio.gather(*map(self._refresh, connections))

    async def _refresh(self, connection: Connection) -> None:
        if connection.lists.has_been_asking_for(REFRESH_PATIENCE):
            # A request has waited for it in vain already. Its response is announced when it arrives.
            return
        with contextlib.suppress(WorkbenchError, TimeoutError):
            async with asyncio.timeout(REFRESH_PATIENCE):
                await connection.list_again()

    async def look_again(self, connection: Connection, *, may_start: bool) -> None:
        """List a server again, because a call wants an item that is not in its lists, and only the server knows for
        sure.

        Raises `DownstreamError` if it was never listed and cannot be listed now."""
        if not connection.entry.is_live:
            await connection.ensure_listed()
        elif connection.state is State.READY:
            await self._refresh(connection)
        elif may_start and connection.state not in (State.BACKOFF, State.FAILED):
            with contextlib.suppress(WorkbenchError):
                await connection.ensure_listed()


def _never_listed(view: View) -> list[ServerEntry]:
    """Servers of opened toolboxes that nobody has listed here: their client opened them at another instance."""
    toolboxes = view.face.catalog.toolboxes
    opened = (entry for name in view.opened for entry in toolboxes.get(name, {}).values())
    return [entry for entry in opened if entry.offer is None and entry.trouble is None]


def _is_worth_asking(connection: Connection) -> bool:
    return connection.state is State.STARTING or is_rested(connection)
