"""The head of an HTTP request: the headers that we read, its path, and where its body ends.

Knows nothing about admission, or about what is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, UnsetType

from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http import header_values
from mcp_workbench.engine.transport.http.server.limits import SMALL_BODY

if TYPE_CHECKING:
    import asyncio

    from mcp_workbench.engine.transport.http.server.admission import Refusal
    from mcp_workbench.engine.transport.http.server.authentication import Authentication

PARAMETER_PREFIX_BYTES: Final = names.PARAMETER_PREFIX.encode()
_WANTED_HEADERS: Final = (
    *("host", "origin", "authorization", "content-type", "content-length", "transfer-encoding", "accept", "expect"),
    *("access-control-request-method", names.SESSION_ID, names.LAST_EVENT_ID),
    *(names.PROTOCOL_VERSION_HEADER, names.METHOD, names.NAME),
)
# In the spellings that clients use; any other is looked up in lower case.
HEADER_SPELLINGS: Final = {spelling.encode(): name for name in _WANTED_HEADERS for spelling in (name, name.title())}


def names_with(further: Iterable[str]) -> dict[bytes, str]:
    """The headers that are read, and these in addition: what a proxy in front of us sends about its users."""
    return HEADER_SPELLINGS | {spelling.encode(): name for name in further for spelling in (name, name.title())}


# Two parsers may use different copies of a repeated header, so headers that we decide by must occur once.
_SINGLE_HEADERS: Final = frozenset(
    ("host", "origin", "authorization", names.PROTOCOL_VERSION_HEADER, names.METHOD, names.NAME, names.SESSION_ID)
)


# Matches no name: it is not JSON.
NO_NAME: Final = b"?"


def _never(peer: str) -> bool:
    return False


class RequestHead:
    """The head of one request, and what was decided on it."""

    __slots__ = (
        "_declared_bytes",
        "_named",
        "address",
        "agreed",
        "forwarded",
        "headers",
        "identity",
        "is_of_stream",
        "is_ordinary",
        "is_slowed",
        "is_still_proved",
        "lacks_sessions",
        "method",
        "parameters",
        "path",
        "peer",
        "peer_names",
        "pending",
        "principal",
        "recall",
        "refusal",
        "repeated",
        "takes_body",
        "target",
    )

    def __init__(self, method: str = "", path: str = "", peer: str = "") -> None:
        self.method = method
        self.path = path
        # Path and query, as sent.
        self.target = b""
        # `peer` is what failures are counted by: the address, its network if it is IPv6, `uid:…` on a Unix socket.
        # `address` is the exact address, for the audit and for trusting proxies; `peer_names` are the names in the
        # client's certificate, if it has one.
        self.peer = peer
        self.address = peer
        self.peer_names: tuple[str, ...] = ()
        # The client's address as reported by a trusted proxy.
        self.forwarded = ""
        # The authentication in progress, while another service is being asked.
        self.pending: asyncio.Future[Authentication] | None = None
        self.headers: dict[str, str] = {}
        # `mcp-param-…` in lower case, with every value given.
        self.parameters: dict[str, list[str]] = {}
        self.repeated: str | None = None
        # The caller, and why the request is refused; known when the head is complete.
        self.principal = ""
        # What authentication proved besides the principal; None if nothing. The steps of the request decide by it.
        self.identity: object = None
        self.refusal: Refusal | None = None
        # Called when the request is served: makes the identity that it proved the current one of its principal again,
        # since another token may have been used meanwhile. None if the principal alone is known.
        self.recall: Callable[[], None] | None = None
        # Whether what it proved before still holds. None, or False: it has to be authenticated.
        self.is_still_proved: Callable[[], bool] | None = None
        # Whether it is being authenticated again for a stream that it opened.
        self.is_of_stream = False
        # Whether a peer has failed to authenticate too often of late. Told by the endpoint.
        self.is_slowed: Callable[[str], bool] = _never
        # Whether it is an admitted POST to the MCP endpoint from no web page, as nearly all are.
        self.is_ordinary = False
        # Whether it is admitted to the MCP endpoint, and names a revision without sessions.
        self.lacks_sessions = False
        # Whether the body is needed. Set for admitted requests only.
        self.takes_body = False
        self._declared_bytes: int | None = -1
        self._named: str | UnsetType | None = UNSET
        # The last call that it was found to agree with: its revision, its tool as written in the body, and as decoded.
        self.agreed: tuple[str | None, bytes, str] = (None, NO_NAME, "")

    def for_stream(self) -> RequestHead:
        """A copy for authenticating a stream again: the original may be cached for other requests."""
        head = RequestHead(self.method, self.path, self.peer)
        head.address, head.peer_names, head.forwarded = self.address, self.peer_names, self.forwarded
        head.headers, head.principal, head.is_of_stream = self.headers, self.principal, True
        return head

    def add_again(self, name: str, value: bytes) -> None:
        if name == "accept":
            self.headers[name] += ", " + value.strip().decode("latin-1")
        elif name == names.TRACE_PARENT:
            # Of several, none is valid, and no request is refused for it.
            self.headers[name] = ""
        elif name in _SINGLE_HEADERS or name not in _WANTED_HEADERS:
            # Report the first repeated header: later ones must not hide it.
            self.repeated = self.repeated or name

    def add_parameter(self, name: bytes, value: bytes) -> None:
        text = value.strip().decode("latin-1")
        self.parameters.setdefault(name.decode("latin-1").lower(), []).append(text)

    @property
    def origin(self) -> str:
        """The best known address of the client, for logs and the audit."""
        return self.forwarded or self.address

    def get(self, name: str) -> str | None:
        return self.headers.get(name)

    @property
    def declared_bytes(self) -> int | None:
        """The size of the body; None if it is chunked. Call only when the head is complete."""
        if self._declared_bytes == -1:
            declared = self.headers.get("content-length", "0")
            is_known = declared.isdecimal() and len(declared) < 20 and "transfer-encoding" not in self.headers
            self._declared_bytes = int(declared) if is_known else None
        return self._declared_bytes

    @property
    def is_plain(self) -> bool:
        """Whether nothing about it is unusual, so that the next request may have the same."""
        return (
            not self.expects_continue
            and "transfer-encoding" not in self.headers
            and self.repeated is None
            and names.TRACE_PARENT not in self.headers
        )

    @property
    def named(self) -> str | None:
        """The decoded `Mcp-Name`; None if it is missing or its encoding is broken."""
        if self._named is UNSET:
            given = self.headers.get(names.NAME)
            self._named = None if given is None else header_values.decode(given)
        return self._named

    @property
    def is_large(self) -> bool:
        """Whether the body may be larger than what is already in the kernel's buffer."""
        declared = self.declared_bytes
        return declared is None or declared > SMALL_BODY

    @property
    def expects_continue(self) -> bool:
        """Whether the client sends the body only after `100 Continue`."""
        return self.headers.get("expect", "").lower() == "100-continue"

    def accepts(self, content_type: str) -> bool:
        """Whether the client accepts this type. Without the header it accepts anything (RFC 9110, 12.5.1)."""
        accept = self.headers.get("accept")
        return accept is None or _accepts(accept, content_type)

    @property
    def is_json(self) -> bool:
        content_type = self.headers.get("content-type", "")
        return content_type == names.JSON or content_type.partition(";")[0].strip().lower() == names.JSON


