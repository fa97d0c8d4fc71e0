"""Our HTTP client: one pool of connections for all servers that have a `url`.

Opening a connection takes milliseconds, and with TLS tens of them; reusing one costs nothing. Owns the pool, redirects
and credentials. Knows nothing about MCP.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.client.address import Address, BadAddress
from mcp_workbench.engine.transport.http.client.client_connection import OutboundConnection, end_head, open_head
from mcp_workbench.engine.transport.http.client.dialing import Dialer, basic, proxy_for, proxy_headers
from mcp_workbench.engine.transport.http.client.failures import explain_redirect
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal, HeaderSource, ProvenHeaders
from mcp_workbench.engine.transport.http.client.response import Response, ResponseListener
from mcp_workbench.engine.transport.http.client.response_body import ERROR_BODY_TIMEOUT
from mcp_workbench.engine.transport.shared_timer import SharedTimer
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.http.client.reach import Reach

# Servers close idle connections after 5 seconds or more. We notice when they do; keeping ours longer than this would
# only increase the chance of sending a request on a connection that is being closed.
KEEP_ALIVE_TIMEOUT: Final = 15.0
# A connection idle for this long is checked before it is used again. A busy event loop notices late that it was closed;
# one that was used a moment ago has hardly ever been closed since.
LOOK_AFTER: Final = 0.05
MAX_REDIRECTS: Final = 5
REDIRECTS: Final = (301, 302, 303, 307, 308)
# Redirects that keep method and body; the others turn a POST into a GET.
FAITHFUL_REDIRECTS: Final = (307, 308)
# Connections are shared by requests to the same origin through the same proxy, with the same `most_local`.
Key = tuple[str, str, str | None, "Reach | None"]
# RFC 6750, section 3.1, defines the first, with status 401. Some servers answer 403 if a token has expired, and some
# give the reason only in the body.
_TOKEN_IS_OVER: Final = frozenset(("invalid_token", "expired_token", "token_expired"))
_SCOPE_ERROR: Final = "insufficient_scope"
# A refusal is a small object; do not wait for a larger one.
MAX_REFUSAL_BYTES: Final = 4 * 1024


class HttpClient:
    """Owned by the composition root, created with the first server that has a `url`."""

    def __init__(self, user_agent: str) -> None:
        self._user_agent = user_agent
        self._dialer = Dialer(WriteBatch())
        self._idle: dict[Key, list[OutboundConnection]] = {}
        self._open: dict[OutboundConnection, Key] = {}
        self._timer: SharedTimer[HttpClient] = SharedTimer(KEEP_ALIVE_TIMEOUT / 4)
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    async def request(
        self, method: str, target: HttpTarget, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """Send a request; return the response once its head has arrived. The caller releases it.

        `headers` have names in lower case, and override the server's configured ones. Redirects are followed only
        within the origin: the headers contain secrets intended for this server.
        """
        own = await target.own_headers()
        response = await self._send(method, target.address, target, own, headers, body)
        return await self.settle(response, method, target, own, headers, body)

    def begin(
        self, target: HttpTarget, head: bytes, body: bytes, listener: ResponseListener, *, soon: bool
    ) -> OutboundConnection | None:
        """Send a request on an idle connection; None if there is none. `head` lacks its end; for `soon` see
        `OutboundConnection.begin`.

        The response may be a redirect or require other credentials, which `settle` handles.
        """
        connection = self._take(target.key(target.address))
        if connection is not None:
            connection.begin(end_head(head, body), body, listener, soon=soon)
        return connection

    async def settle(
        self,
        response: Response,
        method: str,
        target: HttpTarget,
        own: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Response:
        """Follow redirects, and send the request once more if the server requires credentials other than `own`; return
        the final response. On an exception, the last response is released."""
        address, moved, refused = target.address, None, list[int]()
        try:
            for followed in range(MAX_REDIRECTS + 1):
                status = response.status
                location = response.headers.get("location")
                refusal = await credential_refusal(response, own) if status in (401, 403) else None
                if refusal is not None and refused.count(refusal.kind) < 2:
                    refused.append(refusal.kind)
                    is_better = await target.source.refused(refusal)
                    if not is_better or refused.count(refusal.kind) > 1:
                        return response
                    response.release()
                elif status not in REDIRECTS or location is None:
                    if moved is not None and status < 400:
                        # A permanent redirect that worked.
                        target.address = moved
                    return response
                else:
                    response.release()
                    address = _follow(method, address, location, status)
                    moved = address if status == 308 else None
                if followed < MAX_REDIRECTS:
                    own = await target.own_headers()
                    response = await self._send(method, address, target, own, headers, body)
        except BaseException:
            response.release()
            raise
        raise DownstreamError(f"{address.origin} redirects in a loop", hint="check `url`")

    async def reach_of(self, target: HttpTarget) -> Reach:
        """From where a server can be reached, by the address that a connection to it leads to: with https, names alone
        prove nothing. Raises `DialFailed`."""
        from mcp_workbench.engine.transport.http.client.reach import Reach, reach_of_ip

        if target.proxy is not None:
            return Reach.PUBLIC
        connection = await self._dialer.dial(target.address, None, lambda connection: None)
        try:
            return reach_of_ip(connection.transport.get_extra_info("peername")[0])
        finally:
            connection.close()

    async def close(self) -> None:
        self._is_closed = True
        self._timer.stop()
        for connection in list(self._open):
            connection.close()
        self._open.clear()
        self._idle.clear()
        # One iteration of the loop closes the sockets.
        await asyncio.sleep(0)

    async def _send(
        self,
        method: str,
        address: Address,
        target: HttpTarget,
        own: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Response:
        given = own.proven(method, address.shown) if isinstance(own, ProvenHeaders) else own
        head = end_head(self.open_head(method, address, target.proxy, {**given, **headers}), body)
        key = target.key(address)
        connection = self._take(key)
        if connection is None:
            connection = await self._dialer.dial(address, target.proxy, self._put_back, target.most_local)
            self._open[connection] = key
        response = await connection.request(head, body or b"")
        if isinstance(own, ProvenHeaders):
            own.answered(response.headers)
        return response

    def open_head(self, method: str, address: Address, proxy: Address | None, headers: Mapping[str, str]) -> bytes:
        """The head of a request without its end. Raises `Unwritable`."""
        lines = {"host": address.authority, "user-agent": self._user_agent, "accept-encoding": "identity"}
        if address.user_info is not None:
            lines["authorization"] = basic(address.user_info)
        lines |= headers
        what = address.target
        if proxy is not None and address.scheme == "http":
            lines |= proxy_headers(proxy)
            what = address.origin + what
        return open_head(method, what, lines)

    def _take(self, key: Key) -> OutboundConnection | None:
        # The most recently used connection is the least likely to have been closed by the server.
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if not connection.is_open or connection.transport.is_closing():
                continue
            if self._loop.time() - connection.idle_since > LOOK_AFTER and connection.is_readable():
                # The server closed it, and the event loop has not noticed yet: a request would be lost.
                connection.close()
                continue
            return connection
        return None

    def _put_back(self, connection: OutboundConnection) -> None:
        """Return a connection to the pool, or remove it if it is closed."""
        key = self._open.get(connection)
        if key is None or not connection.is_open or self._is_closed:
            connection.close()
            self._open.pop(connection, None)
            if key is not None and connection in self._idle.get(key, ()):
                self._idle[key].remove(connection)
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(key, []).append(connection)
        if not self._timer:
            self._timer.add(self)

    def on_timer(self, now: float) -> None:
        """Close connections that have been idle for a while."""
        latest = now - KEEP_ALIVE_TIMEOUT
        for key, idle in list(self._idle.items()):
            self._idle[key] = [connection for connection in idle if connection.idle_since > latest]
            for connection in idle:
                if connection.idle_since <= latest:
                    connection.close()
            if not self._idle[key]:
                del self._idle[key]
        if not self._idle:
            self._timer.discard(self)


class HttpTarget:
    """A server's address, and everything needed to reach it."""

    __slots__ = ("_key", "_keyed", "address", "most_local", "proxy", "source")

    def __init__(self, address: Address, source: HeaderSource, proxy: Address | None) -> None:
        self.address = address
        self.source = source
        self.proxy = proxy
        # None: it may be anywhere, because the user named it.
        self.most_local: Reach | None = None
        self._keyed: Address | None = None
        self._key: Key = ("", "", None, None)

    def key(self, address: Address) -> Key:
        """The key under which its connections are shared. The last one is cached: addresses hardly ever change."""
        if address is not self._keyed:
            # Includes the password: a proxy connection opened for one user must not serve another.
            proxy = None if self.proxy is None else f"{self.proxy.user_info} {self.proxy.origin}"
            self._keyed, self._key = address, (address.scheme, address.authority, proxy, self.most_local)
        return self._key

    @classmethod
    def of(cls, url: str, source: HeaderSource, environ: Mapping[str, str] = os.environ) -> HttpTarget:
        """The target for a configured `url` in this environment. Raises `DownstreamError`."""
        try:
            address = Address.parse(url)
        except BadAddress as error:
            raise DownstreamError(f"`url` is not an address: {error}", hint="check `url`") from None
        try:
            return cls(address, source, proxy_for(address, environ))
        except BadAddress as error:
            raise DownstreamError(
                f"the proxy in the environment cannot be used: {error}",
                hint="name an http:// proxy in HTTP_PROXY or HTTPS_PROXY, or add the host to NO_PROXY",
            ) from None

    async def own_headers(self) -> Mapping[str, str]:
        """The server's configured headers. Raises `DownstreamError`."""
        headers = self.source.headers()
        return await self.source.fetch() if headers is None else headers

    @property
    def shown_proxy(self) -> str | None:
        """The proxy without its password, for messages."""
        return None if self.proxy is None else self.proxy.origin


