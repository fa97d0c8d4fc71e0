"""The page of this process: at an endpoint that is served anyway, or on a port of its own for our own user.

Owns the listener and when the page is loaded: with the first request for it. What it shows is in `page_workbench`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.portable_os import NOFOLLOW
from mcp_workbench.engine.transport.http.server.authentication import (
    ANONYMOUS,
    DEFAULT_PRINCIPAL,
    Authentication,
    AuthenticationChallenge,
)
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    from mcp_workbench.app.gateway import Gateway
    from mcp_workbench.app.runtime import Runtime
    from mcp_workbench.engine.transport.http.server.http_server import HttpServer
    from mcp_workbench.engine.transport.http.server.pages import SiteRequest
    from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
    from mcp_workbench.seeing.page.sign_in import PageUser
    from mcp_workbench.seeing.page.site import PageSite

# Beside the port of `serve --http`. The same each time: an open page finds a workbench that was restarted.
PAGE_PORT: Final = 8421
# As long as a session: tabs that are older have ended in any case.
PAGE_PORT_LIFETIME: Final = 12 * 3600.0
_PAGE_HOST: Final = "127.0.0.1"
NO_PAGE: Final = 'its configuration says `"page": false`'
_PAGE_PATHS: Final = ("/", "/login", "/logout")
_BELOW: Final = ("/web/", "/api/")
Connect = Callable[[], list[dict[str, Any]]]


class _Nobody:
    """The page's own port has no MCP endpoint."""

    depends_on_peer = False

    def authenticate(self, head: RequestHead) -> Authentication:
        return AuthenticationChallenge("this port serves the page, not MCP", b'Bearer realm="none"')


class LazySite:
    """The page, made with the first request for it (`Site`)."""

    def __init__(self, make: Callable[[], PageSite]) -> None:
        self._make = make
        self._site: PageSite | None = None

    def takes(self, path: str) -> bool:
        return path in _PAGE_PATHS or path.startswith(_BELOW)

    def serve(self, request: SiteRequest, writer: ResponseWriter) -> None:
        self.site.serve(request, writer)

    @property
    def site(self) -> PageSite:
        if self._site is None:
            self._site = self._make()
        return self._site

    def close(self) -> None:
        if self._site is not None:
            self._site.close()

    def end_those_of(self, principals: frozenset[str]) -> None:
        """These may no longer call."""
        if self._site is not None:
            self._site.sign_ins.end_those_of(principals)


def endpoint_page(gateway: Gateway, *, is_tls: bool, takes_keys: bool, connect: Connect) -> LazySite:
    """The page at `/` of an endpoint, for its callers."""

    def make() -> PageSite:
        from mcp_workbench.app.page_workbench import WorkbenchOnPage
        from mcp_workbench.seeing.page.site import PageSite

        shown = WorkbenchOnPage(gateway.runtime, lambda: [gateway], connect=connect)
        return PageSite(shown, gateway.runtime.start_task, user_of=_caller, is_tls=is_tls, takes_keys=takes_keys)

    return LazySite(make)


def _caller(principal: str) -> PageUser:
    from mcp_workbench.seeing.page.sign_in import PageUser

    # Clients have the token in their files, where agents and servers may read it: it shows everything, but approves
    # nothing.
    if principal == DEFAULT_PRINCIPAL:
        return PageUser(principal, is_owner=True, name="the holder of the token", may_decide=False)
    return PageUser(principal, is_owner=False, name=principal or ANONYMOUS, may_decide=False)


class OwnPage:
    """The page of our own user, on loopback, opened by `mcp-workbench page`."""

    def __init__(self, runtime: Runtime, gateways: Callable[[], list[Gateway]], remembered: str | None = None) -> None:
        """`remembered`: the file that has the port, for the workbench that takes our place."""
        self._remembered = remembered
        self._runtime = runtime
        self._gateways = gateways
        self._server: HttpServer | None = None
        self._connect: list[dict[str, Any]] = []
        self._lazy = LazySite(self._make)

    def _make(self) -> PageSite:
        from mcp_workbench.app.page_workbench import WorkbenchOnPage
        from mcp_workbench.seeing.page.site import PageSite

        shown = WorkbenchOnPage(self._runtime, self._shown, connect=lambda: self._connect, address=self.address)
        return PageSite(shown, self._runtime.start_task)

    def _shown(self) -> list[Gateway]:
        """Those whose configuration wants a page."""
        return [each for each in self._gateways() if each.config.page_in_force.is_served]

    @property
    def address(self) -> str | None:
        return None if self._server is None else f"http://{_PAGE_HOST}:{self._server.port}/"

    async def open(self, port: int, connect: list[dict[str, Any]], *, by: str, may_decide: bool) -> str:
        """An address that signs our own user in, once. `port`: 0 for the usual one. Raises `ConfigError`."""
        from mcp_workbench.seeing.page.sign_in import PageUser

        if self._gateways() and not self._shown():
            raise ConfigError(f"this workbench has no page: {NO_PAGE}")
        self._connect = connect
        if self._server is not None and port not in (0, self._server.port):
            await self.close()
        if self._server is None:
            self._server = await self._listen(port)
        await aside(self._remember)
        # Of whoever opened it the user counts: the command has ended by the time that somebody decides.
        user = PageUser("", is_owner=True, name=f"{by.partition(' (')[0]} on the page", may_decide=may_decide)
        return f"{self.address}login?code={self._lazy.site.sign_ins.new_code(user)}"

    async def reopen(self) -> None:
        """Listen where the workbench before us did, if its page was open: tabs that have lost it learn which command
        signs them in again. Nobody is signed in by this."""
        port = await aside(self._remembered_port)
        if port is not None:
            with contextlib.suppress(ConfigError):
                self._server = await self._start(port)

    def _remember(self) -> None:
        if self._remembered is not None and self._server is not None:
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NOFOLLOW
                with os.fdopen(os.open(self._remembered, flags, 0o600), "w") as file:
                    file.write(str(self._server.port))

    def _remembered_port(self) -> int | None:
        try:
            assert self._remembered is not None
            with open(self._remembered, "rb") as file:
                age, written = time.time() - os.fstat(file.fileno()).st_mtime, file.read(6)
        except OSError:
            return None
        return int(written) if age < PAGE_PORT_LIFETIME and written.isdigit() and 0 < int(written) < 1 << 16 else None

    async def _listen(self, port: int) -> HttpServer:
        try:
            return await self._start(port or PAGE_PORT)
        except ConfigError:
            if port:
                raise
            # Another workbench has a page.
            return await self._start(0)

    async def _start(self, port: int) -> HttpServer:
        from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
        from mcp_workbench.engine.transport.http.server.served_session import ServedSession

        def no_session(*_: object, **__: object) -> ServedSession:
            raise AssertionError("nobody is authenticated at this port")

        options = HttpOptions(host=_PAGE_HOST, port=port, authenticator=_Nobody())
        return await serve_http(options, no_session, site=self._lazy)

    async def close(self) -> None:
        self._lazy.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
