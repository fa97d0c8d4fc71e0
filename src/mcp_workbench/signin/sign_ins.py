"""All sign-ins of one workbench: the store, a header source for each target, and sign-ins in progress.

Owned by the composition root and created for the first server that needs it. Each target has at most one sign-in in
progress; further requests for it get the same page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.transport.http.client.http_client import HttpClient
from mcp_workbench.signin import flow
from mcp_workbench.signin.back_off import BackOff
from mcp_workbench.signin.callback import Callback
from mcp_workbench.signin.challenge import Challenge, parse
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.flow import Grant, SignInRequest
from mcp_workbench.signin.flow_io import AuthorizationRequest, DeviceCodeWait, SignInFailed
from mcp_workbench.signin.flow_runner import run, send
from mcp_workbench.signin.profiles import profile_for
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.signed_in_headers import SignedInHeaders, keep, record_of
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore

# How long a user may take on the server's pages: passwords, second factors, a colleague's approval.
BROWSER_SIGN_IN_SECONDS: Final = 600.0
# The callback port for clients that the user has registered, unless `callbackPort` is set. Always the same one, because
# most authorization servers compare the whole redirect address.
USUAL_PORT: Final = 33418
# How many ports of earlier registrations are tried before any other.
MOST_PORTS: Final = 3
NO_CALLBACK: Final = (
    "if the page showed an error about the client, run `login` with --new-client; without a browser on this machine, "
    "with --no-browser"
)


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
        self, client: Callable[[], HttpClient], store: TokenStore | None = None, redactor: Redactor | None = None
    ) -> None:
        self.store = store or TokenStore()
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
                target, base, self.store, self._client, self._redactor, self._back_off
            )
        # The client secret may have changed since.
        source.target = target
        return source

    async def begin(self, target: SignInTarget, *, new_client: bool = False) -> BrowserSignIn:
        """Start a sign-in, or join the one in progress; return when there is a page to visit. Raises `SignInFailed`."""
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
        sign_in = self._visits.get(target.key)
        return sign_in if sign_in is not None and sign_in.page.done() else None

    async def sign_in_by_device(self, target: SignInTarget, show: Callable[[DeviceCodeWait], None]) -> SignInRecord:
        """Sign in with a code that the user enters on another device."""

        async def wait(step: DeviceCodeWait) -> None:
            if step.page:
                show(step)
            await asyncio.sleep(step.seconds)

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

    async def close(self) -> None:
        """Cancel sign-ins in progress, and wait for refreshes, whose new tokens must not be lost."""
        for sign_in in list(self._visits.values()):
            if sign_in.task is not None:
                sign_in.task.cancel()
                await asyncio.wait({sign_in.task})
        await asyncio.gather(*(source.settle() for source in list(self._sources.values())))
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
                    async with asyncio.timeout(BROWSER_SIGN_IN_SECONDS):
                        return await returned
                except TimeoutError:
                    raise SignInFailed(
                        f"the sign-in was not completed within {BROWSER_SIGN_IN_SECONDS:.0f} s", hint=NO_CALLBACK
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
            challenge=Challenge() if wanted is None else parse(wanted.challenge),
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
        return list(dict.fromkeys(ports))[:MOST_PORTS]

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