# Clients send the same few values each time.
@lru_cache(maxsize=64)
def _accepts(accept: str, content_type: str) -> bool:
    kind = content_type.partition("/")[0] + "/*"
    for item in accept.lower().split(","):
        name, _, options = item.partition(";")
        if name.strip() in (content_type, kind, "*/*") and "q=0" not in options.replace(" ", "").split(";"):
            return True
    return False


def path_of(url: bytes) -> str:
    """The path of a request target. Percent encoding is kept: none of our paths need it."""
    target = url
    if not target.startswith(b"/"):
        # The absolute form `http://host/path`, as sent to proxies.
        import httptools

        try:
            target = cast(bytes, cast(Any, httptools.parse_url(url)).path) or b"/"
        except httptools.HttpParserInvalidURLError:
            return ""
    return target.partition(b"?")[0].decode("latin-1")


def shown_again(head: RequestHead, version: str, is_kept: bool) -> bytes | None:
    """The part of a head that another parser needs to find the end of the body. None if that is ambiguous."""
    coding = head.headers.get("transfer-encoding")
    if coding is not None and (coding.lower() != "chunked" or "content-length" in head.headers):
        # The first parser has not checked these, and a proxy in front of us may have read them differently.
        return None
    length = f"content-length: {head.declared_bytes}" if coding is None else "transfer-encoding: chunked"
    keep = "keep-alive" if is_kept else "close"
    return f"POST / HTTP/{version}\r\nconnection: {keep}\r\n{length}\r\n\r\n".encode()
