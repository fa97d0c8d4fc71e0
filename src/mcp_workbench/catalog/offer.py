"""What one server offers, as it last said so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.config.problems import quote
from mcp_workbench.config.reading import has_control
from mcp_workbench.protocol.handshake import ServerProfile

# The four lists of MCP.
KINDS: Final[tuple[str, ...]] = ("tools", "prompts", "resources", "resourceTemplates")
# The capability that announces each of them.
CAPABILITY: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resourceTemplates": "resources"}
SINGULAR: Final = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "resource template",
}
# A server with ten thousand bad names is described well enough by some of them.
MOST_LEFT_OUT: Final = 20

Definitions = dict[str, Raw]
# So many that were left out are named, and so much of each name: they come from a server that means no good.
MOST_OVERSIZED: Final = 100
LONGEST_IDENTITY: Final = 200
MOST_NAMED: Final = 5
# Bytes of all definitions.
LARGE_OFFER: Final = 1 << 20


class Offer(Struct, frozen=True):
    """A server's lists. Definitions are the bytes that the server wrote, by identity, in its order."""

    profile: ServerProfile
    lists: dict[str, Definitions] = field(default_factory=dict)
    # Entries that had no usable identity, or one that was taken already.
    dropped: int = 0
    # How long each list holds by the server's word, in milliseconds, for those lists of which it said so.
    ttls: dict[str, int] = field(default_factory=dict)
    # Of those that were dropped, and whose name can be told: what and why, for people. At most `MOST_LEFT_OUT`.
    left_out: tuple[str, ...] = ()
    # What was left out of each list for its size, with that size.
    oversized: dict[str, dict[str, int]] = field(default_factory=dict)
    # Of a server at an address: `http`, or `sse` for the older transport.
    transport: str | None = None

    @property
    def is_large(self) -> bool:
        """Whether there is so much of it that others would notice when it is written to the disk."""
        total = 0
        for definitions in self.lists.values():
            for definition in definitions.values():
                total += memoryview(definition).nbytes
                if total > LARGE_OFFER:
                    return True
        return False

    @property
    def tools(self) -> Definitions:
        return self.lists.get("tools", {})


class _NamedItem(Struct, gc=False):
    name: str


class _Resource(Struct, gc=False):
    uri: str


class _Template(Struct, gc=False):
    uriTemplate: str


_decode_name = Decoder(_NamedItem).decode
_decode_uri = Decoder(_Resource).decode
_decode_template = Decoder(_Template).decode


def _identity(kind: str, definition: Raw) -> str:
    if kind == "resources":
        return _decode_uri(definition).uri
    if kind == "resourceTemplates":
        return _decode_template(definition).uriTemplate
    return _decode_name(definition).name


class Collected:
    """Definitions by what identifies them, in the order they come. Of two with one identity the first stays.

    Names go into errors, logs, terminals and other programs' files, so one with a control character never passes.
    """

    def __init__(self, kind: str, largest: int | None = None) -> None:
        self.kind = kind
        self.definitions: Definitions = {}
        self.dropped = 0
        # Those that are larger than `largest`, with their sizes.
        self.oversized: dict[str, int] = {}
        # What is left out for a reason that its author should know, for people.
        self.left_out: list[str] = []
        self.bytes = 0
        self._largest = largest

    def add(self, definitions: Iterable[Raw]) -> None:
        for definition in definitions:
            try:
                identity = _identity(self.kind, definition)
            except (DecodeError, ValidationError):
                self.dropped += 1
                continue
            if not identity or identity in self.definitions:
                self.dropped += 1
                continue
            if has_control(identity):
                self.dropped += 1
                if len(self.left_out) < MOST_LEFT_OUT:
                    name = f"{SINGULAR[self.kind]} {quote(identity)}"
                    self.left_out.append(f"{name} is left out: a control character in its name")
                continue
            # A Raw is a view into the whole page it came in; a copy lets the page go.
            size = memoryview(definition).nbytes
            if self._largest is not None and size > self._largest:
                if len(self.oversized) < MOST_OVERSIZED:
                    self.oversized[identity[:LONGEST_IDENTITY]] = size
                continue
            self.definitions[identity] = Raw(bytes(definition))
            self.bytes += size


def by_identity(kind: str, definitions: list[Raw], left_out: list[str] | None = None) -> tuple[Definitions, int]:
    """Definitions by what identifies them, all at once. Also how many were dropped; those that are worth a word of it
    are added to `left_out`."""
    collected = Collected(kind)
    collected.add(definitions)
    if left_out is not None:
        left_out += collected.left_out
    return collected.definitions, collected.dropped


def about_oversized(kind: str, sizes: dict[str, int]) -> str:
    """What to say of definitions that were left out."""
    named = ", ".join(f"{quote(name[:80])} ({size:,} bytes)" for name, size in list(sizes.items())[:MOST_NAMED])
    more = f" and {len(sizes) - MOST_NAMED} more" if len(sizes) > MOST_NAMED else ""
    return f"{kind} are left out because their definitions are larger than `maxDefinitionBytes`: {named}{more}"
