"""Starting an HTTP server from options, and stopping it within a bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from mcp_workbench.engine.transport.http.server.admission import Admission
from mcp_workbench.engine.transport.http.server.authentication import Anonymous, Authenticator
from mcp_workbench.engine.transport.http.server.endpoint import MCP_PATH, SHUTTING_DOWN, Endpoint, OnRefused
from mcp_workbench.engine.transport.http.server.limits import LISTEN_BACKLOG, UNAUTHENTICATED_SHARE, Limits
from mcp_workbench.engine.transport.http.server.listening import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    UNIX_PREFIX,
    bind,
    bind_unix,
    check_exposure,
    most_connections,
)
from mcp_workbench.engine.transport.http.server.pages import SITE_HEADERS, NegotiatedPage, Page, Readiness, Site
from mcp_workbench.engine.transport.http.server.request_head import HEADER_SPELLINGS, names_with
from mcp_workbench.engine.transport.http.server.served_session import MakeSession, ServedSession, SessionKeeper
from mcp_workbench.engine.transport.http.server.validation import ShownParameters
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import ssl

    from mcp_workbench.engine.transport.http.server.connections import Connections
    from mcp_workbench.engine.transport.http.server.sessions import LegacySession

# How long responses may take to be written once everything else has stopped; clients that do not read are cut off.
LAST_WRITES_TIMEOUT: Final = 1.0
# From the connection to the end of the TLS handshake, before which nothing is known about the client.
TLS_HANDSHAKE_TIMEOUT: Final = 10.0


class HttpOptions(Struct, frozen=True, kw_only=True):
    """Address, authentication and limits of the endpoint."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    # None: all clients are the same caller, which is allowed on loopback only.
    authenticator: Authenticator | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    limits: Limits = Limits()
    # A Unix socket at this path instead of host and port; and whether other users may connect to it.
    unix_path: str | None = None
    is_open_to_others: bool = False
    # None: connections are not encrypted, or a proxy in front of us does it.
    tls: ssl.SSLContext | None = None
    # Headers that are read in addition to the usual ones.
    header_names: tuple[str, ...] = ()
    # Files that decide which callers are admitted, and what to do when they change.
    watched: tuple[tuple[tuple[str, ...], Callable[[], None]], ...] = ()


