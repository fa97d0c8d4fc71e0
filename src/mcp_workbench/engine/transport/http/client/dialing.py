"""Connecting to a server: resolving its name, trying its addresses, using a proxy, starting TLS.

Owns at which stage it failed, which is what users need to know.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from mcp_workbench.engine.jsonrpc.pending import within
from mcp_workbench.engine.transport.http.client.address import LOOPBACK, Address, BadAddress
from mcp_workbench.engine.transport.http.client.client_connection import OutboundConnection, write_head
from mcp_workbench.engine.transport.http.client.response import RequestFailed
from mcp_workbench.engine.transport.write_batch import WriteBatch

if TYPE_CHECKING:
    import ssl

    from mcp_workbench.engine.transport.http.client.reach import Reach

# A server on another continent answers within one second; a server that takes ten is not there.
HTTP_CONNECT_TIMEOUT: Final = 10.0
# Try the next address after this long: machines with broken IPv6 are not rare.
NEXT_ADDRESS_DELAY: Final = 2.0

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
Stage = Literal["name", "reach", "connect", "tls", "proxy", "time"]


class DialFailed(Exception):
    """No connection. `stage` is where it failed, `cause` why."""

    # For the stage `reach`: how local the address is.
    reach: Reach

    def __init__(self, stage: Stage, cause: Exception | None = None, status: int = 0) -> None:
        super().__init__(stage)
        self.stage = stage
        self.cause = cause
        # The status of a proxy's response.
        self.status = status


class Dialer:
    """Opens connections. The TLS context is created for the first connection that needs it."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch
        self._context: ssl.SSLContext | None = None

    async def dial(
        self,
        address: Address,
        proxy: Address | None,
        free: Callable[[OutboundConnection], None],
        most_local: Reach | None = None,
    ) -> OutboundConnection:
        """Connect, with `most_local` only to addresses that are no more local. Raises `DialFailed`."""
        try:
            async with within(HTTP_CONNECT_TIMEOUT):
                return await self._dial(address, proxy, free, most_local)
        except TimeoutError as error:
            raise DialFailed("time", error) from None

    async def _dial(
        self,
        address: Address,
        proxy: Address | None,
        free: Callable[[OutboundConnection], None],
        most_local: Reach | None,
    ) -> OutboundConnection:
        loop = asyncio.get_running_loop()
        first = address if proxy is None else proxy
        if proxy is not None and most_local is not None:
            # A proxy looks names up itself, and from where it is they lead elsewhere than from here.
            _check_spelling(address.host, most_local)
            most_local = None
        try:
            raw = await connect(first.host, first.port, most_local)
        except DialFailed as error:
            if proxy is None:
                raise
            raise DialFailed("proxy", error.cause) from None
        try:
            if proxy is None and address.scheme == "https":
                return await self._encrypted(raw, address, free)
            _, connection = await loop.create_connection(lambda: OutboundConnection(free, self._batch), sock=raw)
        except BaseException:
            raw.close()
            raise
        if proxy is not None and address.scheme == "https":
            await self._through(connection, address, proxy)
        return connection

    async def _encrypted(
        self, raw: socket.socket, address: Address, free: Callable[[OutboundConnection], None]
    ) -> OutboundConnection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: OutboundConnection(free, self._batch), sock=raw, ssl=self._rules(), server_hostname=address.host
            )
        except OSError as error:
            # `ssl.SSLError` is an `OSError`, and so is a connection that is cut during the handshake.
            raise DialFailed("tls", error) from None
        return connection

    async def _through(self, connection: OutboundConnection, address: Address, proxy: Address) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        headers = {"host": f"{host}:{address.port}", **proxy_headers(proxy)}
        try:
            status = await connection.tunnel(write_head("CONNECT", f"{host}:{address.port}", headers, None))
        except RequestFailed as error:
            raise DialFailed("proxy", error) from None
        if status != 200:
            connection.close()
            raise DialFailed("proxy", status=status)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                connection.transport, connection, self._rules(), server_hostname=address.host
            )
        except OSError as error:
            connection.close()
            raise DialFailed("tls", error) from None
        assert transport is not None
        connection.transport = transport

    def _rules(self) -> ssl.SSLContext:
        if self._context is None:
            import ssl

            # Honours SSL_CERT_FILE and SSL_CERT_DIR.
            self._context = ssl.create_default_context()
        return self._context


