"""All sign-ins of one workbench: the store, a header source for each target, and sign-ins in progress.

Owned by the composition root and created for the first server that needs it. Each target has at most one sign-in in
progress; further requests for it get the same page.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakValueDictionary

from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.transport.http.client.http_client import HttpClient
from mcp_workbench.signin import flow
from mcp_workbench.signin.back_off import BackOff
from mcp_workbench.signin.challenge import parse
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.flow import Grant, SignInRequest
from mcp_workbench.signin.flow_io import AuthorizationRequest, DeviceCodeWait, SignInFailed
from mcp_workbench.signin.flow_runner import run, send
from mcp_workbench.signin.profiles import profile_for
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.signed_in_headers import SignedInHeaders, keep, record_of
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore

if TYPE_CHECKING:
    from mcp_workbench.signin.shared_sign_ins import SharedSignIns

# How long a user may take on the server's pages: passwords, second factors, a colleague's approval.
BROWSER_SIGN_IN_TIMEOUT: Final = 600.0
# The callback port for clients that the user has registered, unless `callbackPort` is set. Always the same one, because
# most authorization servers compare the whole redirect address.
USUAL_PORT: Final = 33418
# How many ports of earlier registrations are tried before any other.
MAX_PORTS: Final = 3
NO_CALLBACK: Final = (
    "if the page showed an error about the client, run `login` with --new-client; without a browser on this machine, "
    "with --no-browser"
)
CALLBACK_PATH: Final = "/callback"
# Browsers send their request immediately; a client that connects and stays silent must not hold the listener.
BROWSER_READ_TIMEOUT: Final = 10.0
MAX_BROWSER_HEAD_BYTES: Final = 64 * 1024
# Browsers open a few connections; anything beyond that is not the user's browser.
MAX_BROWSER_CONNECTIONS: Final = 16
_CALLBACK_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>{title}</title><body style='font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:20vh auto;"
    "padding:0 1rem'><h1 style='font-size:1.4rem'>{title}</h1><p>{text}</p></body></html>"
)
_CALLBACK_HEADERS: Final = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nX-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n"
)


# The loopback address that the browser is redirected to, used once for a single sign-in.
# Accepts one GET of one path with the right `state`; anything else gets an error page and changes nothing. Listens on
# the loopback interface only. Owns the page that the user sees. Knows nothing about what the response means.
class Callback:
    """Use as `async with Callback.listening(host, port) as callback:`."""

    def __init__(self, host: str, server: asyncio.Server, port: int) -> None:
        self._server = server
        self.redirect_uri = f"http://{host}:{port}{CALLBACK_PATH}"
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
                server = await asyncio.start_server(accept, hosts[0], port, limit=MAX_BROWSER_HEAD_BYTES)
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
                second = await asyncio.start_server(accept, hosts[1], chosen, limit=MAX_BROWSER_HEAD_BYTES)
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
            if self._connections <= MAX_BROWSER_CONNECTIONS:
                async with asyncio.timeout(BROWSER_READ_TIMEOUT):
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
        if method != "GET" or parts.path != CALLBACK_PATH:
            return _page("404 Not Found", "Nothing here", "The workbench waits for a sign-in at another address.")
        why = self.take(parts.query)
        if why is not None:
            return _page("400 Bad Request", "Not signed in", why)
        if "error" in dict(parse_qsl(parts.query)):
            return _page("200 OK", "Not signed in", "The server refused. The workbench says why; close this page.")
        return _page("200 OK", "Signed in", "You can close this page and go back to what you were doing.")


def _page(status: str, title: str, text: str) -> bytes:
    body = _CALLBACK_PAGE.format(title=title, text=text).encode()
    return f"HTTP/1.1 {status}\r\n{_CALLBACK_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body


class BrowserSignIn:
    """A sign-in in progress: the page to visit, and the outcome."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.page: asyncio.Future[str] = loop.create_future()
        self.page.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.task: asyncio.Task[SignInRecord] | None = None
        self.callback: Callback | None = None

    @property
    def url(self) -> str:
        """The page to visit; "" until it is known."""
        return self.page.result()

    @property
    def has_returned(self) -> bool:
        """Whether the user is back from the page, and only the token is awaited."""
        return self.callback is not None and self.callback.has_returned

    async def wait(self) -> SignInRecord:
        """Wait until the user has finished. Raises `SignInFailed`."""
        assert self.task is not None
        return await asyncio.shield(self.task)

    def paste(self, text: str) -> str | None:
        """Accept the callback address as pasted by the user. Returns the reason for a refusal."""
        assert self.callback is not None
        return self.callback.take(urlsplit(text.strip()).query or text.strip().lstrip("?"))


