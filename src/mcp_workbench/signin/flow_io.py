"""What the flow asks of whoever runs it, and what it is told: requests, answers, and a page for the user to visit.

The flow is written as generators that yield these and receive what came of them, so that it can be read beside the
specification and tested without a network.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from mcp_workbench.errors import DownstreamError
from mcp_workbench.transport.http.client.address import LOOPBACK

T = TypeVar("T")
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"


class SignInFailed(DownstreamError):
    """Signing in cannot go on as things are; the message says what is wrong, the hint what to do."""


class NotNow(SignInFailed):
    """A passing fault: nothing is lost, and the same may work later."""


class OAuthRequest(Struct, frozen=True):
    """A request to an authorization server, or for metadata. Its answer is sent into the generator."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None


class OAuthResponse(Struct, frozen=True):
    """What came back. Status 0: nothing did, and `body` says why."""

    status: int
    body: bytes = b""
    content_type: str = ""

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def fields(self) -> dict[str, Any]:
        """The members of a JSON object; of a form, as GitHub answers by default; else none."""
        try:
            found = decode(self.body)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            if self.content_type.startswith(FORM):
                from urllib.parse import parse_qsl

                return dict(parse_qsl(self.body.decode(errors="replace")))
            return {}
        return found if isinstance(found, dict) else {}


class AuthorizationRequest(Struct, frozen=True):
    """A page for the user. What arrives at the callback is sent into the generator, as its query's members."""

    url: str
    redirect_uri: str
    state: str


class DeviceCodeWait(Struct, frozen=True):
    """Pause before the next question (device code). Nothing is sent into the generator."""

    seconds: float
    # Shown to the user the first time.
    page: str = ""
    code: str = ""


class Registered(Struct, frozen=True):
    """We were registered as this client: to be kept at once, so that it is not done again. Nothing is sent back."""

    client: object


Requests = Generator[OAuthRequest, OAuthResponse, T]


def get(url: str) -> OAuthRequest:
    return OAuthRequest("GET", url, {"accept": JSON})


def post_form(url: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> OAuthRequest:
    return OAuthRequest(
        "POST", url, {"accept": JSON, "content-type": FORM, **(headers or {})}, urlencode(fields).encode()
    )


def post_json(url: str, value: object, headers: Mapping[str, str] | None = None) -> OAuthRequest:
    return OAuthRequest("POST", url, {"accept": JSON, "content-type": JSON, **(headers or {})}, encode(value))


def checked_url(url: object, what: str, *, named_by: str | None = None) -> str:
    """An address that secrets may be sent to: `https`, or anything on this machine. Raises `SignInFailed`.

    `named_by`: whoever named it, where that was not the user. Only one on this machine may send us around on it: other
    programs that listen here trust what comes from here.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host = parts.hostname or ""
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
    if host in LOOPBACK and named_by is not None and not is_loopback(named_by):
        raise SignInFailed(
            f"{what} is `{parts.scheme}://{parts.netloc}`, on this machine, but {origin_of(named_by)} is not",
            hint="do not sign in there; if it is right, set `issuer` in `oauth` of this server",
        )
    return parts.geturl()


def is_loopback(url: str) -> bool:
    return (urlsplit(url).hostname or "") in LOOPBACK


def origin_of(url: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2].lower()}"


def words(value: object) -> tuple[str, ...]:
    """A list of words, as metadata has them."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
