"""What one server offers, according to its latest lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.config.problems import quote
from mcp_workbench.engine.config.reading import has_control
from mcp_workbench.engine.jsonrpc.messages import decode_object
from mcp_workbench.engine.protocol.handshake import ServerProfile

# The four lists of MCP, and the one of an extension.
KINDS: Final[tuple[str, ...]] = ("tools", "prompts", "resources", "resourceTemplates", "skills")
SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
# The capability for each of them. Nothing announces a change of skills but that of resources, which they consist of.
CAPABILITY: Final = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resourceTemplates": "resources",
    "skills": "resources",
}
SINGULAR: Final = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "resource template",
    "skills": "skill",
}
# What else a server says to agents: one text, which a lock covers like a definition of this name.
INSTRUCTIONS: Final = "instructions"
# A few examples are enough to describe a server with ten thousand invalid names.
MAX_NAMED_OMISSIONS: Final = 20

Definitions = dict[str, Raw]
# How many omitted definitions are named, and how much of each name: such a server may be hostile.
MAX_OVERSIZED_ITEMS: Final = 100
MAX_IDENTITY_LENGTH: Final = 200
MAX_NAMED_ITEMS: Final = 5
# Of what the lock withholds, in one sentence to agents and people.
MAX_NAMED_WITHHELD_ITEMS: Final = 20
# In bytes, for all definitions.
LARGE_OFFER: Final = 1 << 20


class Offer(Struct, frozen=True):
    """A server's lists. Definitions are the server's own bytes, by name or address, in its order."""

    profile: ServerProfile
    lists: dict[str, Definitions] = field(default_factory=dict)
    # How many items had no usable name, or a duplicate one.
    dropped: int = 0
    # How long each list may be cached, in milliseconds, where the server said so.
    ttls: dict[str, int] = field(default_factory=dict)
    # Dropped items and the reasons, for people. At most `MAX_NAMED_OMISSIONS`.
    left_out: tuple[str, ...] = ()
    # The items of each list that were too large, with their sizes.
    oversized: dict[str, dict[str, int]] = field(default_factory=dict)
    # For a server at an address: `http`, or `sse` for the older transport.
    transport: str | None = None

    @property
    def is_large(self) -> bool:
        """Whether it is so large that writing it to disk on the event loop would delay other requests."""
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


def offered_kinds(capabilities: Raw | bytes) -> list[str]:
    """The lists of a server that declares these capabilities."""
    declared = decode_object(capabilities)
    try:
        extensions = decode_object(declared.get("extensions", b"{}"))
    except (DecodeError, ValidationError):
        extensions = {}
    return [
        kind for kind in KINDS if CAPABILITY[kind] in declared and (kind != "skills" or SKILLS_EXTENSION in extensions)
    ]


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
    if kind in ("resources", "skills"):
        return _decode_uri(definition).uri
    if kind == "resourceTemplates":
        return _decode_template(definition).uriTemplate
    return _decode_name(definition).name


class Collected:
    """Definitions by name or address, in order. Of two with the same one, the first is kept.

    Names appear in errors, logs, terminals and other programs' files, so those with control characters are rejected.
    """

    def __init__(self, kind: str, largest: int | None = None) -> None:
        self.kind = kind
        self.definitions: Definitions = {}
        self.dropped = 0
        # Definitions larger than `largest`, with their sizes.
        self.oversized: dict[str, int] = {}
        # Omitted definitions and the reasons, for the server's author.
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
                if len(self.left_out) < MAX_NAMED_OMISSIONS:
                    name = f"{SINGULAR[self.kind]} {quote(identity)}"
                    self.left_out.append(f"{name} is left out: a control character in its name")
                continue
            # A `Raw` is a view into its page; copying it lets the page be freed.
            size = memoryview(definition).nbytes
            if self._largest is not None and size > self._largest:
                if len(self.oversized) < MAX_OVERSIZED_ITEMS:
                    self.oversized[identity[:MAX_IDENTITY_LENGTH]] = size
                continue
            self.definitions[identity] = Raw(bytes(definition))
            self.bytes += size


def by_identity(kind: str, definitions: list[Raw], left_out: list[str] | None = None) -> tuple[Definitions, int]:
    """Definitions by name or address, and how many were dropped. Reasons worth reporting are added to `left_out`."""
    collected = Collected(kind)
    collected.add(definitions)
    if left_out is not None:
        left_out += collected.left_out
    return collected.definitions, collected.dropped


def about_oversized(kind: str, sizes: dict[str, int]) -> str:
    """The message about definitions that were too large."""
    named = ", ".join(f"{quote(name[:80])} ({size:,} bytes)" for name, size in list(sizes.items())[:MAX_NAMED_ITEMS])
    more = f" and {len(sizes) - MAX_NAMED_ITEMS} more" if len(sizes) > MAX_NAMED_ITEMS else ""
    return f"{kind} are left out because their definitions are larger than `maxDefinitionBytes`: {named}{more}"