class SignIns:
    """Call `close` after everything that uses it has stopped."""

    def __init__(
        self,
        client: Callable[[], HttpClient],
        store: TokenStore | None = None,
        redactor: Redactor | None = None,
        shared: SharedSignIns | None = None,
    ) -> None:
        """`shared`: with other instances; None if there are none."""
        self.store = store or TokenStore()
        self.shared = shared
        self._client = client
        # Servers and errors may quote tokens, which must never be shown.
        self._redactor = redactor or Redactor(())
        # Weak, because clients come and go: a source lives as long as a connection or a refresh uses it.
        self._sources: WeakValueDictionary[object, SignedInHeaders] = WeakValueDictionary()
        self._visits: dict[tuple[str | None, ...], BrowserSignIn] = {}
        self._back_off = BackOff()

    def source(self, target: SignInTarget, base: Mapping[str, str]) -> SignedInHeaders:
        """The header source of this principal for this server."""
        # Two servers in a configuration may have the same address and different headers.
        key = (target.key, frozenset(base.items()))
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = SignedInHeaders(
                target, base, self.store, self._client, self._redactor, self._back_off, self.source, self.shared
            )
        # The client secret may have changed since.
        source.target = target
        return source

    async def begin(self, target: SignInTarget, *, new_client: bool = False) -> BrowserSignIn:
        """Start a sign-in, or join the one in progress; return when there is a page to visit. Raises `SignInFailed`."""
        target = target.provider or target
        key = target.key
        sign_in = self._visits.get(key)
        if sign_in is None or sign_in.task is None or sign_in.task.done():
            sign_in = self._visits[key] = BrowserSignIn()
            sign_in.task = asyncio.ensure_future(self._visit(target, sign_in, new_client))
            sign_in.task.add_done_callback(lambda task: self._on_over(key, sign_in, task))
        await asyncio.shield(sign_in.page)
        return sign_in

    def under_way(self, target: SignInTarget) -> BrowserSignIn | None:
        """The sign-in in progress for this target, once its page has been shown."""
        sign_in = self._visits.get((target.provider or target).key)
        return sign_in if sign_in is not None and sign_in.page.done() else None

    async def sign_in_by_device(self, target: SignInTarget, show: Callable[[DeviceCodeWait], None]) -> SignInRecord:
        """Sign in with a code that the user enters on another device."""

        async def wait(step: DeviceCodeWait) -> None:
            if step.page:
                show(step)
            await asyncio.sleep(step.seconds)

        target = target.provider or target
        await self.store.unlock()
        attempt = self._attempt(target, None, new_client=False)
        steps = flow.device_code(attempt)
        grant = await run(steps, self._client(), wait=wait, keep=self._keep_client, environ=target.environ)
        return await self._keep(target, grant)

    async def sign_out(self, target: SignInTarget) -> tuple[SignInRecord | None, bool]:
        """Delete the tokens and revoke them if the authorization server supports it. Returns the old record and whether
        it was revoked. The client registration is kept."""
        found: list[SignInRecord] = []

        def change(contents: Contents) -> None:
            record = target.find(contents)
            if record is not None:
                found.append(record)
            target.remove(contents)

        await self.store.change(change)
        self._look_again(target)
        if target.provider is not None:
            # Otherwise the next call would get another token without asking.
            return await self.sign_out(target.provider)
        if not found:
            return None, False
        record, token = found[0], found[0].refresh_token or found[0].access_token
        if record.revocation_endpoint is None or not token:
            return record, False
        credentials = profile_for(target.url, target.settings, record.issuer).credentials
        asked = flow.revoke(record.revocation_endpoint, record.client, credentials, token)
        try:
            answer = await send(self._client(), asked, target.environ)
        except SignInFailed:
            return record, False
        return record, answer.is_good

    async def settle(self) -> None:
        """Wait for refreshes, whose new tokens must not be lost."""
        await asyncio.gather(*(source.settle() for source in list(self._sources.values())))

    async def close(self) -> None:
        """Cancel sign-ins in progress, and wait for refreshes, whose new tokens must not be lost."""
        for sign_in in list(self._visits.values()):
            if sign_in.task is not None:
                sign_in.task.cancel()
                await asyncio.wait({sign_in.task})
        await self.settle()
        await self.store.close()

    async def _visit(self, target: SignInTarget, sign_in: BrowserSignIn, new_client: bool) -> SignInRecord:
        await self.store.unlock()
        profile = profile_for(target.url, target.settings)
        exact = profile.callback_port is not None
        if profile.callback_port is not None:
            ports = [profile.callback_port]
        else:
            ports = [USUAL_PORT] if profile.client_id else self._earlier_ports(target)
        async with Callback.listening(profile.callback_host, ports, exact=exact) as callback:
            sign_in.callback = callback

            async def visit(step: AuthorizationRequest) -> Mapping[str, str]:
                returned = callback.expect(step.state)
                sign_in.page.set_result(step.url)
                try:
                    async with asyncio.timeout(BROWSER_SIGN_IN_TIMEOUT):
                        return await returned
                except TimeoutError:
                    raise SignInFailed(
                        f"the sign-in was not completed within {BROWSER_SIGN_IN_TIMEOUT:.0f} s", hint=NO_CALLBACK
                    ) from None

            attempt = self._attempt(target, callback.redirect_uri, new_client=new_client)
            steps = flow.sign_in(attempt)
            grant = await run(steps, self._client(), visit, keep=self._keep_client, environ=target.environ)
            record = await self._keep(target, grant)
            # Let the response reach the browser before the listener closes.
            await asyncio.sleep(0)
            return record

    def _attempt(self, target: SignInTarget, redirect_uri: str | None, *, new_client: bool) -> SignInRequest:
        contents = self.store.read()
        wanted = contents.wanted_at(target.principal, target.server)
        return SignInRequest(
            url=target.url,
            challenge=target.challenge if wanted is None else parse(wanted.challenge),
            settings=target.settings,
            redirect_uri=redirect_uri,
            earlier_scopes=() if wanted is None else wanted.scopes,
            clients={} if new_client else contents.clients_by_issuer(),
            bound_issuer=target.bound_issuer(contents),
            now=time.time(),
        )

    def _earlier_ports(self, target: SignInTarget) -> list[int]:
        """The ports of earlier registrations, this server's first: some servers require the exact registered port."""
        contents = self.store.read()
        record = target.find(contents)
        uris = [] if record is None else list(record.client.redirect_uris)
        uris += [uri for client in reversed(contents.clients) for uri in client.redirect_uris]
        ports = [port for uri in uris if (port := urlsplit(uri).port) is not None]
        return list(dict.fromkeys(ports))[:MAX_PORTS]

    async def _keep_client(self, client: OAuthClient) -> None:
        await self.store.change(lambda contents: contents.put_client(client))

    async def _keep(self, target: SignInTarget, grant: Grant) -> SignInRecord:
        record = record_of(target, grant)
        await keep(self.store, target, record)
        self._look_again(target)
        return record

    def _look_again(self, target: SignInTarget) -> None:
        for source in list(self._sources.values()):
            if (source.target.principal, source.target.server) == (target.principal, target.server):
                source.forget()

    def _on_over(self, key: tuple[str | None, ...], sign_in: BrowserSignIn, task: asyncio.Task[SignInRecord]) -> None:
        if self._visits.get(key) is sign_in:
            del self._visits[key]
        if not sign_in.page.done():
            error = None if task.cancelled() else task.exception()
            sign_in.page.set_exception(error or SignInFailed("the sign-in was cancelled"))
