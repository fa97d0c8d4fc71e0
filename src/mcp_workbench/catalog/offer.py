"""What one server offers, as it last said so."""

from __future__ import annotations

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.protocol.handshake import ServerProfile


class Offer(Struct, frozen=True):
    """A server's lists. Definitions are the bytes that the server wrote, by name, in its order."""

    profile: ServerProfile
    tools: dict[str, Raw] = field(default_factory=dict)
    # Entries that had no usable name, or one that was taken already.
    dropped: int = 0


class _Named(Struct, gc=False):
    name: str


_decode_name = Decoder(_Named).decode


def by_name(definitions: list[Raw]) -> tuple[dict[str, Raw], int]:
    """Definitions by their `name`; the first of two with the same name stays. Also how many were dropped."""
    named: dict[str, Raw] = {}
    dropped = 0
    for definition in definitions:
        try:
            name = _decode_name(definition).name
        except (DecodeError, ValidationError):
            dropped += 1
            continue
        if not name or name in named:
            dropped += 1
            continue
        # A Raw is a view into the whole page it came in; a copy lets the page go.
        named[name] = Raw(bytes(definition))
    return named, dropped
