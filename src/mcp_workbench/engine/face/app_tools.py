"""Tools with a user interface (the extension `io.modelcontextprotocol/ui`, MCP Apps), for faces that do not list tools.

A host finds the interface of a tool in the definition of the tool that it calls, so behind `use_tool` it would find
none: these tools are listed by themselves, for clients that declare the extension. Owns their exposed names, and which
server an app means by a bare name: an app knows its tools only as its server calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.names import Target
from mcp_workbench.engine.face.decisions import Reject, withheld
from mcp_workbench.engine.face.pins import ExposedNames, exposed_names
from mcp_workbench.engine.face.renamed import renamed
from mcp_workbench.engine.face.wording import REVIEW
from mcp_workbench.engine.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND

UI_EXTENSION: Final = "io.modelcontextprotocol/ui"
_DECLARED: Final = f'"{UI_EXTENSION}"'.encode()
# How many of the tools with the same name an error lists.
MAX_CANDIDATES: Final = 20


class _AppMeta(Struct):
    ui: dict[str, Raw] = {}
    # The older form.
    resource: str = field(default="", name="ui/resourceUri")


class _Definition(Struct):
    meta: _AppMeta = field(default_factory=_AppMeta, name="_meta")


class _Capabilities(Struct):
    extensions: dict[str, Raw] = {}


_decode_definition: Final = Decoder(_Definition).decode
_decode_capabilities: Final = Decoder(_Capabilities).decode


def shows_apps(capabilities: bytes) -> bool:
    """Whether a client declares that it shows user interfaces of tools."""
    if _DECLARED not in capabilities:
        return False
    try:
        return UI_EXTENSION in _decode_capabilities(capabilities).extensions
    except (DecodeError, ValidationError):
        return False


def has_interface(definition: Raw) -> bool:
    if b'"ui' not in bytes(definition):
        return False
    try:
        meta = _decode_definition(definition).meta
    except (DecodeError, ValidationError):
        return False
    return "resourceUri" in meta.ui or bool(meta.resource)


def _has_interfaces(entry: ServerEntry) -> bool:
    """Whether any of its tools has one, withheld or not."""
    return entry.offer is not None and any(map(has_interface, entry.offer.tools.values()))


def bare_owner(
    entries: Iterable[ServerEntry], name: str, shown: dict[ServerEntry, str], code: int = INVALID_PARAMS
) -> ServerEntry | Reject | None:
    """The only server that has a tool of this name; None if there is none. `shown`: the exposed name of each server's
    tool, for the error if there are several; `code` is that of the error."""
    having = [entry for entry in entries if name in entry.tools]
    if len(having) == 1:
        return having[0]
    if not having:
        return None
    candidates = [shown[entry] for entry in having][:MAX_CANDIDATES]
    text = f"{len(having)} servers have a tool `{name[:200]}`: {', '.join(f'`{each}`' for each in candidates)}"
    return Reject(code, f"{text}; call one of these", {"candidates": candidates})


def withheld_owner(
    entries: Iterable[ServerEntry], name: str, shown: Callable[[ServerEntry, str], str]
) -> Reject | None:
    """The error if the tool of this name of one of these servers is withheld: an app of that server may mean it, and
    what it sends must not go to another one."""
    for entry in entries:
        if name in entry.withheld.get("tools", ()):
            text = f"tool `{shown(entry, name)}` is withheld: {entry.why_withheld(name)}; {REVIEW}"
            return Reject(METHOD_NOT_FOUND, text, refusal=withheld(entry, name))
    return None


class AppTools:
    """The tools with a user interface of a catalogue, by exposed name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: tuple[int, dict[str, Target]] = (-1, {})
        self._names = ExposedNames(())
        # Those that have such tools, or had.
        self._servers: set[ServerEntry] = set()

    def targets(self) -> dict[str, Target]:
        if self._kept[0] != self._catalog.revision:
            found: dict[str, Target] = {}
            self._names = exposed_names(self._catalog)
            for entry in self._catalog.entries():
                for name, definition in entry.tools.items() if entry.is_available else ():
                    if has_interface(definition):
                        found.setdefault(self._shown(entry, name), Target(entry, name, definition))
            self._kept = self._catalog.revision, found
            self._servers = {each for each in self._servers if each.ended is None}
            self._servers.update(target.entry for target in found.values())
        return self._kept[1]

    def _shown(self, entry: ServerEntry, tool: str) -> str:
        return self._names.of(entry.toolbox, entry.name, tool)

    def servers(self) -> list[ServerEntry]:
        return list(dict.fromkeys(target.entry for target in self.targets().values()))

    def concern(self, entry: ServerEntry) -> bool:
        """Whether a change of this server's tools may change the list."""
        self.targets()
        return entry in self._servers

    def definitions(self, without: Iterable[str]) -> list[bytes]:
        """The definitions; `without` those that are listed already."""
        listed = frozenset(without)
        return [renamed(target.definition, name) for name, target in self.targets().items() if name not in listed]

    def find(self, name: str) -> Target | Reject | None:
        """The tool of this exposed name, or the one that an app calls by its bare name: one of a server that has a tool
        with an interface."""
        found = self.targets().get(name)
        if found is not None:
            return found
        servers = self.servers()
        having = filter(_has_interfaces, self._catalog.entries())
        if (refused := withheld_owner(having, name, self._shown)) is not None:
            return refused
        owner = bare_owner(servers, name, {entry: self._shown(entry, name) for entry in servers})
        return Target(owner, name, owner.tools[name]) if isinstance(owner, ServerEntry) else owner
