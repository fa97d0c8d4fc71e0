"""What the flow yields to its runner, and what it receives: requests, responses, and pages for the user to visit.

The flow consists of generators that yield these values and are sent the results, so that it can be read alongside the
specification and tested without a network.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from mcp_workbench.engine.transport.http.client.address import LOOPBACK
from mcp_workbench.engine.transport.http.client.reach import REACH_WORDS, Reach, reach_of_host
from mcp_workbench.errors import DownstreamError

T = TypeVar("T")
FORM_TYPE: Final = "application/x-www-form-urlencoded"
JSON_TYPE: Final = "application/json"


class SignInFailed(DownstreamError):
    """The sign-in failed; the message says what is wrong, the hint what to do."""


class NotNow(SignInFailed):
    """A temporary failure: nothing is lost, and trying again later may work."""


class OAuthRequest(Struct, frozen=True):
    """A request to an authorization server, or for metadata. The generator is sent the response."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    # Who supplied the address, if it was not the user. It must not be more local than they are.
    named_by: str | None = None


class OAuthResponse(Struct, frozen=True):
    """A response. Status 0 means that there was none, and `body` says why."""

    status: int
    body: bytes = b""
    content_type: str = ""
    # `DPoP-Nonce` and `WWW-Authenticate`.
    nonce: str = ""
    challenge: str = ""

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def fields(self) -> dict[str, Any]:
        """The members of a JSON object, or the fields of a form (GitHub's default); else empty."""
        try:
            found = decode(self.body)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            if self.content_type.startswith(FORM_TYPE):
                from urllib.parse import parse_qsl

                return dict(parse_qsl(self.body.decode(errors="replace")))
            return {}
        return found if isinstance(found, dict) else {}


class AuthorizationRequest(Struct, frozen=True):
    """A page for the user to visit. The generator is sent the query fields that arrive at the callback."""

    url: str
    redirect_uri: str
    state: str


class DeviceCodeWait(Struct, frozen=True):
    """Wait before polling again (device code). The generator is sent nothing."""

    seconds: float
    # Shown to the user the first time.
    page: str = ""
    code: str = ""


class Registered(Struct, frozen=True):
    """We registered as this client. Stored at once, so that we never register twice. The generator is sent nothing."""

    client: object


Requests = Generator[OAuthRequest, OAuthResponse, T]


def get(url: str, *, named_by: str | None = None) -> OAuthRequest:
    return OAuthRequest("GET", url, {"accept": JSON_TYPE}, named_by=named_by)


def post_form(
    url: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None, *, named_by: str | None = None
) -> OAuthRequest:
    said = {"accept": JSON_TYPE, "content-type": FORM_TYPE, **(headers or {})}
    return OAuthRequest("POST", url, said, urlencode(fields).encode(), named_by)


def post_json(
    url: str, value: object, headers: Mapping[str, str] | None = None, *, named_by: str | None = None
) -> OAuthRequest:
    said = {"accept": JSON_TYPE, "content-type": JSON_TYPE, **(headers or {})}
    return OAuthRequest("POST", url, said, encode(value), named_by)


def checked_url(url: object, what: str, *, named_by: str | None = None) -> str:
    """Check that secrets may be sent to an address: it must use `https` or be on this machine. Raises `SignInFailed`.

    `named_by`: who supplied the address, if it was not the user. Only what can be told from the spelling is checked
    here; `flow_runner.send` checks what names lead to.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host = parts.hostname or ""
        # Raises where it is no number: it is read only when it is asked for.
        _ = parts.port
    except ValueError:
        host = ""
        parts = urlsplit("")
    if not host or parts.scheme not in ("https", "http"):
        raise SignInFailed(f"{what} is not an address: `{str(url)[:200]}`", hint="the server's metadata is wrong")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise SignInFailed(
            f"{what} is `{parts.scheme}://{parts.netloc}`, which is not encrypted",
            hint="secrets are sent to https addresses only, or to this machine",
        )
    if named_by is not None:
        reach, namer = reach_of_host(host), reach_of_host(urlsplit(named_by).hostname or "")
        # A name may lead into a private network; it is not looked up here. One that leads to this machine is not
        # believed, because users write `localhost`.
        limit = Reach.LINK_LOCAL if namer is None else namer
        if reach is not None and reach > limit:
            raise too_local(f"{what} is `{parts.scheme}://{parts.netloc}`,", reach, named_by)
    return parts.geturl()


def too_local(what: str, reach: Reach, named_by: str) -> SignInFailed:
    """The error for an address that only those nearer to it may name."""
    return SignInFailed(
        f"{what} {REACH_WORDS[reach]}, but {origin_of(named_by)} is not",
        hint="do not sign in there; if it is right, set `issuer` in `oauth` of this server",
    )


def is_loopback(url: str) -> bool:
    return (urlsplit(url).hostname or "") in LOOPBACK


def origin_of(url: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(url)
    # Without the user information that an address may carry, which is no part of an origin.
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2].lower()}"


def words(value: object) -> tuple[str, ...]:
    """A list of strings in metadata; anything else is ignored."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
