"""Callers over HTTP: the authenticator of an endpoint, assembled from the configuration.

Connects the modules beside it, which recognise users and know no transport, with the endpoint's interface. Owns the
order in which proofs are checked, and the response to a caller without any: the challenges of RFC 6750 and RFC 9728.
Imported only if there is more than one token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct
from msgspec.json import encode

from mcp_workbench.engine.config.auth_settings import AuthConfig, ProxyConfig
from mcp_workbench.engine.transport.http.server.authentication import (
    DEFAULT_PRINCIPAL,
    FORBIDDEN_STATUS,
    UNAUTHORIZED,
    UNAVAILABLE,
    Authentication,
    AuthenticationChallenge,
)
from mcp_workbench.engine.transport.http.server.pages import Page, PageResponse
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.unauthenticated_connections import network_of
from mcp_workbench.errors import ConfigError, package_hint
from mcp_workbench.team.identity.bearer_tokens import NO_TOKEN, BearerTokens
from mcp_workbench.team.identity.claims import MAX_GROUP_LENGTH, MAX_GROUPS, MAX_SUBJECT_LENGTH
from mcp_workbench.team.identity.credentials import (
    INSUFFICIENT,
    UNREACHABLE,
    Fetch,
    PresentingPeer,
    StartTask,
    TokenRejection,
)
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.identity.named_keys import KeysInForce
from mcp_workbench.team.identity.token_exchange import SubjectToken, SubjectTokens
from mcp_workbench.team.identity.unix_users import UnixUsers

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
KEYS_PATH: Final = "/.well-known/jwks.json"
_REALM_TEXT: Final = 'Bearer realm="mcp-workbench"'
# Replacements for characters that may not occur in a quoted string of a challenge.
_QUOTABLE: Final = {ord('"'): "'", ord("\\"): "/"}
# The prefix of principals named by a proxy, so that none can be taken for a key or for another provider's user.
PROXY_USER_PREFIX: Final = "proxy#"
# For a request from the user that the proxy runs as.
NOT_VOUCHED_FOR: Final = TokenRejection("the proxy names no user, or does not prove that it is the proxy", "")
UNNAMED: Final = TokenRejection("the proxy names no user, or one that cannot be a name")


# A proxy that authenticates for us: the user that it names in a header, if it is the proxy.
# It must connect from a configured address, and prove itself with a secret, or with a certificate whose verified name
# is the expected one. From any other client the header is ignored.
class ProxyHeader:
    def __init__(self, settings: ProxyConfig) -> None:
        self._settings = settings
        self._networks = [
            ipaddress.ip_network(peer, strict=False) for peer in settings.peers if not peer.startswith("unix:")
        ]
        # `unix:USER` by uid, as in the peer of a Unix socket.
        self._users = {
            f"uid:{_uid_of(peer.removeprefix('unix:'))}" for peer in settings.peers if peer.startswith("unix:")
        }

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that have to be read."""
        settings = self._settings
        return tuple(
            filter(None, (settings.header, settings.groups_header, settings.address_header, settings.secret_header))
        )

    def recognise(
        self, peer: str, certificate: Sequence[str], headers: Mapping[str, str]
    ) -> Identity | TokenRejection | None:
        """The user that the proxy names; None if this is not the proxy, or it names none."""
        settings = self._settings
        given = headers.get(settings.header)
        if given is None or not self._is_proxy(peer, certificate, headers):
            return None
        # Headers are bytes; proxies write UTF-8 nowadays.
        user = _text(given)
        if not (0 < len(user) <= MAX_SUBJECT_LENGTH and user.isprintable()):
            return UNNAMED
        written = headers.get(settings.groups_header, "") if settings.groups_header else ""
        groups = [group.strip() for group in _text(written).split(",") if group.strip()]
        if len(groups) > MAX_GROUPS or any(len(group) > MAX_GROUP_LENGTH for group in groups):
            return UNNAMED
        return Identity(principal=PROXY_USER_PREFIX + user, groups=frozenset(groups))

    def runs_as(self, peer: str) -> bool:
        """Whether this is the local user that the proxy runs as. Requests from there belong to a user whom the proxy
        has to name, and must not be taken for requests of the proxy's own user."""
        return peer in self._users

    def address(self, peer: str, certificate: Sequence[str], headers: Mapping[str, str]) -> str:
        """The client's address according to the proxy; empty if this is not the proxy, or it sends none."""
        name = self._settings.address_header
        written = None if name is None else headers.get(name)
        if written is None or not self._is_proxy(peer, certificate, headers):
            return ""
        # The proxy appends its value to whatever the client has sent under this name.
        last = written.rpartition(",")[2].strip()
        try:
            return str(ipaddress.ip_address(last.strip("[]")))
        except ValueError:
            return ""

    def _is_proxy(self, peer: str, certificate: Sequence[str], headers: Mapping[str, str]) -> bool:
        settings = self._settings
        if peer not in self._users and not self._is_named(peer):
            return False
        if settings.certificate is not None and settings.certificate not in certificate:
            return False
        if settings.secret is None:
            return settings.certificate is not None
        # As bytes: headers are stored as Latin-1, whatever their encoding.
        given = headers.get(settings.secret_header, "").encode("latin-1")
        return hmac.compare_digest(given, settings.secret.encode())

    def _is_named(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _text(given: str) -> str:
    try:
        return given.encode("latin-1").decode().strip()
    except UnicodeError:
        return ""


def _uid_of(user: str) -> int:
    from mcp_workbench.team.identity.unix_users import uid_of

    return uid_of(user)


class CallerSettings(Struct, frozen=True, kw_only=True):
    """What the user has configured for authentication."""

    token: str | None = None
    keys: KeysInForce | None = None
    auth: AuthConfig | None = None
    proxy: ProxyConfig | None = None
    # Local users, at the other end of a Unix socket; None if we do not listen on one.
    users: UnixUsers | None = None
    # Keeps tokens that are to be exchanged for others; None if no server needs that.
    subjects: SubjectTokens | None = None


class Callers:
    """Identifies callers (`Authenticator`)."""

    def __init__(
        self,
        settings: CallerSettings,
        remember: Callable[[Identity], None],
        fetch: Fetch,
        start_task: StartTask,
        load: Callable[[str], Coroutine[None, None, None] | None] = lambda principal: None,
    ) -> None:
        """`load` reads from the disk what is needed before a principal is shown anything; None if nothing is."""
        self._remember = remember
        self._start_task = start_task
        self._load = load
        self._proxy = None if settings.proxy is None else ProxyHeader(settings.proxy)
        self._users = settings.users
        self._auth = settings.auth
        self._subjects = settings.subjects
        self._tokens = _bearer_tokens(settings, fetch, start_task)
        self.depends_on_peer = self._proxy is not None or self._users is not None

    @property
    def header_names(self) -> tuple[str, ...]:
        """Headers that have to be read in addition to the usual ones."""
        return () if self._proxy is None else self._proxy.headers

    def prepare(self) -> None:
        """Prepare for the first call."""
        self._tokens.fetch_keys()

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        """Check the proxy first: it vouches for whatever else is in a request that it passes on."""
        if self._proxy is not None:
            named = self._proxy.recognise(head.address, head.peer_names, head.headers)
            # Even if the proxy names no user: failed attempts count by the address that it reports, or else all callers
            # would be slowed down together.
            head.forwarded = self._proxy.address(head.address, head.peer_names, head.headers)
            if named is not None:
                return self._when_loaded(head, self._outcome(head, named))
        authorization = head.headers.get("authorization")
        if authorization is not None:
            return self._by_token(head, authorization)
        # On a Unix socket the peer is the proxy's own user, who is not the caller.
        if self._proxy is not None and self._proxy.runs_as(head.peer):
            return self._outcome(head, NOT_VOUCHED_FOR)
        user = None if self._users is None else self._users.recognise(head.peer)
        return self._when_loaded(head, self._outcome(head, NO_TOKEN if user is None else user))

    def _by_token(self, head: RequestHead, authorization: str) -> Authentication | asyncio.Future[Authentication]:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return self._outcome(head, NO_TOKEN)
        token = token.strip()
        found = self._tokens.recognise(token, lambda: _presenting_peer(head))
        if not isinstance(found, asyncio.Future):
            return self._when_loaded(head, self._outcome(head, found, token))
        later: asyncio.Future[Authentication] = asyncio.get_running_loop().create_future()

        def settle(done: asyncio.Future[Identity | TokenRejection]) -> None:
            if later.done():
                return
            if done.cancelled():
                later.cancel()
            else:
                self._when_loaded(head, self._outcome(head, done.result(), token), later)

        found.add_done_callback(settle)
        return later

    def _when_loaded(
        self, head: RequestHead, outcome: Authentication, later: asyncio.Future[Authentication] | None = None
    ) -> Authentication | asyncio.Future[Authentication]:
        """The outcome; delayed if the principal's lists must be read first, while others are served."""
        # A stream that is still open shows that its user was here when it was opened, not that they are.
        loading = self._load(outcome) if isinstance(outcome, str) and not head.is_of_stream else None
        if loading is None:
            if later is not None:
                later.set_result(outcome)
            return outcome
        if later is None:
            later = asyncio.get_running_loop().create_future()
        _ = self._start_task(_settle_after(loading, later, outcome))
        return later

    def _is_still_proved(self, standing: Callable[[], bool], identity: Identity) -> bool:
        """Whether the same head proves the same again; then without looking at its token. It is recalled when the
        request is served (`head.recall`)."""
        if not standing():
            return False
        loading = self._load(identity.principal)
        if loading is not None:
            # Started anew by the full check, which can wait for it.
            loading.close()
            return False
        return True

    def _recall(self, identity: Identity, subject: SubjectToken | None) -> None:
        self._remember(identity)
        if self._subjects is not None and subject is not None:
            self._subjects.keep(identity.principal, subject)

    def _outcome(self, head: RequestHead, found: Identity | TokenRejection, token: str = "") -> Authentication:
        if isinstance(found, Identity):
            head.identity = found
            # A stream sends no further requests: its token must not affect requests with another token.
            if not head.is_of_stream:
                subject = None if self._subjects is None or not token else self._tokens.subject(token)
                self._recall(found, subject)
                # The body may arrive later, after a request of the same principal with another token.
                head.recall = partial(self._recall, found, subject)
                if token and not self.depends_on_peer and (standing := self._tokens.standing(token)) is not None:
                    head.is_still_proved = partial(self._is_still_proved, standing, found)
            return found.principal
        # Not a challenge: the token may be valid, and clients would discard it and make the user sign in again.
        if found.error == UNREACHABLE:
            return AuthenticationChallenge(found.message, b"", UNAVAILABLE)
        parts = [_REALM_TEXT]
        if self._auth is not None:
            parts.append(f'resource_metadata="{metadata_url(self._auth.public_url)}"')
        scope = found.scope or " ".join(_scopes(self._auth))
        if scope:
            parts.append(f'scope="{scope.translate(_QUOTABLE)}"')
        # RFC 6750, section 3.1: a request without a token gets no error code.
        if found.error:
            parts += [f'error="{found.error}"', f'error_description="{found.message.translate(_QUOTABLE)}"']
        # Headers are ASCII; scopes and messages may contain other characters.
        challenge = ", ".join(parts).encode("ascii", errors="replace")
        return AuthenticationChallenge(
            found.message, challenge, FORBIDDEN_STATUS if found.error == INSUFFICIENT else UNAUTHORIZED
        )


def _presenting_peer(head: RequestHead) -> PresentingPeer:
    peer = network_of(head.origin)
    return PresentingPeer(peer, head.is_slowed(peer))


async def _settle_after(
    loading: Coroutine[None, None, None], later: asyncio.Future[Authentication], outcome: Authentication
) -> None:
    try:
        await loading
    finally:
        # Manifests that could not be read are treated as not cached.
        if not later.done():
            later.set_result(outcome)


def metadata_url(public_url: str) -> str:
    """The address of a resource's metadata: inserted before its path (RFC 9728, section 3.1)."""
    parts = urlsplit(public_url)
    return urlunsplit((parts.scheme, parts.netloc, METADATA_PATH + parts.path.rstrip("/"), "", ""))


def metadata_pages(auth: AuthConfig, mcp_path: str) -> dict[str, Page]:
    """Our own protected-resource metadata, at the root and with the path, as clients try both."""
    # RFC 9728, section 2.
    document: dict[str, object] = {
        "resource": auth.public_url,
        "authorization_servers": [each.issuer for each in auth.issuers],
        "bearer_methods_supported": ["header"],
        "resource_name": "MCP Workbench",
    }
    if scopes := _scopes(auth):
        document["scopes_supported"] = scopes
    headers = b"content-type: application/json\r\ncache-control: max-age=300\r\n"
    response = PageResponse(200, headers, encode(document))
    page = Page(lambda principal: response)
    path = urlsplit(auth.public_url).path.rstrip("/")
    return {METADATA_PATH + suffix: page for suffix in ("", mcp_path, path)}


def keys_page(document: bytes) -> dict[str, Page]:
    """The public key of our identity assertions, for the servers that receive them."""
    response = PageResponse(200, b"content-type: application/jwk-set+json\r\ncache-control: max-age=300\r\n", document)
    return {KEYS_PATH: Page(lambda principal: response)}


def _scopes(auth: AuthConfig | None) -> list[str]:
    return [] if auth is None else list(dict.fromkeys(scope for each in auth.issuers for scope in each.scopes))


def _bearer_tokens(settings: CallerSettings, fetch: Fetch, start_task: StartTask) -> BearerTokens:
    default = None if settings.token is None else (settings.token, DEFAULT_PRINCIPAL)
    if settings.auth is None:
        return BearerTokens(default=default, keys=settings.keys)
    _require_joserfc()
    from mcp_workbench.team.identity.introspection import Introspection
    from mcp_workbench.team.identity.jwks import IssuerKeys
    from mcp_workbench.team.identity.jwt_tokens import JwtIssuer

    jwts, opaque = [], []
    for each in settings.auth.issuers:
        # Always restricted: a token for another resource of the same provider must not be valid here (RFC 9068, section
        # 4).
        audience = each.audience or (settings.auth.public_url,)
        jwts.append(JwtIssuer(each, audience, IssuerKeys(each, fetch, start_task)))
        if each.introspection is not None:
            opaque.append(Introspection(each, audience, fetch, start_task))
    return BearerTokens(default=default, keys=settings.keys, jwts=jwts, opaque=opaque)


def _require_joserfc() -> None:
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise ConfigError(
            "`auth` needs the Python package `joserfc`, which is not installed",
            hint=package_hint("joserfc"),
        )


def hosts_of(auth: AuthConfig | None) -> Sequence[str]:
    """The name under which clients reach us, which is ours whatever we listen on."""
    host = None if auth is None else urlsplit(auth.public_url).hostname
    return () if host is None else (host,)