def proxy_headers(proxy: Address) -> dict[str, str]:
    """The credentials for a proxy that requires them."""
    if proxy.user_info is None:
        return {}
    return {"proxy-authorization": basic(proxy.user_info)}


def basic(user_info: str) -> str:
    """The value of an `Authorization` header for `user:password`."""
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"


def proxy_for(address: Address, environ: Mapping[str, str] = os.environ) -> Address | None:
    """The proxy for this address according to the environment. Raises `BadAddress`."""
    from urllib import request

    if address.host in LOOPBACK:
        # A proxy would send the request, with its token and unencrypted, to its own loopback instead of ours.
        return None
    if environ is os.environ:
        proxies = request.getproxies()
        is_passed_by = request.proxy_bypass
    else:
        # The environment of a client, which differs from ours. Lower-case names win, as in other programs.
        named = sorted((name for name in environ if name.lower().endswith("_proxy")), key=str.islower)
        proxies = {name[: -len("_proxy")].lower(): environ[name] for name in named}
        is_passed_by = partial(request.proxy_bypass_environment, proxies=proxies)  # type: ignore[attr-defined]
    found = proxies.get(address.scheme) or proxies.get("all")
    if not found or is_passed_by(f"{address.host}:{address.port}") or is_passed_by(address.host):
        return None
    proxy = Address.parse(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http":
        raise BadAddress("only http:// proxies are supported")
    return proxy


async def look_up(host: str, port: int) -> list[AddressInfo]:
    """All addresses of a host. Raises `DialFailed`."""
    try:
        return [*await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise DialFailed("name", error) from None


def _check_spelling(host: str, most_local: Reach) -> None:
    from mcp_workbench.engine.transport.http.client.reach import reach_of_host

    reach = reach_of_host(host)
    if reach is not None and reach > most_local:
        raise _too_local(reach)


def _no_more_local(found: list[AddressInfo], most_local: Reach) -> list[AddressInfo]:
    from mcp_workbench.engine.transport.http.client.reach import reach_of_ip

    reaches = [reach_of_ip(address[0]) for *_, address in found]
    allowed = [each for each, reach in zip(found, reaches, strict=True) if reach <= most_local]
    if not allowed and reaches:
        raise _too_local(min(reaches))
    return allowed


def _too_local(reach: Reach) -> DialFailed:
    error = DialFailed("reach")
    error.reach = reach
    return error


async def connect(host: str, port: int, most_local: Reach | None = None) -> socket.socket:
    """Connect to any address of a host, looked up once: what is checked is what is connected to. Raises
    `DialFailed`."""
    found = await look_up(host, port)
    if most_local is not None:
        found = _no_more_local(found, most_local)
    return await connect_to(found)


async def connect_to(found: list[AddressInfo]) -> socket.socket:
    """Connect to any of these addresses. Raises `DialFailed`."""
    loop = asyncio.get_running_loop()
    failure: Exception | None = None
    for number, (family, kind, protocol, _, address) in enumerate(found):
        try:
            raw = socket.socket(family, kind, protocol)
        except OSError as error:
            # No descriptors left, or the address family is not supported on this machine.
            failure = error
            continue
        try:
            raw.setblocking(False)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(None if number == len(found) - 1 else NEXT_ADDRESS_DELAY):
                await loop.sock_connect(raw, address)
        except (OSError, TimeoutError) as error:
            raw.close()
            failure = error
        except BaseException:
            raw.close()
            raise
        else:
            return raw
    raise DialFailed("connect", failure)
