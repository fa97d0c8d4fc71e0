"""Tasks (the extension `io.modelcontextprotocol/tasks`, and those of 2025-11-25): which server a task belongs to.

A server answers a call with a handle instead of a result, and the client comes back with that handle. We record which
server issued it. Two servers may choose the same handle: the first keeps it, and the client gets a different one for
the second, so that no server sees or answers requests about another's task. Handles may outlive us: a request with an
unknown one goes to the only server with tasks, if there is only one. Tasks listed by several servers (2025-11-25) are
recorded in the same way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from os import urandom
from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.base import Params
from mcp_workbench.engine.face.decisions import Decision, Forward, Load, Reject
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, decode_object, encode, open_object
from mcp_workbench.engine.lasting_state import LOCAL_STATE, TASK, LastingState, StateUnavailable
from mcp_workbench.engine.protocol.revisions import Revision
from mcp_workbench.engine.steps import Denial, Subject

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
# How many handles are kept in total; then the oldest are dropped.
MAX_TASK_HANDLES: Final = 10_000
# How many of these one server may have for one user: a server with endless tasks must not displace all others.
MAX_TASK_HANDLES_PER_SERVER: Final = 2000
# How long a server is kept running for a task without a stated lifetime.
DEFAULT_LIFE: Final = 3600.0
MAX_TASK_LIFETIME: Final = 24 * 3600.0


class _Task(Struct):
    taskId: str
    ttlMs: float | UnsetType | None = UNSET


class _CoreTask(Struct):
    taskId: str
    ttl: float | UnsetType | None = UNSET


class _Created(Struct):
    """The response of a 2025-11-25 server to a call that becomes a task."""

    task: _CoreTask


_NOT_DECLARED: Final = Raw(b"null")


class _Declared(Struct):
    """The capability `tasks` of 2025-11-25."""

    list: Raw = _NOT_DECLARED
    cancel: Raw = _NOT_DECLARED
    requests: dict[str, dict[str, Raw]] = {}


_decode_task: Final = Decoder(_Task).decode
_decode_created: Final = Decoder(_Created).decode
_decode_declared: Final = Decoder(_Declared).decode

# Principal, whether the task belongs to the extension (those of 2025-11-25 are separate), and handle.
_Key = tuple[str, bool, str]


class _Given(Struct, frozen=True):
    """A handle that was issued to a client: its server, and the server's own handle."""

    entry: ServerEntry
    own: str
    # The tool whose call became this task; empty if unknown.
    tool: str = ""
    # Another instance has issued it, and the task hangs on a process there.
    is_elsewhere: bool = False


class _LeftTask(Struct):
    """What another instance needs to know of a handle."""

    handle: str
    is_extension: bool
    toolbox: str
    server: str
    own: str
    tool: str = ""


_decode_left: Final = Decoder(_LeftTask).decode


