"""The HTTP client of the house: one pool of connections for all servers that have a `url`.

Opening a connection costs milliseconds, and with TLS tens of them; reusing one costs nothing. Owns the pool, redirects
and proxies. Refuses to know MCP.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mcp_workbench.errors import DownstreamError
from mcp_workbench.transport.http.client.failures import explain_redirect, origin_of
from mcp_workbench.transport.http.client.headers import HeaderSource

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

# A server on another continent answers within one; who does not in ten is not there.
CONNECT_SECONDS: Final = 10.0
# Servers close idle connections after 5 seconds and more. We notice when they do; keeping ours longer than this would
# only make it likelier to send a request into a connection that is being closed.
KEEP_ALIVE_SECONDS: Final = 15.0
READ_BUFFER: Final = 256 * 1024
MOST_REDIRECTS: Final = 5
REDIRECTS: Final = (301, 302, 303, 307, 308)
# Redirects that keep method and body; the others turn a POST into a GET.
FAITHFUL_REDIRECTS: Final = (307, 308)
# Above this aiohttp wants a body as a file, so that it can hand over to others while it sends.
LARGE_BODY: Final = 1024 * 1024


class HttpClient:
    """Owned by the composition root, made with the first server that has a `url`."""

    def __init__(self, user_agent: str) -> None:
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes | None = None
    ) -> aiohttp.ClientResponse:
        """Send a request; return the response once its head is there. Whoever gets it closes it.

        Redirects are followed within the origin only: the headers hold secrets that are meant for this server.
        """
        url, signed_in_again = target.url, False
        for _ in range(MOST_REDIRECTS + 1):
            response = await self._open().request(
                method,
                url,
                headers={**target.source.headers(), **headers},
                data=body if body is None or len(body) <= LARGE_BODY else io.BytesIO(body),
                allow_redirects=False,
                proxy=target.proxy,
            )
            if response.status == 401 and not signed_in_again:
                signed_in_again = True
                if await target.source.refused(response.headers.get("www-authenticate", "")):
                    response.release()
                    continue
            location = response.headers.get("location")
            if response.status not in REDIRECTS or location is None:
                return response
            status = response.status
            response.release()
            url = _follow(method, url, location, status)
            if status == 308:
                target.url = url
        raise DownstreamError(f"{origin_of(url)} sends us in circles", hint="check `url`")

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                # How many requests a server gets at once is the link's decision; here a stream that is open for days
                # must not keep others waiting.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
                # Callers of different users share this pool: nothing may stick to it.
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                headers={"User-Agent": self._user_agent},
                read_bufsize=READ_BUFFER,
            )
        return self._session


class Target:
    """A server's address, with everything that is needed to reach it."""

    __slots__ = ("proxy", "source", "url")

    def __init__(self, url: str, source: HeaderSource) -> None:
        from yarl import URL

        try:
            self.url = URL(url)
        except ValueError as error:
            raise DownstreamError(f"`url` is not an address: {error}", hint="check `url`") from None
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise DownstreamError("`url` is not the address of a web server", hint="it begins with https:// or http://")
        self.source = source
        self.proxy = proxy_for(self.url)

    @property
    def shown_proxy(self) -> str | None:
        """The proxy as it may be named in a message: without its password."""
        from yarl import URL

        return None if self.proxy is None else origin_of(URL(self.proxy))

    def at(self, url: URL) -> Target:
        """The same server at another address."""
        other = Target(str(url), self.source)
        other.proxy = self.proxy
        return other


def proxy_for(url: URL) -> str | None:
    """The proxy that the environment names for this address.

    aiohttp could look itself, but does so for each request, in a thread, and takes passwords from `~/.netrc` as well:
    headers come from the configuration only.
    """
    from urllib.request import getproxies, proxy_bypass

    host = url.host or ""
    proxies = getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found or proxy_bypass(f"{host}:{url.port}") or proxy_bypass(host):
        return None
    if "://" not in found:
        found = f"http://{found}"
    if not found.startswith(("http://", "https://")):
        raise DownstreamError(
            f"proxies of the kind {found.partition(':')[0]}:// are not supported",
            hint="name an http:// proxy in the environment, or add the host to NO_PROXY",
        )
    return found


def _follow(method: str, url: URL, location: str, status: int) -> URL:
    from yarl import URL

    try:
        there = url.join(URL(location))
        is_same = there.origin() == url.origin()
    except ValueError:
        raise DownstreamError(f"{origin_of(url)} sends us to an address that is none", hint="check `url`") from None
    if not is_same or (method == "POST" and status not in FAITHFUL_REDIRECTS):
        raise explain_redirect(status, url, there)
    return there