class HttpServer:
    def __init__(
        self,
        endpoint: Endpoint,
        connections: Connections,
        sockets: list[socket.socket],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._connections = connections
        self._servers: list[asyncio.Server] = []
        self._sockets = sockets
        self._tls = tls
        address = sockets[0].getsockname()
        self.unix_path: str | None = address if isinstance(address, str) else None
        self.host: str = "" if isinstance(address, str) else address[0]
        self.port: int = 0 if isinstance(address, str) else address[1]

    def __repr__(self) -> str:
        return f"<HttpServer {self.url}, {self.connection_count} connections, {self.session_count} sessions>"

    @property
    def url(self) -> str:
        if self.unix_path is not None:
            return f"{UNIX_PREFIX}{self.unix_path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}{MCP_PATH}"

    @property
    def connection_count(self) -> int:
        return len(self._connections.open)

    @property
    def session_count(self) -> int:
        return len(self._endpoint.sessions)

    @property
    def call_count(self) -> int:
        """Requests in progress."""
        return sum(len(session.calls) for session in self.sessions())

    def sessions(self) -> Iterator[ServedSession]:
        """All sessions being served: those of legacy clients, and one for each modern request in progress."""
        for legacy in self._endpoint.sessions.sessions():
            if legacy.session is not None:
                yield legacy.session
        for request in self._endpoint.modern_requests.members():
            if request.session is not None:
                yield request.session

    def legacy_sessions(self) -> list[LegacySession]:
        return self._endpoint.sessions.sessions()

    def doubt(self, principal: str) -> None:
        """Another instance serves this user, too."""
        self._endpoint.sessions.doubt(principal)

    def leave(self) -> None:
        """Report at /readyz that we are no longer ready. Everything else continues, so that a load balancer notices
        before any client is refused."""
        self._endpoint.readiness.leave()

    @property
    def is_watched(self) -> bool:
        """Whether a load balancer polls /readyz."""
        return self._endpoint.readiness.is_watched

    def drain(self) -> None:
        """Accept no new requests, and no connections but those of a load balancer that must see us leave. Requests in
        progress continue, and answers to questions are accepted."""
        self.leave()
        self._endpoint.is_draining = True
        if not self._endpoint.readiness.must_be_answered:
            self._stop_listening()

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()

    def fail_all(self, error: WorkbenchError) -> None:
        """Answer everything in progress with this error."""
        for session in list(self.sessions()):
            session.end(error)

    def end_those_of(self, principals: frozenset[str], reason: str) -> None:
        """End the sessions, requests and streams of principals that may no longer call."""
        for legacy in self._endpoint.sessions.sessions():
            if legacy.principal in principals:
                legacy.end(reason)
        for request in self._endpoint.modern_requests.members():
            if request.principal in principals:
                request.closed(reason)

    async def stop(self) -> None:
        # End sessions and requests first, so that each connection has its last response; then finish writing.
        self.drain()
        self._stop_listening()
        for recalling in list(self._endpoint.recalling):
            recalling.cancel()
        self._endpoint.sessions.end_all(SHUTTING_DOWN)
        for request in self._endpoint.modern_requests.members():
            request.closed(SHUTTING_DOWN)
        for connection in list(self._connections.open):
            connection.finish()
        await self._wait_until_gone()
        for connection in list(self._connections.open):
            connection.abort()
        self._connections.timer.stop()
        self._endpoint.report_left_out()
        self._endpoint.modern_requests.stop()
        self._endpoint.streams.stop()
        if self.unix_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.unix_path)
        # One iteration of the loop closes the sockets that have just been aborted.
        await asyncio.sleep(0)

    async def _wait_until_gone(self) -> None:
        now = asyncio.get_running_loop().time
        end = now() + LAST_WRITES_TIMEOUT
        # Polled: it takes one iteration of the loop, unless a client does not read.
        while self._connections.open and now() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def _start(self) -> None:
        from mcp_workbench.engine.transport.http.server.server_connection import InboundConnection

        loop = asyncio.get_running_loop()
        for each in self._sockets:
            self._servers.append(await self._serve(loop, each, lambda: InboundConnection(self._connections)))

    async def _serve(
        self, loop: asyncio.AbstractEventLoop, listener: socket.socket, connected: Callable[[], asyncio.Protocol]
    ) -> asyncio.Server:
        # The sockets listen already, but asyncio calls `listen` again, with a backlog of 100 by default.
        if listener.family == socket.AF_UNIX:
            return await loop.create_unix_server(connected, sock=listener, backlog=LISTEN_BACKLOG)
        if self._tls is None:
            return await loop.create_server(connected, sock=listener, backlog=LISTEN_BACKLOG)
        return await loop.create_server(
            connected,
            sock=listener,
            backlog=LISTEN_BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT,
            ssl_shutdown_timeout=LAST_WRITES_TIMEOUT,
        )


async def serve_http(
    options: HttpOptions,
    make_session: MakeSession,
    *,
    readiness: Readiness | None = None,
    parameters_of: ShownParameters | None = None,
    pages: Mapping[str, Page | NegotiatedPage] | None = None,
    site: Site | None = None,
    on_refused: OnRefused | None = None,
    keeper: SessionKeeper | None = None,
    batch: WriteBatch | None = None,
) -> HttpServer:
    """Start serving. Raises `ConfigError` if that is not possible.

    `parameters_of` returns which parameters of a tool are mirrored into headers; `pages` are served in addition to our
    own, by path, and `site` where no page is. `keeper`: shares sessions with other instances. `batch`:
    that of the servers over stdio.
    """
    if options.unix_path is not None:
        sockets = bind_unix(options.unix_path, is_open_to_others=options.is_open_to_others)
    else:
        check_exposure(options.host, is_authenticated=options.authenticator is not None)
        sockets = bind(options.host, options.port)
    further = (*options.header_names, *(SITE_HEADERS if site is not None else ()))
    limits = _within_the_files_that_we_may_open(options.limits)
    admission = Admission(
        options.host, options.authenticator or Anonymous(), options.allow_hosts, options.allow_origins
    )
    endpoint = Endpoint(
        admission,
        make_session,
        limits,
        readiness=readiness,
        parameters_of=parameters_of,
        pages=pages,
        site=site,
        header_names=names_with(further) if further else HEADER_SPELLINGS,
        on_refused=on_refused,
        keeper=keeper,
    )
    from mcp_workbench.engine.transport.http.server.connections import Connections

    server = HttpServer(endpoint, Connections(endpoint, limits, batch), sockets, options.tls)
    await server._start()
    return server


def _within_the_files_that_we_may_open(limits: Limits) -> Limits:
    connections = most_connections(limits.connections)
    share = max(1, int(connections * UNAUTHENTICATED_SHARE))
    return structs.replace(
        limits,
        connections=connections,
        unauthenticated_per_peer=min(limits.unauthenticated_per_peer, share),
        unauthenticated=min(limits.unauthenticated, 2 * share),
    )
