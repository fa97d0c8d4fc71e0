"""The loopback address that the browser is redirected to, used once for a single sign-in.

Accepts one GET of one path with the right `state`; anything else gets an error page and changes nothing. Listens on the
loopback interface only. Owns the page that the user sees. Knows nothing about what the response means.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from mcp_workbench.signin.flow_io import SignInFailed

PATH: Final = "/callback"
# Browsers send their request immediately; a client that connects and stays silent must not hold the listener.
READ_SECONDS: Final = 10.0
LARGEST_HEAD: Final = 64 * 1024
# Browsers open a few connections; anything beyond that is not the user's browser.
MOST_CONNECTIONS: Final = 16

_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>{title}</title><body style='font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:20vh auto;"
    "padding:0 1rem'><h1 style='font-size:1.4rem'>{title}</h1><p>{text}</p></body></html>"
)
_HEADERS: Final = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nX-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n"
)


class Callback:
    """Use as `async with Callback.listening(host, port) as callback:`."""

    def __init__(self, host: str, server: asyncio.Server, port: int) -> None:
        self._server = server
        self.redirect_uri = f"http://{host}:{port}{PATH}"
        self._state: str | None = None
        self._returned: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._connections = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def listening(cls, host: str, ports: Sequence[int], *, exact: bool) -> AsyncIterator[Callback]:
        """Listen on the first free port of `ports`; unless `exact`, fall back to any free port."""
        callback: Callback | None = None

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert callback is not None
            await callback._serve(reader, writer)

        # `localhost` may resolve to either address, and browsers try both.
        hosts = ["127.0.0.1", "::1"] if host == "localhost" else [host]
        server = None
        # RFC 8252, section 7.3: any port will do for a loopback redirect, unless one was registered.
        for port in ports if exact else [*ports, 0]:
            try:
                server = await asyncio.start_server(accept, hosts[0], port, limit=LARGEST_HEAD)
                break
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise SignInFailed(f"the callback cannot be received at {host}: {error.strerror}") from None
        if server is None:
            raise SignInFailed(
                f"port {ports[0]} on this machine is in use, and the callback must arrive there",
                hint="end the program that uses it, or change `callbackPort` here and at the authorization server",
            )
        chosen = server.sockets[0].getsockname()[1]
        second = None
        if len(hosts) > 1:
            with contextlib.suppress(OSError):
                # Without it where the machine has no IPv6: browsers that find nothing there try the other address.
                second = await asyncio.start_server(accept, hosts[1], chosen, limit=LARGEST_HEAD)
        callback = cls(host, server, chosen)
        try:
            yield callback
        finally:
            for each in filter(None, (server, second)):
                each.close()

    def expect(self, state: str) -> asyncio.Future[Mapping[str, str]]:
        """A future for the query that arrives with this `state`."""
        self._state = state
        return self._returned

    @property
    def has_returned(self) -> bool:
        return self._returned.done()

    def take(self, query: str) -> str | None:
        """Accept the query of a redirect, from the browser or pasted by the user. Returns the reason for a refusal."""
        pairs = parse_qsl(query, keep_blank_values=True)
        fields = dict(pairs)
        # RFC 6749, section 3.1: parameters must not repeat. Parsers would disagree about which one counts.
        if len(fields) < len(pairs):
            return "This address contains a parameter twice, so it was rejected."
        # Any page can send a browser here: without the state of this sign-in, another's code would be taken for ours.
        if self._state is None or not hmac.compare_digest(fields.get("state", "").encode(), self._state.encode()):
            return "This address does not belong to the sign-in that is under way."
        if self._returned.done():
            return "This sign-in has been answered already."
        self._returned.set_result(fields)
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MOST_CONNECTIONS:
                async with asyncio.timeout(READ_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._respond(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections -= 1
            writer.close()

    def _respond(self, head: bytes) -> bytes:
        method, _, rest = head.decode("latin-1").partition(" ")
        target = rest.partition(" ")[0]
        parts = urlsplit(target) if target.startswith("/") else urlsplit("")
        if method != "GET" or parts.path != PATH:
            return _page("404 Not Found", "Nothing here", "The workbench waits for a sign-in at another address.")
        why = self.take(parts.query)
        if why is not None:
            return _page("400 Bad Request", "Not signed in", why)
        if "error" in dict(parse_qsl(parts.query)):
            return _page("200 OK", "Not signed in", "The server refused. The workbench says why; close this page.")
        return _page("200 OK", "Signed in", "You can close this page and go back to what you were doing.")


def _page(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    return f"HTTP/1.1 {status}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body
