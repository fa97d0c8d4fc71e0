"""What all faces share: prompts, resources, templates and completions, and the keeping of computed lists.

A face differs from another in which tools it shows, how things are called, and what of the catalogue is in view.
Everything here is synchronous and does no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.catalog.names import Holders, NameTable, build, describe_collision
from mcp_workbench.catalog.uris import claimants, shared_addresses
from mcp_workbench.config.model import DEFAULT_SEPARATOR
from mcp_workbench.economy.instructions import MOST_BYTES
from mcp_workbench.face.decisions import Answer, Decision, Forward, Reject
from mcp_workbench.face.links import Links
from mcp_workbench.face.open_request import OpenRequest
from mcp_workbench.face.opening import Failures
from mcp_workbench.face.renamed import renamed
from mcp_workbench.face.view import View
from mcp_workbench.face.wording import error_result, no_such, rivals_for_address, shared_text
from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND, decode_object, decode_string, encode
from mcp_workbench.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.catalog.replacement import Plan
    from mcp_workbench.catalog.tool_index import ToolIndex
    from mcp_workbench.clients.behaviour import Behaviour, Recogniser
    from mcp_workbench.face.kept_results import Shortening

log = logging.getLogger(__name__)

# Our own status: no server gets this address, even if it lists it.
STATUS_URI: Final = "workbench://status"
# Answered only to ourselves: whoever gets it has the manifests read (`needed`) and asks again.
UNREAD: Final = "the cached manifests have not been read yet"
# The longest instructions in bytes, for clients that read more than others: what is said beyond helps no search.
MOST_ROOM: Final = 4_096

Params = dict[str, Raw]


class FaceSettings(Struct, frozen=True):
    """What the command line, or else the configuration, says of how things are shown."""

    # Between the parts of a name.
    separator: str = DEFAULT_SEPARATOR
    # Whether names that are unique are shown with their server in front all the same.
    prefix: bool = True
    # There is one toolbox only, which the user did not name.
    plain: bool = False
    # `toolbox/server/tool`
    pin: tuple[str, ...] = ()
    check_arguments: bool = True
    # Whether tools that only read are called with another tool than the rest.
    splits_use_tool: bool = False
    # By names of clients, what is to be known of them beside the table.
    clients: dict[str, dict[str, object]] = {}
    # The longest name that is shown, with only those characters that every client takes; 0: names as they are.
    longest_name: int = 0
    # What tools carry in their `_meta` for clients that put tools behind a search of their own.
    marks: tuple[str, ...] = ()


class Face:
    """Shared by all faces; each of them says what is different about it."""

    name = ""
    # Where it lets clients search.
    tool_index: ToolIndex | None = None
    # Whether the list of tools is made of what servers offer. Otherwise it changes with the configuration alone.
    tools_follow_servers = True
    # Whether clients are notified of every `list_changed` of a server, even if the list is the same as before.
    relays_announcements = True
    # Whether `opened` may be called in a thread: it changes nothing but its view.
    opens_in_thread = False
    # Whether lists need every server to have spoken, as far as that is possible in time.
    lists_everything = False
    # Whether what is shown depends on which client it is shown to.
    tells_clients_apart = False
    # Whether problems are reported to the user; not once more for each role that sees a part of them.
    reports = True

    def __init__(self, catalog: Catalog, settings: FaceSettings) -> None:
        self.catalog = catalog
        # Replaced together with the configuration.
        self.settings = settings
        self._kept: dict[tuple[str, tuple[str, ...]], tuple[int, object]] = {}
        self._reported: set[str] = set()
        self._recogniser: Recogniser | None = None
        # By kind, who has which name.
        self._holders: dict[str, Holders] = {}
        # What whoever looks at the toolboxes should know: why the configuration is not in force as the file is now.
        self.notice: str | None = None
        # What results have shown of resources that no list has.
        self.links = Links()
        catalog.on_replaced.append(self.on_replaced)

    def configure(self, settings: FaceSettings) -> None:
        """Other settings are in force."""
        self.settings = settings

    def give_notice(self, notice: str | None) -> None:
        """What is wrong with the configuration as the file is now; None: nothing any more."""
        self.notice = notice

    def no_such_toolbox(self, name: str) -> Answer:
        """Also that the file is not in force as it is now, should it have been added just there."""
        text = no_such("toolbox", name, self.catalog.toolboxes)
        return Answer(error_result(f"{text}\n{self.notice}" if self.notice else text))

    def on_replaced(self, plan: Plan) -> None:
        """Another configuration is in force: names that servers hold which are no more, or are called otherwise, are
        free, and what was computed is computed again."""
        gone = {*plan.ending, *plan.adjusted}
        for holders in self._holders.values():
            for exposed in [exposed for exposed, target in holders.items() if target.entry in gone]:
                del holders[exposed]
        self.links.forget(plan.ending)
        self._kept.clear()

    # ── who it is shown to ──

    def recognise(self, client_info: bytes) -> Behaviour:
        """What is known of clients that introduce themselves like this."""
        if self._recogniser is None or self._recogniser.overrides is not self.settings.clients:
            # Loaded with the first client of whom something has to be known: starting does not need it.
            from mcp_workbench.clients.behaviour import Recogniser

            self._recogniser = Recogniser(self.settings.clients)
        return self._recogniser.behaviour(client_info)

    def client_of(self, view: View) -> Behaviour:
        """What is known of the client with this view."""
        if view.client is None:
            view.client = self.recognise(view.client_info)
        return view.client

    def for_client(self, view: View) -> Face:
        """The face that this client sees."""
        return self

    def within_room(self, view: View, write: Callable[[int], str]) -> str:
        """Instructions as long as this client reads them; `write` gets the number of bytes they may have."""
        text = write(MOST_ROOM)
        if view.client is None and len(text.encode()) <= MOST_BYTES:
            # Every client reads as much: there is no need to know which one it is.
            return text
        room = self.client_of(view).instructions_room
        return text if room >= MOST_ROOM else write(room)

    # ── what a face decides by itself ──

    def entries(self, view: View) -> list[ServerEntry]:
        """The servers whose prompts and resources are in view."""
        raise NotImplementedError

    def awaited(self, view: View) -> list[ServerEntry]:
        """The servers that lists are not given without, as far as that is possible in time."""
        return list(self.catalog.entries()) if self.lists_everything else []

    def listed(self, view: View, kind: str) -> list[ServerEntry]:
        """The servers that a list of this kind is made of, as far as they are known."""
        return self.known(view)

    def shows(self, view: View, entry: ServerEntry) -> bool:
        """Whether this server's lists are in view once they are known."""
        return True

    def exposed(self, entry: ServerEntry, name: str) -> str:
        """The name that a client sees for something that its server calls `name`."""
        raise NotImplementedError

    def tools(self, view: View) -> Sequence[bytes]:
        """The definitions of the tools that are shown."""
        raise NotImplementedError

    def definition_of(self, tool: str) -> Raw | None:
        """What the server of a tool says of it, for a tool that is shown under this name."""
        return None

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        """What to do with a `tools/call`. `fresh`: the server in question has just said what it offers."""
        raise NotImplementedError

    def opened(self, view: View, request: OpenRequest, failures: Failures) -> bytes:
        """The result of `open_toolbox`; `failures` by toolbox and server."""
        raise NotImplementedError

    def preparation(self, request: OpenRequest) -> Callable[[], None] | None:
        """What has to be worked out before `opened` and takes so long that it belongs into a thread."""
        return None

    def shorten(self, view: View, decision: Forward, result: Raw) -> Raw | bytes:
        """A result on its way to the client, within its budget where it has one."""
        return result

    def shortening(self, view: View, decision: Forward, result: Raw) -> Shortening | None:
        """The same for a large one, to be done in a thread; None where it passes as it is."""
        return None

    def own_resource(self, view: View, uri: str) -> bytes | None:
        """The contents of a resource of ours (`workbench://…`), None where there is none."""
        return None

    def instructions(self, view: View) -> str:
        """What an agent has to know first."""
        raise NotImplementedError

    def announces(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> frozenset[str]:
        """Which lists of this view change when these lists of a server do."""
        if not self.shows(view, entry):
            return frozenset()
        # MCP has no notification of their own for templates.
        return frozenset("resources" if kind == "resourceTemplates" else kind for kind in kinds)

    def take_note(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """These lists of a server changed: keep in mind what this view is to be told about it with a later answer."""

    def announces_opening(self, view: View, toolbox: str) -> frozenset[str]:
        """Which lists of this view change when a toolbox is opened."""
        return frozenset()

    def announces_toolboxes(self, plan: Plan) -> frozenset[str]:
        """Which lists change with the toolboxes of another configuration, whatever their servers offer."""
        is_longer = self.lists_everything and begins_unknown(plan)
        return frozenset({"tools", "prompts", "resources"} if is_longer else ())

    def take_note_of_toolboxes(self, view: View, added: Iterable[str], removed: Iterable[str]) -> None:
        """Toolboxes came or went: keep in mind what this view is to be told about it with a later answer."""

    # ── lists ──

    def definitions(self, view: View, kind: str) -> Sequence[bytes]:
        """One of the four lists, as this view shows it."""
        if kind == "tools":
            return self.tools(view)
        if kind == "prompts":
            return self.keep("prompts", view, lambda: self._named(self._prompt_table(view)))
        return self.keep(kind, view, lambda: self._by_identity(view, kind))

    def keep(self, kind: str, view: View, compute: Callable[[], object]) -> Sequence[bytes]:
        """Compute a list once for each state of the catalogue and of what is opened."""
        found = self.kept(kind, view, compute)
        assert isinstance(found, list)
        return found

    def kept(self, kind: str, view: View, compute: Callable[[], object]) -> object:
        """The same for anything else that is computed from the catalogue."""
        key = (kind, tuple(view.opened))
        kept = self._kept.get(key)
        if kept is None or kept[0] != self.catalog.revision:
            # By what is opened, so one for each combination that clients have.
            if len(self._kept) > 256:
                self._kept.clear()
            found = compute()
            if self.catalog.principal and isinstance(found, list):
                # Most users are shown the same.
                from mcp_workbench.catalog.shared_definitions import shared_list

                found = shared_list(found)
            self._kept[key] = kept = (self.catalog.revision, found)
        return kept[1]

    def needed(self, view: View, kind: str) -> Iterable[ServerEntry]:
        """The servers whose manifests have to be read before a list of this kind, or who is on it, can be told."""
        return self.catalog.entries()

    def needed_first(self) -> Iterable[ServerEntry]:
        """The same before the first client is answered."""
        return ()

    def known(self, view: View) -> list[ServerEntry]:
        """The servers in view of which something is known."""
        return [entry for entry in self.catalog.entries() if entry.offer is not None and self.shows(view, entry)]

    def table(self, kind: str, entries: Iterable[ServerEntry], expose: Callable[[ServerEntry, str], str]) -> NameTable:
        """Names of one kind; collisions are reported once."""
        table = build(entries, kind, expose, self.holders(kind))
        for exposed, rivals in table.collisions.items():
            self.report(describe_collision(exposed, rivals))
        return table

    def holders(self, kind: str) -> Holders:
        """Who has which exposed name: it stays theirs, whoever else comes to want it."""
        return self._holders.setdefault(kind, {})

    def settle_names(self, entries: Iterable[ServerEntry]) -> None:
        """These servers are about to be listed again: what is remembered of them has its names before that."""

    def report(self, text: str, subject: str | None = None) -> None:
        """Say something to the user, once; of a `subject`, where one is given, only the first that is to be said."""
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
            # One line for two servers, however many addresses they share.
            self.report(shared_text(rivals, shared), f"{kind} {first.label} {second.label}")
        return list(shown.values())

    def remarks(self) -> list[str]:
        """What a user should know of what is shown."""
        # Loaded by `check` alone.
        from mcp_workbench.face.address_remarks import address_remarks

        return address_remarks(available(self.catalog.entries()), STATUS_URI)

    # ── what is asked about them ──

    def resolve_prompt(self, view: View, params: Params) -> Decision:
        name = _string(params, "name")
        if name is None:
            return Reject(INVALID_PARAMS, "`name` must be a string")
        if self.catalog.unread(self.needed(view, "prompts")):
            return Reject(INVALID_PARAMS, UNREAD)
        target = self._prompt_table(view).targets.get(name)
        if target is None:
            return Reject(INVALID_PARAMS, no_such("prompt", name, self._prompt_table(view).targets))
        body = open_body({"name": Raw(encode(target.name)), **_without(params, "name")})
        return Forward(target.entry, target.name, b'"prompts/get"', body)

    def resource_owner(self, view: View, params: Params, client: Revision) -> tuple[ServerEntry, str] | Reject:
        """Which server a `uri` belongs to."""
        uri = _string(params, "uri")
        if uri is None:
            return Reject(INVALID_PARAMS, "`uri` must be a string")
        if uri == STATUS_URI:
            return not_found(uri, client)
        if self.catalog.unread(self.needed(view, "resources")):
            return Reject(INVALID_PARAMS, UNREAD)
        entries = self.entries(view)
        found = claimants(entries, uri, lambda entry: self.links.has(view.principal, entry, uri))
        if not found:
            # Resources need not be listed. Where only one server has any, it is the one that can be meant.
            having = [entry for entry in entries if entry.has_resources]
            found = having if len(having) == 1 and having[0].takes_unlisted else []
        found = [entry for entry in found if entry.shows_resource(uri)]
        return self._only_one(view, found, uri) or not_found(uri, client)

    def _only_one(self, view: View, found: list[ServerEntry], uri: str) -> tuple[ServerEntry, str] | Reject | None:
        """Of several servers with the same right, the one whose toolbox this client has opened; else none of them."""
        opened = [entry for entry in found if entry.toolbox in view.opened] if len(found) > 1 else []
        found = opened or found
        if len(found) > 1:
            can_choose = not opened and not self.lists_everything and len({entry.toolbox for entry in found}) > 1
            remedy = "open the toolbox of that one" if can_choose else "use one of these servers alone"
            servers = [entry.label for entry in found]
            return Reject(INVALID_PARAMS, rivals_for_address(uri, servers, remedy), {"uri": uri, "servers": servers})
        return (found[0], uri) if found else None

    def resolve_resource(self, view: View, params: Params, client: Revision) -> Decision:
        found = self.resource_owner(view, params, client)
        if isinstance(found, Reject):
            return found
        entry, uri = found
        return Forward(entry, uri, b'"resources/read"', open_body(params))

    def resolve_completion(self, view: View, params: Params, client: Revision) -> Decision:
        """What to do with a `completion/complete`: its `ref` names a prompt or a resource template."""
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
            uri = _string(ref, "uri") or ""
            if self.catalog.unread(self.needed(view, "resources")):
                return Reject(INVALID_PARAMS, UNREAD)
            # The template itself is what clients name here, not an address that it fits.
            having = [entry for entry in self.entries(view) if uri in entry.definitions("resourceTemplates")]
            found = self._only_one(view, having, uri) or self.resource_owner(view, ref, client)
            return found if isinstance(found, Reject) else self._complete(found[0], found[1], params)
        return Reject(INVALID_PARAMS, f"`ref` of type `{kind[:50]}` is not known; use ref/prompt or ref/resource")

    def _complete(self, entry: ServerEntry, item: str, params: Params) -> Forward:
        return Forward(entry, item, b'"completion/complete"', open_body(params))

    def resolve_unknown(self, view: View, method: str, params: Params) -> Decision:
        """A method we do not know is relayed where only one server can be meant."""
        sole = self.sole_entry()
        if sole is None:
            return unsupported(method)
        return Forward(sole, method, encode(method), open_body(params))

    def sole_entry(self) -> ServerEntry | None:
        """The only server there is, if there is only one."""
        entries = list(self.catalog.entries())
        return entries[0] if len(entries) == 1 else None


def available(entries: Iterable[ServerEntry]) -> list[ServerEntry]:
    """Those of which something is known and that can be used."""
    return [entry for entry in entries if entry.is_available]


def begins_unknown(plan: Plan) -> bool:
    """Whether a server comes of which nobody knows yet what it offers: a client that asks again has it started."""
    return any(entry.offer is None and entry.failure is None for entry in plan.beginning)


def unsupported(method: str) -> Reject:
    return Reject(METHOD_NOT_FOUND, f"method `{method[:100]}` is not supported")


def not_found(uri: str, client: Revision) -> Reject:
    return Reject(client.resource_not_found, f"resource `{uri[:500]}` was not found", {"uri": uri})


def open_body(params: Params) -> bytes:
    """A params object that is still open at its end."""
    return encode(params)[:-1]


def _string(params: Params, key: str) -> str | None:
    try:
        return decode_string(params[key])
    except (KeyError, DecodeError, ValidationError):
        return None


def _without(params: Params, key: str) -> Params:
    return {name: value for name, value in params.items() if name != key}
