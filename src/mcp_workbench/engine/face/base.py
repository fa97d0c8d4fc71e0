"""What all faces share: prompts, resources, templates and completions, and the cache of computed lists.

Faces differ in the tools they show, the names they use, and the part of the catalogue that is in view. Everything here
is synchronous and does no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.names import Holders, NameTable, Target, build, describe_collision
from mcp_workbench.engine.catalog.uris import claimants, shared_addresses
from mcp_workbench.engine.config.model import DEFAULT_SEPARATOR
from mcp_workbench.engine.economy.instructions import MAX_INSTRUCTIONS_BYTES
from mcp_workbench.engine.face.decisions import Answer, Decision, Forward, Reject
from mcp_workbench.engine.face.links import Links
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.renamed import renamed
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.face.wording import error_result, no_such, rivals_for_address, shared_text
from mcp_workbench.engine.jsonrpc.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    decode_object,
    decode_string,
    encode,
    open_object,
)
from mcp_workbench.engine.lasting_state import LOCAL_STATE, LastingState
from mcp_workbench.engine.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.held_names import Held
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.catalog.tool_index import ToolIndex
    from mcp_workbench.engine.face.client_behaviour import Behaviour, Recogniser
    from mcp_workbench.engine.face.kept_results import KeptResults, Shortening
    from mcp_workbench.engine.face.opening import Failures
    from mcp_workbench.engine.face.use import UseRecorder

log = logging.getLogger(__name__)

# Our own status. Requests for this address never go to a server, even if one lists it.
STATUS_URI: Final = "workbench://status"
# Internal: the router has the manifests read (`needed`) and asks again.
UNREAD: Final = "the cached manifests have not been read yet"
# The longest instructions in bytes, for clients that accept more than others: beyond this, nothing improves search.
MAX_ROOM_FOR_INSTRUCTIONS: Final = 4_096

Params = dict[str, Raw]
# In place of the definition of an item whose server is not listed yet.
NOT_LISTED: Final = Raw(b"{}")

# Then toolbox, server and the URI of a resource that several servers have.
RESOURCES_PREFIX: Final = "workbench://resources/"


class FaceSettings(Struct, frozen=True):
    """How things are shown, according to the command line or else the configuration."""

    # Separates the parts of a name.
    separator: str = DEFAULT_SEPARATOR
    # Whether unique names are prefixed with their server too.
    prefix: bool = True
    # Whether there is only one toolbox, which the user did not name.
    plain: bool = False
    # `toolbox/server/tool`
    pin: tuple[str, ...] = ()
    check_arguments: bool = True
    # Whether read-only tools are called with a different tool than the rest.
    splits_use_tool: bool = False
    # Whether agents may send programs.
    programs: bool = False
    # By client name, settings that override the table of clients.
    clients: dict[str, dict[str, object]] = {}
    # The longest name to show, with only characters that every client accepts; 0: names unchanged.
    longest_name: int = 0
    # Marks in the `_meta` of tools, for clients that put tools behind their own search.
    marks: tuple[str, ...] = ()
    # Where large results are left for other instances.
    state: LastingState = LOCAL_STATE
    # Loads what remembers the needs of users, where that is allowed.
    use: Callable[[], UseRecorder] | None = None


class Face:
    """The base class of all faces, which override what is different about them."""

    name = ""
    # The search index, if clients can search.
    tool_index: ToolIndex | None = None
    # Whether the list of tools depends on what servers offer. Otherwise it changes only with the configuration.
    tools_follow_servers = True
    # Whether clients are notified of every `list_changed` of a server, even if the list is unchanged.
    relays_announcements = True
    # Whether `opened` may be called in a thread, because it changes only its view.
    opens_in_thread = False
    # Whether lists wait for all servers, as far as that is possible in time.
    lists_everything = False
    # Whether what is shown depends on the client.
    tells_clients_apart = False
    # Whether a tool's own error says which tool it comes from.
    names_failed_tools = False
    # Whether problems are reported to the user; false for the faces of roles, which would repeat them.
    reports = True

    def __init__(self, catalog: Catalog, settings: FaceSettings) -> None:
        self.catalog = catalog
        # Replaced when the configuration changes.
        self.settings = settings
        self._kept: dict[tuple[str, tuple[str, ...]], tuple[int, object]] = {}
        self._reported: set[str] = set()
        self._recogniser: Recogniser | None = None
        # By kind, the holders of exposed names.
        self._holders: dict[str, Holders] = {}
        # By kind, the version of the names kept from before that has been taken into account.
        self._reserved: dict[str, int] = {}
        # Shown with the toolboxes: why the current version of the configuration file has not taken effect.
        self.notice: str | None = None
        # Links to unlisted resources in results.
        self.links = Links()
        catalog.on_replaced.append(self.on_replaced)

    def configure(self, settings: FaceSettings) -> None:
        """Apply new settings."""
        self.settings = settings

    def give_notice(self, notice: str | None) -> None:
        """Set what is wrong with the current version of the configuration file; None: nothing."""
        self.notice = notice

    def no_such_toolbox(self, name: str) -> Answer:
        """The error for an unknown toolbox. It mentions that the file has not taken effect, in case the user just added
        the toolbox there."""
        text = no_such("toolbox", name, self.catalog.toolboxes)
        return Answer(error_result(f"{text}\n{self.notice}" if self.notice else text))

    def on_replaced(self, plan: Plan) -> None:
        """A new configuration has taken effect: free the names of removed or renamed servers, and drop computed
        lists."""
        gone = {*plan.ending, *plan.adjusted}
        for holders in self._holders.values():
            for exposed in [exposed for exposed, target in holders.items() if target.entry in gone]:
                del holders[exposed]
        # What has only changed gets them back, before another server can take them.
        self._reserved.clear()
        self.links.forget(plan.ending)
        self._kept.clear()

    # ── what faces of other users and roles share ──

    def kept_results(self) -> KeptResults | None:
        """Where results are kept that were too large. Every face that shortens results has to say so: policies decide
        about what is read from there."""
        return None

    def share_state_of(self, whole: Face) -> None:
        """Be the face of a user or role beside `whole`: share what is kept by principal anyway, because its limits are
        those of the process."""
        # Problems are reported to the operator once, not for each user or role.
        self.reports = False
        self.links = whole.links

    # ── clients ──

    def recognise(self, client_info: bytes) -> Behaviour:
        """What is known about clients with this `clientInfo`."""
        if self._recogniser is None or self._recogniser.overrides is not self.settings.clients:
            # Imported for the first client whose behaviour matters, because start-up does not need it.
            from mcp_workbench.engine.face.client_behaviour import Recogniser

            self._recogniser = Recogniser(self.settings.clients)
        return self._recogniser.behaviour(client_info)

    def client_of(self, view: View) -> Behaviour:
        """What is known about the client of this view."""
        if view.client is None:
            view.client = self.recognise(view.client_info)
        return view.client

    def for_client(self, view: View) -> Face:
        """The face that this client sees."""
        return self

    def within_room(self, view: View, write: Callable[[int], str]) -> str:
        """Instructions that fit the limit of this client; `write` is called with that number of bytes."""
        text = write(MAX_ROOM_FOR_INSTRUCTIONS)
        if view.client is None and len(text.encode()) <= MAX_INSTRUCTIONS_BYTES:
            # Short enough for every client, so we need not know which one it is.
            return text
        room = self.client_of(view).instructions_room
        return text if room >= MAX_ROOM_FOR_INSTRUCTIONS else write(room)

    # ── overridden by faces ──

    def entries(self, view: View) -> list[ServerEntry]:
        """The servers whose prompts and resources are in view."""
        raise NotImplementedError

    def awaited(self, view: View) -> list[ServerEntry]:
        """The servers that lists wait for, as far as that is possible in time."""
        return list(self.catalog.entries()) if self.lists_everything else []

    def listed(self, view: View, kind: str) -> list[ServerEntry]:
        """The known servers that contribute to a list of this kind."""
        return self.known(view)

    def shows(self, view: View, entry: ServerEntry) -> bool:
        """Whether this server's lists are in view, once they are known."""
        return True

    def exposed(self, entry: ServerEntry, name: str) -> str:
        """The name that clients see for an item that its server calls `name`."""
        raise NotImplementedError

    def tools(self, view: View) -> Sequence[bytes]:
        """The definitions of the tools in view."""
        raise NotImplementedError

    def app_tools(self, view: View) -> Sequence[bytes]:
        """The definitions of tools that are listed only for clients that show user interfaces."""
        return ()

    def own_names(self) -> list[str]:
        """The tools that are this face's own. They are listed first."""
        return []

    def definition_of(self, tool: str) -> Raw | None:
        """The server's definition of the tool with this exposed name."""
        return None

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        """Decide what to do with a `tools/call`. `fresh`: the server in question has just listed what it offers."""
        raise NotImplementedError

    def opened(self, view: View, request: OpenRequest, failures: Failures) -> bytes:
        """The result of `open_toolbox`; `failures` by toolbox and server."""
        raise NotImplementedError

    def preparation(
        self, view: View, request: OpenRequest, failures: Failures
    ) -> Callable[[], Sequence[ServerEntry]] | None:
        """Work that `opened` depends on and that is slow enough to need a thread. Returns the servers whose manifests
        have to be read before it is done again; None if there is nothing to do."""
        return None

    def shortening(self, view: View, decision: Forward, result: Raw, client_info: bytes) -> Shortening | None:
        """What shortens a result to the budget of its call and the part that is wanted; None if it passes
        unchanged."""
        return None

    def own_resource(self, view: View, uri: str) -> bytes | None:
        """The contents of one of our own resources (`workbench://…`); None if there is none."""
        return None

    def instructions(self, view: View) -> str:
        raise NotImplementedError

    def announces(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> frozenset[str]:
        """Which lists of this view change when these lists of a server do."""
        if not self.shows(view, entry):
            return frozenset()
        # MCP has no separate notification for templates, and the extension for skills has none at all.
        return frozenset("resources" if kind in ("resourceTemplates", "skills") else kind for kind in kinds)

    def take_note(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """Record a change of a server's lists that the client of this view has to be told with a later result."""

    def announces_opening(self, view: View, toolbox: str) -> frozenset[str]:
        """Which lists of this view change when a toolbox is opened."""
        return frozenset()

    def announces_toolboxes(self, plan: Plan) -> frozenset[str]:
        """Which lists a new configuration changes just by adding or removing toolboxes."""
        is_longer = self.lists_everything and begins_unknown(plan)
        return frozenset({"tools", "prompts", "resources"} if is_longer else ())

    def take_note_of_toolboxes(self, view: View, added: Iterable[str], removed: Iterable[str]) -> None:
        """Record added and removed toolboxes, to be told to the client of this view with a later result."""

    # ── lists ──

    def definitions(self, view: View, kind: str) -> Sequence[bytes]:
        """One of the lists, for this view."""
        if kind == "tools":
            return self.tools(view)
        if kind == "prompts":
            return self.keep("prompts", view, lambda: self._named(self._prompt_table(view)))
        if kind == "skills":
            return self.keep("skills", view, lambda: self._skills(view))
        return self.keep(kind, view, lambda: self._by_identity(view, kind))

    def keep(self, kind: str, view: View, compute: Callable[[], object]) -> Sequence[bytes]:
        """Compute a list once for each revision of the catalogue and set of opened toolboxes."""
        found = self.kept(kind, view, compute)
        assert isinstance(found, list)
        return found

    def kept(self, kind: str, view: View, compute: Callable[[], object]) -> object:
        """Like `keep`, for anything else computed from the catalogue."""
        key = (kind, tuple(view.opened))
        kept = self._kept.get(key)
        if kept is None or kept[0] != self.catalog.revision:
            # There is one for each combination of opened toolboxes.
            if len(self._kept) > 256:
                self._kept.clear()
            found = compute()
            if self.catalog.principal and isinstance(found, list):
                # Most users see the same list.
                from mcp_workbench.engine.catalog.shared_definitions import shared_list

                found = shared_list(found)
            self._kept[key] = kept = (self.catalog.revision, found)
        return kept[1]

    def needed(self, view: View, kind: str) -> Iterable[ServerEntry]:
        """The servers whose manifests have to be read to compute a list of this kind."""
        return self.catalog.entries()

    def needed_first(self) -> Iterable[ServerEntry]:
        """The servers whose manifests have to be read before the first client is answered."""
        return ()

    def known(self, view: View) -> list[ServerEntry]:
        """The servers in view whose offer is known."""
        return [entry for entry in self.catalog.entries() if entry.offer is not None and self.shows(view, entry)]

    def table(self, kind: str, entries: Iterable[ServerEntry], expose: Callable[[ServerEntry, str], str]) -> NameTable:
        """Build the table of exposed names of one kind, and report each collision once."""
        holders = self.holders(kind)
        self._reserve(kind, holders, expose)
        table = build(entries, kind, expose, holders)
        held = {exposed: (each.entry.toolbox, each.entry.name, each.name) for exposed, each in holders.items()}
        known = self.catalog.whole.held_names
        # The face of a role cannot tell what became of names that it does not see.
        unseen = {exposed: who for exposed, who in known.of(self.name, kind).items() if not self._sees(kind, who)}
        known.note(self.name, kind, held | unseen)
        for exposed, rivals in table.collisions.items():
            self.report(describe_collision(exposed, rivals, self.collision_remedy(kind)))
        return table

    def _sees(self, kind: str, who: Held) -> bool:
        """Whether this may be shown here, or is nowhere any more."""
        toolbox, server, name = who
        entry = self.catalog.toolboxes.get(toolbox, {}).get(server)
        if entry is None:
            return server not in self.catalog.whole.toolboxes.get(toolbox, {})
        return entry.may_show(kind, name)

    def _reserve(self, kind: str, holders: Holders, expose: Callable[[ServerEntry, str], str]) -> None:
        """Keep the names that servers had before, also for those that are not listed yet."""
        known = self.catalog.whole.held_names
        if self._reserved.get(kind) == known.version:
            return
        self._reserved[kind] = known.version
        for exposed, (toolbox, server, name) in known.of(self.name, kind).items():
            entry = self.catalog.toolboxes.get(toolbox, {}).get(server)
            # A name that is not to be seen must not be missing either.
            if entry is None or exposed in holders or not entry.may_show(kind, name):
                continue
            holders[exposed] = Target(entry, name, entry.definitions(kind).get(name, NOT_LISTED))
            # Settings may give it another name by now.
            if expose(entry, name) != exposed:
                del holders[exposed]

    def collision_remedy(self, kind: str) -> str:
        """What a user can do about two items of this kind with the same exposed name."""
        return "Give one of the servers another name"

    def holders(self, kind: str) -> Holders:
        """The holders of exposed names, which keep them when others with the same name appear."""
        return self._holders.setdefault(kind, {})

    def settle_names(self, entries: Iterable[ServerEntry]) -> None:
        """Assign names to the cached items of servers that are about to be listed again, so that they keep them."""

    def report(self, text: str, subject: str | None = None) -> None:
        """Report a problem to the user once; with a `subject`, only the first problem about it."""
        said = subject or text
        if self.reports and said not in self._reported:
            self._reported.add(said)
            log.warning("%s", text)

    def _prompt_table(self, view: View) -> NameTable:
        found = self.kept("prompt table", view, lambda: self._build_prompt_table(self.entries(view)))
        assert isinstance(found, NameTable)
        return found

    def _build_prompt_table(self, entries: Sequence[ServerEntry]) -> NameTable:
        return self.table("prompts", entries, self.exposed)

    def _named(self, table: NameTable) -> list[bytes]:
        return [renamed(target.definition, exposed) for exposed, target in table.targets.items()]

    def _by_identity(self, view: View, kind: str) -> list[bytes]:
        shown: dict[str, bytes] = {}
        entries = self.entries(view)
        for entry in entries:
            for identity, definition in entry.definitions(kind).items():
                if identity != STATUS_URI:
                    shown.setdefault(identity, bytes(definition))
        for rivals, shared in shared_addresses(entries, kind).items():
            first, second = rivals
            # One line for each pair of servers, however many addresses they share.
            self.report(shared_text(rivals, shared), f"{kind} {first.label} {second.label}")
        return list(shown.values())

    def _skills(self, view: View) -> list[bytes]:
        # Few servers have skills.
        from mcp_workbench.engine.face.merged_skills import listed_skills

        return listed_skills(self.entries(view))

    def remarks(self) -> list[str]:
        """Remarks for the user about what is shown."""
        # Only `check` needs this.
        from mcp_workbench.engine.face.address_remarks import address_remarks

        return address_remarks(available(self.catalog.entries()), STATUS_URI)

    # ── requests about prompts and resources ──

    def resolve_prompt(self, view: View, params: Params) -> Decision:
        name = string_of(params, "name")
        if name is None:
            return Reject(INVALID_PARAMS, "`name` must be a string")
        if self.catalog.unread(self.needed(view, "prompts")):
            return Reject(INVALID_PARAMS, UNREAD)
        target = self._prompt_table(view).targets.get(name)
        if target is None:
            if (passed := self.unlisted_prompt(name)) is None:
                return Reject(INVALID_PARAMS, no_such("prompt", name, self._prompt_table(view).targets))
            return Forward(passed, name, b'"prompts/get"', open_object(params))
        body = open_object({"name": Raw(encode(target.name)), **_without(params, "name")})
        return Forward(target.entry, target.name, b'"prompts/get"', body)

    def resource_owner(self, view: View, params: Params, client: Revision) -> tuple[ServerEntry, str] | Reject:
        """Which server a `uri` belongs to."""
        uri = string_of(params, "uri")
        if uri is None:
            return Reject(INVALID_PARAMS, "`uri` must be a string")
        if uri == STATUS_URI:
            return not_found(uri, client)
        if self.catalog.unread(self.needed(view, "resources")):
            return Reject(INVALID_PARAMS, UNREAD)
        entries = self.entries(view)
        if uri.startswith(RESOURCES_PREFIX):
            addressed = next((e for e in entries if uri.startswith(address_of(e, "")) and e.has_resources), None)
            own = "" if addressed is None else uri.removeprefix(address_of(addressed, ""))
            is_shown = addressed is not None and own != "" and addressed.shows_resource(own)
            return (addressed, own) if addressed is not None and is_shown else not_found(uri, client)
        found = claimants(entries, uri, lambda entry: self.links.has(view.principal, entry, uri))
        if not found:
            # Resources need not be listed. If only one server has resources, it must be that one.
            having = [entry for entry in entries if entry.has_resources] or self.asked_in_any_case()
            found = having if len(having) == 1 and having[0].takes_unlisted else []
        found = [entry for entry in found if entry.shows_resource(uri)]
        return self._only_one(view, found, uri) or not_found(uri, client)

    def unlisted_prompt(self, name: str) -> ServerEntry | None:
        """The server that is asked for a prompt which none lists."""
        return None

    def asked_in_any_case(self) -> list[ServerEntry]:
        """The server that is asked for resources even if it has declared none."""
        return []

    def _only_one(self, view: View, found: list[ServerEntry], uri: str) -> tuple[ServerEntry, str] | Reject | None:
        """Of several servers with equal claims, the one whose toolbox this client has opened, if there is only one."""
        opened = [entry for entry in found if entry.toolbox in view.opened] if len(found) > 1 else []
        found = opened or found
        if len(found) > 1:
            can_choose = not opened and not self.lists_everything and len({entry.toolbox for entry in found}) > 1
            remedy = (
                "open the toolbox of that one, or " if can_choose else ""
            ) + f"read {address_of(found[0], uri)[:600]}"
            servers = [entry.label for entry in found]
            return Reject(INVALID_PARAMS, rivals_for_address(uri, servers, remedy), {"uri": uri, "servers": servers})
        return (found[0], uri) if found else None

    def resolve_resource(self, view: View, params: Params, client: Revision) -> Decision:
        found = self.resource_owner(view, params, client)
        if isinstance(found, Reject):
            return found
        entry, uri = found
        return Forward(entry, uri, b'"resources/read"', open_object({**params, "uri": Raw(encode(uri))}))

    def resolve_skill(self, view: View, method: str, params: Params, client: Revision) -> Decision:
        """Decide what to do with a request about a skill or a directory."""
        from mcp_workbench.engine.face.merged_skills import resolve_skill

        return resolve_skill(self, view, method, params, client)

    def resolve_completion(self, view: View, params: Params, client: Revision) -> Decision:
        """Decide what to do with a `completion/complete`, whose `ref` names a prompt or a resource template."""
        try:
            ref = decode_object(params["ref"])
            kind = decode_string(ref["type"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`ref` must be an object with a `type`")
        rest = _without(params, "ref")
        if kind == "ref/prompt":
            decision = self.resolve_prompt(view, ref)
            if not isinstance(decision, Forward):
                return decision
            own_ref = {**ref, "name": Raw(encode(decision.item))}
            return self._complete(decision.entry, decision.item, {"ref": Raw(encode(own_ref)), **rest})
        if kind == "ref/resource":
            uri = string_of(ref, "uri") or ""
            if self.catalog.unread(self.needed(view, "resources")):
                return Reject(INVALID_PARAMS, UNREAD)
            # Clients send the template itself here, not an address that matches it.
            having = [entry for entry in self.entries(view) if uri in entry.definitions("resourceTemplates")]
            found = self._only_one(view, having, uri) or self.resource_owner(view, ref, client)
            return found if isinstance(found, Reject) else self._complete(found[0], found[1], params)
        return Reject(INVALID_PARAMS, f"`ref` of type `{kind[:50]}` is not known; use ref/prompt or ref/resource")

    def _complete(self, entry: ServerEntry, item: str, params: Params) -> Forward:
        return Forward(entry, item, b'"completion/complete"', open_object(params))

    def resolve_unknown(self, view: View, method: str, params: Params) -> Decision:
        """Forward an unknown method if there is only one server that can be meant: the only one, or the only one with
        the extension that the method belongs to."""
        owner = self.sole_entry()
        if owner is None:
            having = [entry for entry in self.known(view) if any(is_of(method, each) for each in entry.extensions)]
            owner = having[0] if len(having) == 1 else None
        if owner is None:
            return unsupported(method)
        return Forward(owner, method, encode(method), open_object(params))

    def sole_entry(self) -> ServerEntry | None:
        """The only server; None if there are several or none."""
        entries = list(self.catalog.entries())
        return entries[0] if len(entries) == 1 else None


def available(entries: Iterable[ServerEntry]) -> list[ServerEntry]:
    """Those whose offer is known and that can be used."""
    return [entry for entry in entries if entry.is_available]


def begins_unknown(plan: Plan) -> bool:
    """Whether any new server has not been listed yet. It is started when a client lists again."""
    return any(entry.offer is None and entry.failure is None for entry in plan.beginning)


def is_of(method: str, extension: str) -> bool:
    """Whether a method belongs to an extension: methods begin with its name, with or without its vendor's prefix."""
    return method.startswith((f"{extension}/", f"{extension.rpartition('/')[2]}/"))


def address_of(entry: ServerEntry, uri: str) -> str:
    """The address of a resource of one server, for those that several servers have."""
    from urllib.parse import quote

    return f"{RESOURCES_PREFIX}{quote(entry.toolbox, safe='')}/{quote(entry.name, safe='')}/{uri}"


def unsupported(method: str) -> Reject:
    return Reject(METHOD_NOT_FOUND, f"method `{method[:100]}` is not supported")


def not_found(uri: str, client: Revision) -> Reject:
    return Reject(client.resource_not_found, f"resource `{uri[:500]}` was not found", {"uri": uri})


def string_of(params: Params, key: str) -> str | None:
    try:
        return decode_string(params[key])
    except (KeyError, DecodeError, ValidationError):
        return None


def _without(params: Params, key: str) -> Params:
    return {name: value for name, value in params.items() if name != key}
