"""What one server offers, as it last said so."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.protocol.handshake import ServerProfile

# The four lists of MCP, and the member that identifies an entry in each.
KINDS: Final[tuple[str, ...]] = ("tools", "prompts", "resources", "resourceTemplates")
IDENTITY: Final = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}

Definitions = dict[str, Raw]


class Offer(Struct, frozen=True):
    """A server's lists. Definitions are the bytes that the server wrote, by identity, in its order."""

    profile: ServerProfile
    lists: dict[str, Definitions] = field(default_factory=dict)
    # Entries that had no usable identity, or one that was taken already.
    dropped: int = 0
    # How long each list holds by the server's word, in milliseconds, for those lists of which it said so.
    ttls: dict[str, int] = field(default_factory=dict)

    @property
    def tools(self) -> Definitions:
        """The tools."""
        return self.lists.get("tools", {})


class _Named(Struct, gc=False):
    name: str


class _Resource(Struct, gc=False):
    uri: str


class _Template(Struct, gc=False):
    uriTemplate: str


_decode_name = Decoder(_Named).decode
_decode_uri = Decoder(_Resource).decode
_decode_template = Decoder(_Template).decode


def _identity(kind: str, definition: Raw) -> str:
    if kind == "resources":
        return _decode_uri(definition).uri
    if kind == "resourceTemplates":
        return _decode_template(definition).uriTemplate
    return _decode_name(definition).name


def by_identity(kind: str, definitions: list[Raw]) -> tuple[Definitions, int]:
    """Definitions by what identifies them; the first of two stays. Also how many were dropped."""
    found: Definitions = {}
    dropped = 0
    for definition in definitions:
        try:
            identity = _identity(kind, definition)
        except (DecodeError, ValidationError):
            dropped += 1
            continue
        if not identity or identity in found:
            dropped += 1
            continue
        # A Raw is a view into the whole page it came in; a copy lets the page go.
        found[identity] = Raw(bytes(definition))
    return found, dropped
