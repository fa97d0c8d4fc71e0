"""One run of a server: from its start until nothing is left of it, in one task.

Owns the links of this run, and our own requests on them: the handshake, fetching lists, and stopping an idle server.
After a crash, the next run may start while this one is still cleaning up, so shared state belongs to the connection,
and only the current run may modify it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Servers
from mcp_workbench.engine.downstream.lifecycle import RETIRED_LOOK, State, unexpected
from mcp_workbench.engine.downstream.listing import list_offer, offered_over_http
from mcp_workbench.engine.downstream.quoted_output import QUOTED_STDERR, READ_STDERR, with_quoted_output
from mcp_workbench.engine.downstream.sharing import expected_revision
from mcp_workbench.engine.jsonrpc.pending import within
from mcp_workbench.engine.protocol.handshake import OtherEra, ServerProfile, perform_handshake, second_try
from mcp_workbench.engine.protocol.revisions import SpokenEras
from mcp_workbench.engine.transport.allocator import trim
from mcp_workbench.errors import DownstreamError, ServerGone, SignInNeeded, WorkbenchError, shortage

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.downstream.server_link import LinkOpener, ServerLink

log = logging.getLogger(__name__)


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
        if connection.state is State.STARTING and self._links:
            said = "\n".join((error.message, *self._links[-1].stderr_lines(READ_STDERR)))
            error.hint = "; ".join(filter(None, (error.hint, connection.advise(said)))) or None
        connection.on_failed(error)

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
                    await self._links[-1].stop()
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
                patience = RETIRED_LOOK
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
            await asyncio.to_thread(entry.remember)
            # Reading and writing a large list took several times its size in memory, interleaved with what stays.
            trim()

    async def _clean_up(self) -> None:
        self._link = None
        if self._is_current:
            self._connection.on_stopping()
        try:
            for link in self._links:
                await link.stop()
        finally:
            if self._is_current:
                self._connection.on_stopped()