class Tasks:
    """Which server issued which handle."""

    def __init__(self, state: LastingState = LOCAL_STATE) -> None:
        """`state`: where handles are left for other instances."""
        self._state = state
        state.on_emptied(self._leave_again)
        self._given: OrderedDict[_Key, _Given] = OrderedDict()
        # By principal, toolbox and server; the oldest first.
        self._of_one: dict[tuple[str, str, str], OrderedDict[_Key, None]] = {}
        # By the same and the server's own handle: the handles that we had to replace.
        self._others: dict[tuple[str, bool, str, str, str], str] = {}

    def remember(
        self, view: View, entry: ServerEntry, result: bytes, client: Revision, tool: str = ""
    ) -> tuple[float, bytes]:
        """Record a handle. Returns how long its server has to keep running, in seconds, and the result for the
        client."""
        if not client.has_task_extension:
            return self._remember_core(view, entry, result, client, tool)
        try:
            task = _decode_task(result)
        except (DecodeError, ValidationError):
            return 0.0, result
        self._note(view.principal, True, entry, task.taskId, tool)
        return life_of(task.ttlMs), self.shown(view, entry, result, client)

    def _remember_core(
        self, view: View, entry: ServerEntry, result: bytes, client: Revision, tool: str
    ) -> tuple[float, bytes]:
        """The same for 2025-11-25, if the result is a task."""
        try:
            task = _decode_created(result).task
            self._note(view.principal, False, entry, task.taskId, tool)
            if not self._others:
                return life_of(task.ttl), result
            members = decode_object(result)
            members["task"] = Raw(self.shown(view, entry, bytes(members["task"]), client))
        except (DecodeError, ValidationError):
            return 0.0, result
        return life_of(task.ttl), encode(members)

    def shown_result(self, view: View, entry: ServerEntry, result: bytes, client: Revision) -> bytes:
        """Replace the handle in the `_meta` of the result of a task's call."""
        if not self._others or RELATED.encode() not in result:
            return self.shown(view, entry, result, client)
        try:
            members = decode_object(result)
            meta = decode_object(members["_meta"])
            meta[RELATED] = Raw(self.shown(view, entry, bytes(meta[RELATED]), client))
        except (DecodeError, ValidationError, KeyError):
            return result
        return encode({**members, "_meta": Raw(encode(meta))})

    def tool_of(self, principal: str, toolbox: str, server: str, own: str) -> str:
        """The tool whose call became this task; empty if unknown."""
        for is_extension in (True, False):
            handle = self._others.get((principal, is_extension, toolbox, server, own), own)
            given = self._given.get((principal, is_extension, handle))
            if given is not None and (given.entry.toolbox, given.entry.name, given.own) == (toolbox, server, own):
                return given.tool
        return ""

    def _note(self, principal: str, is_extension: bool, entry: ServerEntry, own: str, tool: str = "") -> None:
        name = (principal, is_extension, entry.toolbox, entry.name, own)
        handle = self._others.get(name, own)
        taken = self._given.get((principal, is_extension, handle))
        if taken is not None and taken.entry is not entry:
            # Random, so that a server cannot claim it too.
            handle = self._others[name] = f"{own}~{urandom(8).hex()}"
        key = (principal, is_extension, handle)
        given = _Given(entry, own, tool or self.tool_of(principal, entry.toolbox, entry.name, own))
        if self._state.is_shared and self._given.get(key) != given:
            self._leave(key, given)
        self._enter(key, given)

    def _enter(self, key: _Key, given: _Given) -> None:
        self._given[key] = given
        self._given.move_to_end(key)
        siblings = self._of_one.setdefault((key[0], given.entry.toolbox, given.entry.name), OrderedDict())
        siblings[key] = None
        siblings.move_to_end(key)
        if len(siblings) > MAX_TASK_HANDLES_PER_SERVER:
            self._forget(next(iter(siblings)))
        while len(self._given) > MAX_TASK_HANDLES:
            self._forget(next(iter(self._given)))

    # ── of other instances ──

    def _leave(self, key: _Key, given: _Given) -> None:
        principal, is_extension, handle = key
        entry = given.entry
        saved = _LeftTask(handle, is_extension, entry.toolbox, entry.name, given.own, given.tool)
        self._state.keep(TASK, principal, f"{is_extension:d}{handle}", encode(saved))

    def _leave_again(self) -> None:
        for key, given in self._given.items():
            self._leave(key, given)

    def take_over(self, view: View, left: Iterable[bytes]) -> None:
        """Know the handles that another instance has issued to this principal."""
        for each in left:
            try:
                saved = _decode_left(each)
                entry = view.face.catalog.whole.toolboxes[saved.toolbox][saved.server]
            except (DecodeError, ValidationError, KeyError):
                continue
            key = (view.principal, saved.is_extension, saved.handle)
            if key not in self._given:
                # A server with an address is the same for all instances.
                self._enter(key, _Given(entry, saved.own, saved.tool, entry.config.url is None))
                if saved.handle != saved.own:
                    name = (view.principal, saved.is_extension, saved.toolbox, saved.server, saved.own)
                    self._others[name] = saved.handle

    def drop(self, principals: Collection[str]) -> None:
        """Drop the handles of these."""
        for key in [key for key in self._given if key[0] in principals]:
            self._state.drop(TASK, key[0], f"{key[1]:d}{key[2]}")
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        principal, is_extension, handle = key
        gone = self._given.pop(key)
        owner = (principal, gone.entry.toolbox, gone.entry.name)
        self._of_one[owner].pop(key, None)
        if not self._of_one[owner]:
            del self._of_one[owner]
        name = (principal, is_extension, gone.entry.toolbox, gone.entry.name, gone.own)
        if self._others.get(name) == handle:
            del self._others[name]

    def listed(self, view: View, entry: ServerEntry, tasks: Iterable[Raw], client: Revision) -> list[bytes]:
        """The tasks that a server lists, each with the handle that the client has or gets now."""
        shown = []
        for task in tasks:
            try:
                own = _decode_task(task).taskId
            except (DecodeError, ValidationError):
                # Without a handle, no client could ask for it.
                continue
            if refused(view, entry, own) is not None:
                continue
            if entry.config.share == "everyone" and not self._is_known(view.principal, client, entry, own):
                # Another user's.
                continue
            self._note(view.principal, client.has_task_extension, entry, own)
            shown.append(self.shown(view, entry, bytes(task), client))
        return shown

    def _is_known(self, principal: str, client: Revision, entry: ServerEntry, own: str) -> bool:
        """Whether the handle of this task was issued to this principal."""
        is_extension = client.has_task_extension
        handle = self._others.get((principal, is_extension, entry.toolbox, entry.name, own), own)
        given = self._given.get((principal, is_extension, handle))
        return given is not None and given.entry is entry and given.own == own

    @property
    def has_renamed(self) -> bool:
        """Whether any handle had to be replaced."""
        return bool(self._others)

    def shown(self, view: View, entry: ServerEntry, members: bytes, client: Revision) -> bytes:
        """Replace the server's handle in a message about a task by the client's."""
        if not self._others:
            return members
        try:
            own = _decode_task(members).taskId
            handle = self._others.get((view.principal, client.has_task_extension, entry.toolbox, entry.name, own))
            return members if handle is None else encode({**decode_object(members), "taskId": handle})
        except (DecodeError, ValidationError):
            return members

    async def _recall(self, view: View) -> None:
        """Know the handles that were left since this principal has arrived, or when the state could not be asked."""
        with suppress(StateUnavailable):
            self.take_over(view, (await self._state.find_all(TASK, view.principal, is_patient=True)).values())

    def resolve(
        self, view: View, method: str, params: Params, client: Revision, *, is_recalled: bool = False
    ) -> Decision:
        """Decide what to do with a request about a task. `is_recalled`: other instances have been asked for it."""
        try:
            handle = Decoder(str).decode(params["taskId"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`taskId` must be a string")
        given = self._given.get((view.principal, client.has_task_extension, handle))
        if given is None:
            again = partial(self.resolve, view, method, params, client, is_recalled=True)
            if self._state.is_shared and not is_recalled:
                return Load((), again, partial(self._recall, view))
            unread = view.face.catalog.unread(view.face.needed(view, "prompts"))
            if unread:
                return Load(tuple(unread), again)
            having = [entry for entry in view.face.entries(view) if _has_tasks(entry, client)]
            # On a server that users share, each user has only the tasks issued to them.
            is_sole = len(having) == 1 and having[0].config.share != "everyone"
            given = _Given(having[0], handle) if is_sole else None
        # One that may be seen and not used is refused by the steps, which say why.
        denial = None if given is None else refused(view, given.entry, given.own)
        if given is None and self._state.is_in_doubt:
            return Reject(
                INTERNAL_ERROR,
                f"task `{handle[:200]}` cannot be looked up now, because the cluster's state is away; try again later",
            )
        if given is None or (denial is not None and denial.hides):
            return Reject(INVALID_PARAMS, f"task `{handle[:200]}` is not known")
        if given.is_elsewhere:
            return Reject(
                INVALID_PARAMS,
                f"task `{handle[:200]}` belongs to a process of another instance, which has ended or no longer serves "
                "you: its result cannot be had here; make the call again if it may run twice",
            )
        if given.own != handle:
            params = {**params, "taskId": Raw(encode(given.own))}
        return Forward(given.entry, given.own, encode(method), open_object(params))


def refused(view: View, entry: ServerEntry, own: str) -> Denial | None:
    """Why a client may not use this task of a server."""
    request = Subject(principal=view.principal, method="tasks/get", toolbox=entry.toolbox, server=entry.name, item=own)
    return view.gate.refuses(request)


def life_of(milliseconds: float | UnsetType | None) -> float:
    """For how many seconds a server keeps a task, by what it says: null is without limit."""
    if isinstance(milliseconds, UnsetType):
        return DEFAULT_LIFE
    return MAX_TASK_LIFETIME if milliseconds is None else min(max(milliseconds / 1000, 0.0), MAX_TASK_LIFETIME)


def _has_tasks(entry: ServerEntry, client: Revision) -> bool:
    return EXTENSION in entry.extensions if client.has_task_extension else "tasks" in entry.capabilities


def having_lists(entries: Iterable[ServerEntry]) -> list[ServerEntry]:
    """The servers that list their tasks (2025-11-25)."""
    return [entry for entry in entries if (declared := _declared(entry)) is not None and _is_declared(declared.list)]


def declared_tasks(entries: Iterable[ServerEntry]) -> dict[str, object] | None:
    """The capability `tasks` of 2025-11-25, combined from all these servers; None if none declares it."""
    found = [declared for entry in entries if (declared := _declared(entry)) is not None]
    merged: dict[str, object] = {}
    requests: dict[str, dict[str, Raw]] = {}
    for declared in found:
        for name, value in (("list", declared.list), ("cancel", declared.cancel)):
            if _is_declared(value):
                merged.setdefault(name, value)
        for kind, methods in declared.requests.items():
            requests[kind] = {**methods, **requests.get(kind, {})}
    if requests:
        merged["requests"] = requests
    return merged if found else None


def _is_declared(value: Raw) -> bool:
    return bytes(value) != bytes(_NOT_DECLARED)


def _declared(entry: ServerEntry) -> _Declared | None:
    try:
        return _decode_declared(entry.capabilities["tasks"])
    except (KeyError, DecodeError, ValidationError):
        return None
