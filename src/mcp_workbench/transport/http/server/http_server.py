"""Serving HTTP: from options to a running server, and down again within a bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from mcp_workbench.errors import WorkbenchError
from mcp_workbench.transport.http.server.admission import Admission
from mcp_workbench.transport.http.server.authentication import Anonymous, Authenticator
from mcp_workbench.transport.http.server.endpoint import MCP_PATH, SHUTTING_DOWN, Endpoint, OnRefused
from mcp_workbench.transport.http.server.limits import BACKLOG, UNAUTHENTICATED_SHARE, Limits
from mcp_workbench.transport.http.server.listening import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    UNIX_PREFIX,
    bind,
    bind_unix,
    check_exposure,
    most_connections,
)
from mcp_workbench.transport.http.server.pages import Page, Readiness
from mcp_workbench.transport.http.server.request_head import NAMES, names_with
from mcp_workbench.transport.http.server.served_session import MakeSession, ServedSession
from mcp_workbench.transport.http.server.validation import ShownParameters

if TYPE_CHECKING:
    import ssl

    from mcp_workbench.transport.http.server.connections import Connections

# How long responses may take to leave when everything else is done; who has not read by then is cut off.
GOODBYE_SECONDS: Final = 1.0
# From the connection to the end of the TLS handshake, during which nothing is known of a client.
HANDSHAKE_SECONDS: Final = 10.0


class HttpOptions(Struct, frozen=True, kw_only=True):
    """Address, authentication and limits of the endpoint."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    # None: everybody who reaches us is the same caller, which is allowed on loopback only.
    authenticator: Authenticator | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    limits: Limits = Limits()
    # A Unix socket there, instead of host and port; whether others than we may connect to it.
    unix_path: str | None = None
    is_open_to_others: bool = False
    # Encrypts connections; None: whoever is in front of us does.
    tls: ssl.SSLContext | None = None
    # Headers that are looked at beside the usual ones.
    header_names: tuple[str, ...] = ()
    # Files that decide who comes in, and what to do when they have changed.
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
        """The address of the MCP endpoint."""
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
        """Requests under way."""
        return sum(len(session.calls) for session in self.sessions())

    def sessions(self) -> Iterator[ServedSession]:
        """Everybody who is being served: legacy clients, and modern requests under way."""
        for legacy in self._endpoint.sessions.sessions():
            if legacy.session is not None:
                yield legacy.session
        for request in self._endpoint.modern_requests.members():
            if request.session is not None:
                yield request.session

    def leave(self) -> None:
        """Report at /readyz that we are not ready any more. All else goes on, so that a balancer sees it before anybody
        is refused."""
        self._endpoint.readiness.leave()

    @property
    def is_expected_to_stay(self) -> bool:
        """Whether a balancer that watches us has not been told yet that we leave."""
        return self._endpoint.readiness.must_be_seen_leaving

    def drain(self) -> None:
        """Take no new connections and no new requests. What is under way goes on; answers to questions come in."""
        self.leave()
        self._endpoint.is_draining = True
        for server in self._servers:
            server.close()

    def fail_all(self, error: WorkbenchError) -> None:
        """What is still under way is answered with this error."""
        for session in list(self.sessions()):
            session.end(error)

    def end_those_of(self, principals: frozenset[str], reason: str) -> None:
        """These may not call any more: what they have open ends too, streams that nobody would ask about again."""
        for legacy in self._endpoint.sessions.sessions():
            if legacy.principal in principals:
                legacy.end(reason)
        for request in self._endpoint.modern_requests.members():
            if request.principal in principals:
                request.closed(reason)

    async def stop(self) -> None:
        # Sessions and requests first, so that each connection has its last response; then connections finish writing.
        self.drain()
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
        # One pass of the loop for sockets that have just been aborted.
        await asyncio.sleep(0)

    async def _wait_until_gone(self) -> None:
        now = asyncio.get_running_loop().time
        end = now() + GOODBYE_SECONDS
        # Polled: it takes a pass of the loop, unless somebody does not read.
        while self._connections.open and now() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def _start(self) -> None:
        from mcp_workbench.transport.http.server.server_connection import InboundConnection

        loop = asyncio.get_running_loop()
        for each in self._sockets:
            self._servers.append(await self._serve(loop, each, lambda: InboundConnection(self._connections)))

    async def _serve(
        self, loop: asyncio.AbstractEventLoop, listener: socket.socket, connected: Callable[[], asyncio.Protocol]
    ) -> asyncio.Server:
        # They listen already, but are told to do so again, with a backlog of 100 unless we say otherwise.
        if listener.family == socket.AF_UNIX:
            return await loop.create_unix_server(connected, sock=listener, backlog=BACKLOG)
        if self._tls is None:
            return await loop.create_server(connected, sock=listener, backlog=BACKLOG)
        return await loop.create_server(
            connected,
            sock=listener,
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=GOODBYE_SECONDS,
        )


async def serve_http(
    options: HttpOptions,
    make_session: MakeSession,
    *,
    readiness: Readiness | None = None,
    parameters_of: ShownParameters | None = None,
    pages: Mapping[str, Page] | None = None,
    on_refused: OnRefused | None = None,
) -> HttpServer:
    """Start to serve. Raises `ConfigError` when that cannot be.

    `parameters_of` says which parameters of a tool are mirrored into headers; `pages` are served beside our own, by
    path.
    """
    if options.unix_path is not None:
        sockets = bind_unix(options.unix_path, is_open_to_others=options.is_open_to_others)
    else:
        check_exposure(options.host, is_authenticated=options.authenticator is not None)
        sockets = bind(options.host, options.port)
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
        header_names=names_with(options.header_names) if options.header_names else NAMES,
        on_refused=on_refused,
    )
    from mcp_workbench.transport.http.server.connections import Connections

    server = HttpServer(endpoint, Connections(endpoint, limits), sockets, options.tls)
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
