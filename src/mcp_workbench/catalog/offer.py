"""What one server offers, as it last said so."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.config.problems import quote
from mcp_workbench.config.reading import has_control
from mcp_workbench.protocol.handshake import ServerProfile

# The four lists of MCP, and the member that identifies an entry in each.
KINDS: Final[tuple[str, ...]] = ("tools", "prompts", "resources", "resourceTemplates")
IDENTITY: Final = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
SINGULAR: Final = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "resource template",
}
# A server with ten thousand bad names is described well enough by some of them.
MOST_TOLD: Final = 20

Definitions = dict[str, Raw]


class Offer(Struct, frozen=True):
    """A server's lists. Definitions are the bytes that the server wrote, by identity, in its order."""

    profile: ServerProfile
    lists: dict[str, Definitions] = field(default_factory=dict)
    # Entries that had no usable identity, or one that was taken already.
    dropped: int = 0
    # How long each list holds by the server's word, in milliseconds, for those lists of which it said so.
    ttls: dict[str, int] = field(default_factory=dict)
    # Of those that were dropped, and whose name can be told: what and why, for people. At most `MOST_TOLD`.
    left_out: tuple[str, ...] = ()

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


def by_identity(kind: str, definitions: list[Raw], left_out: list[str] | None = None) -> tuple[Definitions, int]:
    """Definitions by what identifies them; the first of two stays. Also how many were dropped.

    Names go into errors, logs, terminals and other programs' files, so one with a control character never passes. What
    is left out for a reason that its author should know is added to `left_out`.
    """
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
        if has_control(identity):
            dropped += 1
            if left_out is not None and len(left_out) < MOST_TOLD:
                left_out.append(f"{SINGULAR[kind]} {quote(identity)} is left out: a control character in its name")
            continue
        # A Raw is a view into the whole page it came in; a copy lets the page go.
        found[identity] = Raw(bytes(definition))
    return found, dropped
