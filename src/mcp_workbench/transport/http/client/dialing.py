"""Connecting to a server: its name looked up, its addresses tried, a proxy asked, the connection encrypted.

Owns how far it got when it fails, which is what people need to know.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from mcp_workbench.jsonrpc.pending import within
from mcp_workbench.transport.http.client.address import LOOPBACK, Address, BadAddress
from mcp_workbench.transport.http.client.client_connection import OutboundConnection, write_head
from mcp_workbench.transport.http.client.response import RequestFailed
from mcp_workbench.transport.write_batch import WriteBatch

if TYPE_CHECKING:
    import ssl

# A server on another continent answers within one; who does not in ten is not there.
CONNECT_SECONDS: Final = 10.0
# One of several addresses gives way to the next after this long: machines that believe to have IPv6 are not rare.
NEXT_ADDRESS_SECONDS: Final = 2.0

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
Stage = Literal["name", "connect", "tls", "proxy", "time"]


class DialFailed(Exception):
    """No connection. `stage` says where it failed, the cause why."""

    def __init__(self, stage: Stage, cause: Exception | None = None, status: int = 0) -> None:
        super().__init__(stage)
        self.stage = stage
        self.cause = cause
        # What a proxy answered with.
        self.status = status


class Dialer:
    """Opens connections. The rules of encryption are read once, with the first connection that needs them."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch
        self._context: ssl.SSLContext | None = None

    async def dial(
        self, address: Address, proxy: Address | None, free: Callable[[OutboundConnection], None]
    ) -> OutboundConnection:
        """Connect. Raises `DialFailed`."""
        try:
            async with within(CONNECT_SECONDS):
                return await self._dial(address, proxy, free)
        except TimeoutError as error:
            raise DialFailed("time", error) from None

    async def _dial(
        self, address: Address, proxy: Address | None, free: Callable[[OutboundConnection], None]
    ) -> OutboundConnection:
        loop = asyncio.get_running_loop()
        first = address if proxy is None else proxy
        try:
            raw = await connect(first.host, first.port)
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
            # Errors of `ssl` are such, and so are connections that are cut in the middle of it.
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
    """What a proxy with a password is shown."""
    if proxy.user_info is None:
        return {}
    return {"proxy-authorization": basic(proxy.user_info)}


def basic(user_info: str) -> str:
    """`user:password` as a header."""
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"


def proxy_for(address: Address, environ: Mapping[str, str] = os.environ) -> Address | None:
    """The proxy that this environment names for this address. Raises `BadAddress`."""
    from urllib import request

    if address.host in LOOPBACK:
        # Meant for this machine: a proxy would take it, with its token and in the clear, to another one.
        return None
    if environ is os.environ:
        proxies = request.getproxies()
        is_passed_by = request.proxy_bypass
    else:
        # Of a client that has another one than we have. The lower case comes first, as everywhere.
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


async def _look_up(host: str, port: int) -> list[AddressInfo]:
    try:
        return [*await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise DialFailed("name", error) from None


async def connect(host: str, port: int) -> socket.socket:
    """To any of the addresses of a host. Raises `DialFailed`."""
    loop = asyncio.get_running_loop()
    found = await _look_up(host, port)
    failure: Exception | None = None
    for number, (family, kind, protocol, _, address) in enumerate(found):
        try:
            raw = socket.socket(family, kind, protocol)
        except OSError as error:
            # No descriptors left, or no such family on this machine.
            failure = error
            continue
        try:
            raw.setblocking(False)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(None if number == len(found) - 1 else NEXT_ADDRESS_SECONDS):
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
