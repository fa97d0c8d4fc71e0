"""The head of an HTTP request: the headers that we look at, its path, and where its body ends.

Refuses to know who may come in, and what is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, UnsetType

from mcp_workbench.transport.http import header_names as names
from mcp_workbench.transport.http import header_values
from mcp_workbench.transport.http.server.limits import SMALL_BODY

if TYPE_CHECKING:
    import asyncio

    from mcp_workbench.transport.http.server.admission import Refusal
    from mcp_workbench.transport.http.server.authentication import Authentication

PARAMETER_PREFIX: Final = names.PARAMETER_PREFIX.encode()
_WANTED: Final = (
    *("host", "origin", "authorization", "content-type", "content-length", "transfer-encoding", "accept", "expect"),
    *("access-control-request-method", names.SESSION_ID, names.LAST_EVENT_ID),
    *(names.PROTOCOL_VERSION, names.METHOD, names.NAME),
)
# In the spellings that clients use; any other is found in lower case.
NAMES: Final = {spelling.encode(): name for name in _WANTED for spelling in (name, name.title())}


def names_with(further: Iterable[str]) -> dict[bytes, str]:
    """The headers that are looked at, and these: what a proxy in front says of its users."""
    return NAMES | {spelling.encode(): name for name in further for spelling in (name, name.title())}


# Two readers of a repeated header may take different copies of it, so what we decide by must be there once.
_SINGLE: Final = frozenset(
    ("host", "origin", "authorization", names.PROTOCOL_VERSION, names.METHOD, names.NAME, names.SESSION_ID)
)


class RequestHead:
    """What the head of one request says, and what was decided on it."""

    __slots__ = (
        "_declared_bytes",
        "_named",
        "address",
        "forwarded",
        "headers",
        "is_of_stream",
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
    )

    def __init__(self, method: str = "", path: str = "", peer: str = "") -> None:
        self.method = method
        self.path = path
        # Whom it is held against: the address that it came from, its network where that is one of IPv6, `uid:…` on a
        # Unix socket; the very address, for whoever trusts it or writes it down; the names in the client's certificate,
        # if it has one.
        self.peer = peer
        self.address = peer
        self.peer_names: tuple[str, ...] = ()
        # The address behind a proxy that is trusted to tell it.
        self.forwarded = ""
        # Who is calling, where somebody else has to be asked.
        self.pending: asyncio.Future[Authentication] | None = None
        self.headers: dict[str, str] = {}
        # `mcp-param-…` in lower case, with every value given.
        self.parameters: dict[str, list[str]] = {}
        self.repeated: str | None = None
        # Who it is from, and why it does not come in; known when its head is.
        self.principal = ""
        self.refusal: Refusal | None = None
        # Has what it proved of its sender count once more, to be called when it is served; None where that is a name.
        self.recall: Callable[[], None] | None = None
        # Whether it is asked about for a stream that it has opened.
        self.is_of_stream = False
        # Whether anybody will look at its body. Only what came in is read for that.
        self.takes_body = False
        self._declared_bytes: int | None = -1
        self._named: str | UnsetType | None = UNSET

    def for_stream(self) -> RequestHead:
        """The same for who is asked about a stream: a head may be of other requests, too."""
        head = RequestHead(self.method, self.path, self.peer)
        head.address, head.peer_names, head.forwarded = self.address, self.peer_names, self.forwarded
        head.headers, head.principal, head.is_of_stream = self.headers, self.principal, True
        return head

    def add_again(self, name: str, value: bytes) -> None:
        if name == "accept":
            self.headers[name] += ", " + value.strip().decode("latin-1")
        elif name in _SINGLE or name not in _WANTED:
            # The first one counts: what comes later must not hide it.
            self.repeated = self.repeated or name

    def add_parameter(self, name: bytes, value: bytes) -> None:
        text = value.strip().decode("latin-1")
        self.parameters.setdefault(name.decode("latin-1").lower(), []).append(text)

    @property
    def origin(self) -> str:
        """Where it came from, as far as that is known: for logs and the audit."""
        return self.forwarded or self.address

    def get(self, name: str) -> str | None:
        return self.headers.get(name)

    @property
    def declared_bytes(self) -> int | None:
        """The size of the body; None when it comes in chunks. To be asked when the head is whole."""
        if self._declared_bytes == -1:
            declared = self.headers.get("content-length", "0")
            is_known = declared.isdecimal() and len(declared) < 20 and "transfer-encoding" not in self.headers
            self._declared_bytes = int(declared) if is_known else None
        return self._declared_bytes

    @property
    def is_plain(self) -> bool:
        """Whether nothing about its transfer is out of the ordinary."""
        return not self.expects_continue and "transfer-encoding" not in self.headers and self.repeated is None

    @property
    def named(self) -> str | None:
        """What `Mcp-Name` stands for; None where it is missing or its encoding is broken."""
        if self._named is UNSET:
            given = self.headers.get(names.NAME)
            self._named = None if given is None else header_values.decode(given)
        return self._named

    @property
    def is_large(self) -> bool:
        """Whether the body may be more than what is in the kernel's buffer already."""
        declared = self.declared_bytes
        return declared is None or declared > SMALL_BODY

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits with the body until it is told to go on."""
        return self.headers.get("expect", "").lower() == "100-continue"

    def accepts(self, content_type: str) -> bool:
        """Whether the client takes this type. Without the header it takes anything (RFC 9110, 12.5.1)."""
        accept = self.headers.get("accept")
        return accept is None or _accepts(accept, content_type)

    @property
    def is_json(self) -> bool:
        content_type = self.headers.get("content-type", "")
        return content_type == names.JSON or content_type.partition(";")[0].strip().lower() == names.JSON


# Clients send the same few lines each time.
@lru_cache(maxsize=64)
def _accepts(accept: str, content_type: str) -> bool:
    kind = content_type.partition("/")[0] + "/*"
    for item in accept.lower().split(","):
        name, _, options = item.partition(";")
        if name.strip() in (content_type, kind, "*/*") and "q=0" not in options.replace(" ", "").split(";"):
            return True
    return False


def path_of(url: bytes) -> str:
    """The path of a request's target. Percent signs stay: no path of ours has any."""
    target = url
    if not target.startswith(b"/"):
        # `http://host/path`, as proxies are asked.
        import httptools

        try:
            target = cast(bytes, cast(Any, httptools.parse_url(url)).path) or b"/"
        except httptools.HttpParserInvalidURLError:
            return ""
    return target.partition(b"?")[0].decode("latin-1")


def shown_again(head: RequestHead, version: str, is_kept: bool) -> bytes | None:
    """As much of a head as another parser has to see of it to know where the body ends. None where that may be read in
    two ways."""
    coding = head.headers.get("transfer-encoding")
    if coding is not None and (coding.lower() != "chunked" or "content-length" in head.headers):
        # The first parser has not looked at these; somebody before us may have read them in another way.
        return None
    length = f"content-length: {head.declared_bytes}" if coding is None else "transfer-encoding: chunked"
    keep = "keep-alive" if is_kept else "close"
    return f"POST / HTTP/{version}\r\nconnection: {keep}\r\n{length}\r\n\r\n".encode()
