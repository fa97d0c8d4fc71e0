"""The head of an HTTP request: the headers that we look at, read in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_workbench.transport.http import vocabulary as words

_PARAMETER_PREFIX: Final = words.PARAMETER_PREFIX.encode()
_WANTED: Final = {
    name.encode(): name
    for name in (
        *("host", "origin", "authorization", "content-type", "content-length", "transfer-encoding", "accept"),
        *("access-control-request-method", words.SESSION_ID, words.LAST_EVENT_ID),
        *(words.PROTOCOL_VERSION, words.METHOD, words.NAME),
    )
}
# Two readers of a repeated header may take different copies of it, so what we decide by must be there once.
_SINGLE: Final = frozenset(
    ("host", "origin", "authorization", words.PROTOCOL_VERSION, words.METHOD, words.NAME, words.SESSION_ID)
)


class Arrival:
    """A request that has arrived, before its body."""

    __slots__ = ("headers", "method", "parameters", "path", "repeated")

    def __init__(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.method = method
        self.path = path
        self.headers: dict[str, str] = {}
        # `mcp-param-…` with every value given.
        self.parameters: dict[str, list[str]] = {}
        self.repeated: str | None = None
        for raw_name, raw_value in headers:
            name = _WANTED.get(raw_name)
            if name is not None:
                value = raw_value.decode("latin-1").strip(" \t")
                if name not in self.headers:
                    self.headers[name] = value
                elif name == "accept":
                    self.headers[name] += f", {value}"
                elif name in _SINGLE:
                    self.repeated = name
            elif raw_name.startswith(_PARAMETER_PREFIX):
                value = raw_value.decode("latin-1").strip(" \t")
                self.parameters.setdefault(raw_name.decode("latin-1"), []).append(value)

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> Arrival:
        """The head of an ASGI request."""
        return cls(scope["method"], scope["path"], scope["headers"])

    def get(self, name: str) -> str | None:
        """A header that we look at."""
        return self.headers.get(name)

    @property
    def declared_bytes(self) -> int | None:
        """The size of the body; None when it comes in chunks, or says something that is no size."""
        declared = self.headers.get("content-length")
        if declared is None:
            return None if "transfer-encoding" in self.headers else 0
        return int(declared) if declared.isdecimal() and len(declared) < 20 else None

    def accepts(self, content_type: str) -> bool:
        """Whether the client takes this type. Without the header it takes anything (RFC 9110, 12.5.1)."""
        accept = self.headers.get("accept")
        if accept is None:
            return True
        kind = content_type.partition("/")[0] + "/*"
        for item in accept.lower().split(","):
            name, _, options = item.partition(";")
            if name.strip() in (content_type, kind, "*/*") and "q=0" not in options.replace(" ", "").split(";"):
                return True
        return False

    @property
    def is_json(self) -> bool:
        """Whether the body says that it is JSON."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == words.JSON
