"""Everything about signing in of one workbench: its store, a source of headers for each target, and sign-ins under way.

Owned by the composition root, made with the first server that wants it. One sign-in at a time for each target: whoever
asks while it is under way gets the same page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from mcp_workbench.config.redact import Redactor
from mcp_workbench.signin import flow
from mcp_workbench.signin.callback import Callback
from mcp_workbench.signin.challenge import Challenge, parse
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.flow import Grant, SignInRequest
from mcp_workbench.signin.flow_io import AuthorizationRequest, DeviceCodeWait, SignInFailed
from mcp_workbench.signin.flow_runner import run, send
from mcp_workbench.signin.profiles import profile_for
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.signed_in_headers import SignedInHeaders, keep
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore
from mcp_workbench.transport.http.client.pool import HttpClient

# How long a user may take on the pages of a server: passwords, second factors, the approval of a colleague.
BROWSER_SIGN_IN_SECONDS: Final = 600.0
# Where a client that the user has registered is waited for, unless `callbackPort` says otherwise: the same at every
# sign-in, because most authorization servers compare it.
USUAL_PORT: Final = 33418
# Ports of earlier registrations that are tried before any other.
MOST_PORTS: Final = 3
NO_CALLBACK: Final = (
    "if the page showed an error about the client, run `login` with --new-client; without a browser on this machine, "
    "with --no-browser"
)


class BrowserSignIn:
    """A sign-in under way: the page to visit, and its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.page: asyncio.Future[str] = loop.create_future()
        self.page.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.task: asyncio.Task[SignInRecord] | None = None
        self.callback: Callback | None = None

    @property
    def url(self) -> str:
        """The page, once there is one."""
        return self.page.result()

    async def wait(self) -> SignInRecord:
        """Return when the user is done. Raises `SignInFailed`."""
        assert self.task is not None
        return await asyncio.shield(self.task)

    def paste(self, text: str) -> str | None:
        """Take the address of the callback as the user copied it; why not, where it does not belong here."""
        assert self.callback is not None
        return self.callback.take(urlsplit(text.strip()).query or text.strip().lstrip("?"))


class SignIns:
    """Use `close` when everything else has ended."""

    def __init__(
        self, client: Callable[[], HttpClient], store: TokenStore | None = None, redactor: Redactor | None = None
    ) -> None:
        self.store = store or TokenStore()
        self._client = client
        # What we are sent and send must not be shown, whoever quotes it.
        self._redactor = redactor or Redactor(())
        # Each lives for as long as a connection or a refresh uses it: clients come and go.
        self._sources: WeakValueDictionary[object, SignedInHeaders] = WeakValueDictionary()
        self._visits: dict[tuple[str | None, ...], BrowserSignIn] = {}

    def source(self, target: SignInTarget, base: Mapping[str, str]) -> SignedInHeaders:
        """Where the headers of this server come from, for this principal."""
        # Two servers of a configuration may have one address, and further headers of their own.
        key = (target.key, frozenset(base.items()))
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = SignedInHeaders(target, base, self.store, self._client, self._redactor)
        # The client's secret may have been fetched again.
        source.target = target
        return source

    async def begin(self, target: SignInTarget, *, new_client: bool = False) -> BrowserSignIn:
        """Begin a sign-in, or join the one under way; return when there is a page to visit. Raises `SignInFailed`."""
        key = target.key
        sign_in = self._visits.get(key)
        if sign_in is None or sign_in.task is None or sign_in.task.done():
            sign_in = self._visits[key] = BrowserSignIn()
            sign_in.task = asyncio.ensure_future(self._visit(target, sign_in, new_client))
            sign_in.task.add_done_callback(lambda task: self._on_over(key, sign_in, task))
        await asyncio.shield(sign_in.page)
        return sign_in

    def under_way(self, target: SignInTarget) -> BrowserSignIn | None:
        """The sign-in of this target whose page has been shown."""
        sign_in = self._visits.get(target.key)
        return sign_in if sign_in is not None and sign_in.page.done() else None

    async def sign_in_by_device(self, target: SignInTarget, show: Callable[[DeviceCodeWait], None]) -> SignInRecord:
        """Sign in with a code that the user enters elsewhere."""

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
        """Forget the tokens, and have the authorization server forget them where it can: what there was, and whether
        it did. The registration stays."""
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
        answer = await send(self._client(), asked, target.environ)
        return record, answer.is_good

    async def close(self) -> None:
        """End sign-ins under way; wait for refreshes, which must not be lost."""
        for sign_in in list(self._visits.values()):
            if sign_in.task is not None:
                sign_in.task.cancel()
                await asyncio.wait({sign_in.task})
        await asyncio.gather(*(source.settle() for source in list(self._sources.values())))

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
            # The browser gets its page before the address goes away.
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
        """The ports of earlier registrations, of this server's before the others': at some the very same is wanted."""
        contents = self.store.read()
        record = target.find(contents)
        uris = [] if record is None else list(record.client.redirect_uris)
        uris += [uri for client in reversed(contents.clients) for uri in client.redirect_uris]
        ports = [port for uri in uris if (port := urlsplit(uri).port) is not None]
        return list(dict.fromkeys(ports))[:MOST_PORTS]

    async def _keep_client(self, client: OAuthClient) -> None:
        await self.store.change(lambda contents: contents.put_client(client))

    async def _keep(self, target: SignInTarget, grant: Grant) -> SignInRecord:
        record = await keep(self.store, target, grant)
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
