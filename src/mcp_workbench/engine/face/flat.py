"""The face `flat`: every tool of every server in one list, as `{server}{separator}{tool}`.

With toolboxes, `{toolbox}{separator}{server}{separator}{tool}`. Names are looked up, never parsed, so names that
contain the separator are routed correctly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.filters import is_shown
from mcp_workbench.engine.catalog.names import (
    NameTable,
    Target,
    accepted,
    accepted_characters,
    describe_collision,
    is_accepted_by_clients,
)
from mcp_workbench.engine.economy.instructions import MAX_INSTRUCTIONS_BYTES
from mcp_workbench.engine.economy.prose import ELLIPSIS, clip, cut, one_line
from mcp_workbench.engine.face.base import Face, FaceSettings, Params, available
from mcp_workbench.engine.face.decisions import Decision, Forward, Reject, learn, withheld
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.opening import Failures
from mcp_workbench.engine.face.paths import named
from mcp_workbench.engine.face.pins import ALWAYS_LOAD
from mcp_workbench.engine.face.proxy import call_body
from mcp_workbench.engine.face.renamed import renamed, with_members
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.face.wording import REVIEW, no_such
from mcp_workbench.engine.jsonrpc.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    decode_object,
    decode_string,
    encode,
)
from mcp_workbench.engine.protocol.constants import TOOLS_CALL

MAX_NAME_EXAMPLES: Final = 3
# The share of the space for the names of servers and why some are unavailable, while these can be shortened.
_SHARE_OF_NAMES: Final = 0.75
# A shorter excerpt of a server's instructions is useless.
_MIN_EXCERPT_LENGTH: Final = 160
# The maximum length of a reason or of a toolbox's description, tried in this order.
_REASON_LENGTHS: Final = (160, 60, 0)
SEARCH_HINT: Final = "anthropic/searchHint"
# Claude Code truncates hints before matching them; a sentence fits.
_MAX_HINT_LENGTH: Final = 120


class FlatFace(Face):
    name = "flat"
    lists_everything = True

    def __init__(self, catalog: Catalog, settings: FaceSettings) -> None:
        super().__init__(catalog, settings)
        # None of it changes while clients are connected.
        self._separator = settings.separator
        self._prefix = settings.prefix
        self._longest = settings.longest_name
        self._everyone = View("")
        # With the revision of the catalogue it was built from.
        self._tool_table: tuple[int, NameTable | None] = (-1, None)

    def entries(self, view: View) -> list[ServerEntry]:
        return available(self.catalog.entries())

    def needed_first(self) -> Iterable[ServerEntry]:
        """The list and the instructions include every server."""
        return self.catalog.entries()

    def exposed(self, entry: ServerEntry, name: str) -> str:
        """Prefixed with the server, and the toolbox if there are toolboxes."""
        return self._accepted(self._prefix_of(entry) + name)

    def _prefix_of(self, entry: ServerEntry) -> str:
        parts = [entry.name] if self.settings.plain else [entry.toolbox, entry.name]
        return "".join(part + self._separator for part in parts)

    def _accepted(self, name: str) -> str:
        return accepted(name, self._longest) if self._longest else name

    def tools(self, view: View) -> Sequence[bytes]:
        """Every tool under its exposed name."""
        # The same for every client, because nothing is opened in this face.
        return self.keep("tools", self._everyone, self._shown_tools)

    def _shown_tools(self) -> list[bytes]:
        shown = {
            # A server that failed for good keeps its names, so that no other tool gets them meanwhile.
            exposed: target
            for exposed, target in self.tool_table().targets.items()
            if target.entry.failure is None
        }
        if self.settings.marks:
            marks = Marks(self.catalog, self.settings)
            return [marks.marked(renamed(target.definition, exposed), target) for exposed, target in shown.items()]
        return [renamed(target.definition, exposed) for exposed, target in shown.items()]

    def definition_of(self, tool: str) -> Raw | None:
        target = self.tool_table().targets.get(tool)
        return None if target is None else target.definition

    def tool_table(self) -> NameTable:
        """The exposed names of all tools, including those of failed servers, which a call may start again."""
        revision, table = self._tool_table
        if table is None or revision != self.catalog.revision:
            table = self._build_tool_table()
            self._tool_table = (self.catalog.revision, table)
        return table

    def _build_tool_table(self) -> NameTable:
        known = [entry for entry in self.catalog.entries() if entry.offer is not None]
        table = self._table("tools", known, _own_name)
        self._report_names(table)
        return table

    def _build_prompt_table(self, entries: Sequence[ServerEntry]) -> NameTable:
        return self._table("prompts", entries, lambda entry, name: name)

    def _table(
        self, kind: str, entries: Sequence[ServerEntry], own_name: Callable[[ServerEntry, str], str]
    ) -> NameTable:
        """Names with their prefix. With `prefix: false`, only names that several servers use are prefixed. A name that
        was assigned stays, whatever is added or removed."""
        uses: Counter[str] = Counter()
        if not self._prefix:
            # Counted before any name is given: which of two servers is listed first must not decide.
            uses.update(own_name(entry, name) for entry in entries for name in entry.definitions(kind))
        holders = self.holders(kind)

        def is_held(exposed: str, entry: ServerEntry, name: str) -> bool:
            holder = holders.get(exposed)
            return holder is not None and holder.entry is entry and holder.name == name

        # Also of those that are not listed yet: their names are kept for them.
        prefixes = {entry: self._prefix_of(entry) for entry in self.catalog.entries()}

        def expose(entry: ServerEntry, name: str) -> str:
            own = self._accepted(own_name(entry, name))
            prefixed = self._accepted(prefixes[entry] + own_name(entry, name))
            if self._prefix or is_held(prefixed, entry, name):
                return prefixed
            return own if is_held(own, entry, name) or (uses[own] == 1 and own not in holders) else prefixed

        return self.table(kind, entries, expose)

    def collision_remedy(self, kind: str) -> str:
        return "Use `rename`, or another separator" if kind == "tools" else "Use another separator"

    def settle_names(self, entries: Iterable[ServerEntry]) -> None:
        self.tool_table()
        self._prompt_table(self._everyone)

    def _report_names(self, table: NameTable) -> None:
        remark = self._about_names(table)
        if remark is not None:
            self.report(remark, "names that clients refuse")

    def remarks(self) -> list[str]:
        """Also reports names that two tools share or that clients refuse, and addresses that two servers list."""
        table = self.tool_table()
        about_names = self._about_names(table)
        collisions = [
            describe_collision(exposed, rivals, self.collision_remedy("tools"))
            for exposed, rivals in table.collisions.items()
        ]
        return [*collisions, *([] if about_names is None else [about_names]), *super().remarks()]

    def _about_names(self, table: NameTable) -> str | None:
        refused = self.names_clients_refuse(table)
        if not refused:
            return None
        shown = ", ".join(f"`{name}`" for name in refused[:MAX_NAME_EXAMPLES])
        more = "" if len(refused) <= MAX_NAME_EXAMPLES else f" and {len(refused) - MAX_NAME_EXAMPLES} more"
        return (
            f"some clients refuse tool names like {shown}{more} (they allow only letters, digits, `_` and `-`, "
            f"at most 64 characters); {self._remedy(refused)}"
        )

    def names_clients_refuse(self, table: NameTable | None = None) -> list[str]:
        """Exposed names that the strictest clients do not accept."""
        targets = (table or self.tool_table()).targets
        return [name for name in targets if not is_accepted_by_clients(name)]

    def _remedy(self, refused: list[str]) -> str:
        if not is_accepted_by_clients(self._separator):
            mended = [name.replace(self._separator, "__") for name in refused]
            if all(map(is_accepted_by_clients, mended)):
                return 'put `"separator": "__"` into the configuration, or use `--separator __`'
        return 'give them shorter or plainer names with `"rename": {"<tool>": "<name>"}` in the server\'s configuration'

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        """Look the name up. For a name that cannot be one of ours, the error shows the expected form."""
        try:
            name = decode_string(params["name"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`name` must be a string")
        # As `tool_table` does it, because every call needs it.
        revision, kept = self._tool_table
        table = self.tool_table() if kept is None or revision != self.catalog.revision else kept
        target = table.targets.get(name)
        if target is not None:
            body = call_body(target.name, params.get("arguments"), params)
            return Forward(target.entry, target.name, TOOLS_CALL, body)
        if name in table.collisions:
            text = describe_collision(name, table.collisions[name], self.collision_remedy("tools"))
            return Reject(METHOD_NOT_FOUND, text)
        asked = [] if fresh else self._may_have(name)
        if asked:
            return learn({entry: self._original_name(entry, name) for entry in asked})
        if (owner := self._bare_owner(name)) is not None:
            if isinstance(owner, Reject):
                return owner
            return Forward(owner, name, TOOLS_CALL, call_body(name, params.get("arguments"), params))
        if (refused := self._withheld(name)) is not None:
            return refused
        if (passed := self._unlisted(name, params)) is not None:
            return passed
        # Without prefixes any name could be one of ours.
        if self._prefix and self._is_malformed(name):
            return Reject(INVALID_REQUEST, f"tool name `{name[:200]}` is malformed; expected `{self._form}`")
        return Reject(METHOD_NOT_FOUND, no_such("tool", name, table.targets))

    def _bare_owner(self, name: str) -> ServerEntry | Reject | None:
        """The only server with a tool that it calls by this name: apps know their tools by no other."""
        # Nearly every name is in the table.
        from mcp_workbench.engine.face.app_tools import bare_owner, withheld_owner

        if self._prefix and (refused := withheld_owner(self.catalog.entries(), name, self.exposed)) is not None:
            return refused
        targets = self.tool_table().targets
        shown = {target.entry: exposed for exposed, target in targets.items() if target.name == name}
        # A name without the separator is malformed, unless it can only mean one tool.
        code = INVALID_REQUEST if self._prefix and self._is_malformed(name) else INVALID_PARAMS
        return bare_owner(shown, name, shown, code)

    def _unlisted(self, name: str, params: Params) -> Forward | None:
        """Pass a tool that the only server does not list on to it, as unknown methods: only the server knows."""
        sole = self._unprefixed_sole()
        if sole is None or not self._fits(sole, name):
            return None
        own = self._original_name(sole, name)
        # A listed one has another name here.
        if own in sole.tools or not is_shown(own, sole.config.tool_filters):
            return None
        return Forward(sole, own, TOOLS_CALL, call_body(own, params.get("arguments"), params))

    def unlisted_prompt(self, name: str) -> ServerEntry | None:
        sole = self._unprefixed_sole()
        # A listed one has another name here.
        is_known = sole is not None and (
            name in sole.definitions("prompts") or name in sole.withheld.get("prompts", ())
        )
        return None if is_known else sole

    def asked_in_any_case(self) -> list[ServerEntry]:
        sole = self._unprefixed_sole()
        return [] if sole is None else [sole]

    def _unprefixed_sole(self) -> ServerEntry | None:
        """The only server, if names are its own. With prefixes they are ours, and we know them all; where some are
        hidden from a caller, its answer would tell which exist."""
        sole = None if self._prefix else self.sole_entry()
        return sole if type(sole) is ServerEntry else None

    def _withheld(self, name: str) -> Reject | None:
        """The error for an existing tool that must not be used."""
        for entry in self.catalog.entries():
            tool = name.removeprefix(self._prefix_of(entry))
            if tool in entry.withheld.get("tools", ()) and (tool != name or not self._prefix):
                text = f"tool `{name[:200]}` is withheld: {entry.why_withheld(tool)}; {REVIEW}"
                return Reject(METHOD_NOT_FOUND, text, refusal=withheld(entry, tool))
        return None

    def _may_have(self, name: str) -> list[ServerEntry]:
        """Servers whose prefix matches, the longest prefix first: their cached tools may be out of date."""
        fitting = [entry for entry in self.catalog.entries() if self._fits(entry, name)]
        return sorted(fitting, key=lambda entry: -len(self._prefix_of(entry)))

    def _original_name(self, entry: ServerEntry, name: str) -> str:
        """What a server would call the tool with this exposed name."""
        return entry.config.original_name(name.removeprefix(self._exposed_prefix(entry)))

    def _exposed_prefix(self, entry: ServerEntry) -> str:
        """If names are adapted for clients, so is the prefix."""
        prefix = self._prefix_of(entry)
        return accepted_characters(prefix) if self._longest else prefix

    def _fits(self, entry: ServerEntry, name: str) -> bool:
        prefix = self._exposed_prefix(entry)
        if name.removeprefix(prefix) in entry.hidden:
            # The tool exists but is not to be shown.
            return False
        return not self._prefix or (name.startswith(prefix) and len(name) > len(prefix))

    @property
    def _form(self) -> str:
        parts = ["{server}", "{tool}"] if self.settings.plain else ["{toolbox}", "{server}", "{tool}"]
        return self._separator.join(parts)

    def _is_malformed(self, name: str) -> bool:
        position = name.find(self._separator)
        return position <= 0 or position == len(name) - len(self._separator)

    def opened(self, view: View, request: OpenRequest, failures: Failures) -> bytes:
        raise AssertionError("nothing is opened in the flat face")

    def instructions(self, view: View) -> str:
        """Which servers there are, and which are unavailable."""
        named = f"named `{self._form}`" if self._prefix else f"with `{self._form}` where two have the same name"
        known = {id(entry): entry.instructions for entry in self.entries(view)}
        servers = []
        # Shown once, with the first server of each toolbox.
        about = {} if self.settings.plain else {each.name: each.description for each in self.catalog.described.values()}
        for entry in self.catalog.entries():
            trouble = entry.trouble_for_all
            said = known.get(id(entry))
            servers.append(Introduced(self._place(entry), trouble, said, about.pop(entry.toolbox, "")))
        head = f"Tools of several servers in one list, {named}. Servers:"
        return self.within_room(view, lambda most: flat_instructions(head, servers, most=most))

    def _place(self, entry: ServerEntry) -> str:
        return entry.name if self.settings.plain else f"{entry.toolbox}/{entry.name}"


def _own_name(entry: ServerEntry, name: str) -> str:
    return entry.config.rename.get(name, name)


def make(catalog: Catalog, settings: FaceSettings) -> Face:
    """The factory for the table in `engine/faces.py`."""
    return FlatFace(catalog, settings)


class Introduced(Struct, frozen=True):
    place: str
    # Why it is unavailable.
    trouble: str | None = None
    instructions: str | None = None
    # The description of its toolbox, for the first server of each: some models see nothing else before they search.
    about: str = ""


def flat_instructions(head: str, servers: Sequence[Introduced], *, most: int = MAX_INSTRUCTIONS_BYTES) -> str:
    """The instructions, in at most `most` bytes.

    Clients truncate, which could drop whole servers at the end. So every server is named first, and the remaining space
    is divided among their own instructions.
    """
    named = _named(head, servers, most)
    return named + _said(servers, most - len(named.encode()))


def _named(head: str, servers: Sequence[Introduced], most: int) -> str:
    for longest in _REASON_LENGTHS:
        text = "\n".join(
            [head, *(f"- {each.place}{_about(each, longest)}{_trouble(each, longest)}" for each in servers)]
        )
        if len(text.encode()) <= most * _SHARE_OF_NAMES:
            return text
    for shown in range(len(servers), 0, -1):
        more = f", {ELLIPSIS} {len(servers) - shown} more" if shown < len(servers) else ""
        text = f"{head} {', '.join(each.place for each in servers[:shown])}{more}"
        if len(text.encode()) <= most:
            return text
    return cut(f"{head} {len(servers)} of them", most)


def _about(server: Introduced, longest: int) -> str:
    about = clip(one_line(server.about[:1000]), longest) if longest else ""
    return f": {about}" if about else ""


def _trouble(server: Introduced, longest: int) -> str:
    if server.trouble is None:
        return ""
    return f" (not available: {clip(one_line(server.trouble[:1000]), longest)})" if longest else " (not available)"


def _said(servers: Sequence[Introduced], room: int) -> str:
    """The servers' own instructions. If they do not all fit, long ones are truncated to the same length."""
    saying = [(f"\n\nFrom {each.place}:\n", each.instructions) for each in servers if each.instructions]
    saying = saying[: room // _MIN_EXCERPT_LENGTH]
    texts = [""] * len(saying)
    shortest_first = sorted(range(len(saying)), key=lambda at: len(saying[at][1]))
    for done, at in enumerate(shortest_first):
        heading, text = saying[at]
        share = room // (len(saying) - done) - len(heading.encode())
        said = _within(text, share)
        if said:
            texts[at] = heading + said
            room -= len(texts[at].encode())
    return "".join(texts)


def _within(text: str, most: int) -> str:
    text = text[: most + 1]
    if len(text.encode()) <= most:
        return text
    return cut(text, most - len(ELLIPSIS.encode())).rstrip() + ELLIPSIS if most > len(ELLIPSIS.encode()) else ""


class Marks:
    """The marks of each tool. Pinned tools are always loaded; others are found by the description of their toolbox."""

    def __init__(self, catalog: Catalog, settings: FaceSettings) -> None:
        self._marks = settings.marks
        self._pinned = {place for path in settings.pin for place in named(catalog, path)}
        self._hints = {
            name: clip(one_line(each.description), _MAX_HINT_LENGTH) for name, each in catalog.described.items()
        }

    def marked(self, definition: bytes, target: Target) -> bytes:
        """Add the marks to a definition. The server's own `_meta` is kept and comes first."""
        added: dict[str, object] = {}
        if (target.entry, target.name) in self._pinned:
            if ALWAYS_LOAD in self._marks:
                added[ALWAYS_LOAD] = True
        elif SEARCH_HINT in self._marks and self._hints.get(target.entry.toolbox):
            added[SEARCH_HINT] = self._hints[target.entry.toolbox]
        if not added:
            return definition
        try:
            own = decode_object(decode_object(definition)["_meta"])
        except (KeyError, DecodeError, ValidationError):
            own = {}
        return with_members(definition, {"_meta": encode({**{k: Raw(encode(v)) for k, v in added.items()}, **own})})