def _follow(method: str, address: Address, location: str, status: int) -> Address:
    try:
        there = address.join(location)
    except BadAddress:
        raise DownstreamError(f"{address.origin} redirects to an invalid address", hint="check `url`") from None
    if there.origin != address.origin or (method == "POST" and status not in FAITHFUL_REDIRECTS):
        raise explain_redirect(status, address, there)
    return there


# Whether a response means that the request would have been accepted with other credentials.
# Only then may it be sent again: any other refusal may come from the server's own code, which has already acted.
# Knows nothing about where credentials come from.
async def credential_refusal(response: Response, own: Mapping[str, str]) -> CredentialRefusal | None:
    """What a 401 or 403 means for `own`, the headers that were sent; None if it is not about them."""
    challenge = response.headers.get("www-authenticate", "")
    if response.status == 403 and _SCOPE_ERROR in challenge:
        return CredentialRefusal(403, challenge, own)
    if response.status == 401 or any(word in challenge for word in _TOKEN_IS_OVER) or await _says_so(response):
        return CredentialRefusal(401, challenge, own)
    return None


async def _says_so(response: Response) -> bool:
    """Whether the body is an OAuth error. JSON-RPC errors are objects, and come from code that has already acted."""
    if response.content_type != names.JSON:
        return False
    try:
        said = decode(await response.peek(MAX_REFUSAL_BYTES, ERROR_BODY_TIMEOUT))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    error = said.get("error") if isinstance(said, dict) else None
    return isinstance(error, str) and error in _TOKEN_IS_OVER
