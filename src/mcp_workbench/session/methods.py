"""What a client may ask: one function for each method, in one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder

from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.decisions import Decision, Reject
from mcp_workbench.face.tasks import LEGACY_METHODS as LEGACY_TASK_METHODS
from mcp_workbench.face.tasks import METHODS as TASK_METHODS
from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, encode
from mcp_workbench.jsonrpc.pending import RemoteError
from mcp_workbench.protocol.logging_levels import LEVELS
from mcp_workbench.session.call import ClientCall
from mcp_workbench.session.news import MOST_STREAMS, ListenStream, read_filter

if TYPE_CHECKING:
    from mcp_workbench.downstream.watch import Watch
    from mcp_workbench.session.session import Session

Params = dict[str, Raw]
Method = Callable[["Session", ClientCall, Params], None]

# Removed with revision 2026-07-28; not passed on either, because a legacy server behind us would know them.
LEGACY_ONLY: Final = frozenset({"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})

OWN_SCHEME: Final = b'"workbench://'
_decode_string: Final = Decoder(str).decode


def _call_tool(session: Session, call: ClientCall, params: Params) -> None:
    session.router.call_tool(call, params)


def _list(kind: str) -> Method:
    listed_as = "resources" if kind == "resourceTemplates" else kind

    def list_kind(session: Session, call: ClientCall, params: Params) -> None:
        if "cursor" in params and bytes(params["cursor"]) != b"null":
            call.finish_error(INVALID_PARAMS, "unknown cursor: the list has one page")
            return

        def answer() -> None:
            definitions = session.router.face.definitions(session.view, kind)
            reason = None if definitions else session.router.lists.why_empty()
            session.listed.add(listed_as)
            if reason is not None and session.router.face.lists_everything:
                call.finish_error(INTERNAL_ERROR, reason)
            else:
                call.finish_result(session.welcome.list_result(kind, definitions, call.from_modern))

        session.router.list_when_possible(call, kind, answer)
        if call.task is not None:
            # A client that does not wait for it wants to know all the same when there is something to see.
            call.task.add_done_callback(lambda _: session.listed.add(listed_as))

    return list_kind


def _discover(session: Session, call: ClientCall, params: Params) -> None:
    if call.from_modern:
        call.finish_result(session.welcome.discover_result(session.view))
    else:
        call.finish_error(METHOD_NOT_FOUND, "method `server/discover` is not supported after `initialize`")


def _ping(session: Session, call: ClientCall, params: Params) -> None:
    call.finish_result(b"{}")


def _get_prompt(session: Session, call: ClientCall, params: Params) -> None:
    _resolve(session, call, "prompts", lambda: session.router.face.resolve_prompt(call.view, params))


def _read_resource(session: Session, call: ClientCall, params: Params) -> None:
    if OWN_SCHEME in bytes(params.get("uri", b"")):
        try:
            uri = _decode_string(params["uri"])
        except (DecodeError, ValidationError):
            call.finish_error(INVALID_PARAMS, "`uri` must be a string")
            return
        own = session.router.own_resource(call.view, uri)
        if own is not None:
            call.finish_result(own)
            return
    face = session.router.face
    _resolve(session, call, "resources", lambda: face.resolve_resource(call.view, params, call.from_modern))


def _complete(session: Session, call: ClientCall, params: Params) -> None:
    face = session.router.face
    _resolve(session, call, "prompts", lambda: face.resolve_completion(call.view, params, call.from_modern))


def _resolve(session: Session, call: ClientCall, kind: str, decide: Callable[[], Decision]) -> None:
    """Act on a decision. What nobody is known to have is looked for again when every server has been heard."""
    decision = decide()
    if isinstance(decision, Reject):
        session.router.list_when_possible(call, kind, lambda: session.router.act(call, decide()))
    else:
        session.router.act(call, decision)


def _task(session: Session, call: ClientCall, params: Params) -> None:
    methods = TASK_METHODS if call.from_modern else LEGACY_TASK_METHODS
    if call.method not in methods or (not call.from_modern and session.router.face.sole_entry() is not None):
        unknown(session, call, params)
        return
    session.router.act(call, session.router.tasks.resolve(call.view, call.method, params, call.from_modern))


def _set_level(session: Session, call: ClientCall, params: Params) -> None:
    try:
        level = _decode_string(params["level"])
    except (KeyError, DecodeError, ValidationError):
        level = ""
    if level not in LEVELS:
        call.finish_error(INVALID_PARAMS, f"`level` must be one of {', '.join(LEVELS)}")
        return
    session.log_level = level
    session.router.set_log_level(session.caller, level)
    call.finish_result(b"{}")


def _subscribe(session: Session, call: ClientCall, params: Params) -> None:
    if isinstance(session.router.face.resource_owner(call.view, params, call.from_modern), Reject):
        session.router.list_when_possible(call, "resources", lambda: _subscribe_now(session, call, params))
    else:
        _subscribe_now(session, call, params)


def _subscribe_now(session: Session, call: ClientCall, params: Params) -> None:
    found = session.router.face.resource_owner(call.view, params, call.from_modern)
    if isinstance(found, Reject):
        session.router.act(call, found)
        return
    entry, uri = found
    call.entry = entry

    async def subscribe() -> None:
        watch = session.watched[uri] = await session.router.watch(call, entry)
        await watch.subscribe(uri, session)

    call.task = session.router.start_for(call, _answer(call, subscribe))


def _unsubscribe(session: Session, call: ClientCall, params: Params) -> None:
    uri = _string(params.get("uri"))
    # Where it was subscribed to, whoever has the best claim to it by now.
    watch = session.watched.pop(uri, None)
    if watch is not None:
        call.task = session.router.start_for(call, _answer(call, partial(watch.unsubscribe, uri, session)))
        return
    found = session.router.face.resource_owner(call.view, params, call.from_modern)
    if isinstance(found, Reject):
        session.router.act(call, found)
    else:
        call.finish_result(b"{}")


def _string(raw: Raw | None) -> str:
    try:
        return "" if raw is None else _decode_string(raw)
    except (DecodeError, ValidationError):
        return ""


async def _answer(call: ClientCall, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except RemoteError as error:
        call.session.finish(call, b"error", encode(error.error))
    except WorkbenchError as error:
        call.on_failure(error)
    else:
        call.finish_result(b"{}")


def _listen(session: Session, call: ClientCall, params: Params) -> None:
    if not call.from_modern:
        call.finish_error(METHOD_NOT_FOUND, "method `subscriptions/listen` is not supported after `initialize`")
        return
    wanted = read_filter(params.get("notifications"))
    if wanted is None:
        call.finish_error(INVALID_PARAMS, "`notifications` must say what to listen to")
        return
    if len(session.streams) >= MOST_STREAMS:
        call.finish_error(INTERNAL_ERROR, f"more than {MOST_STREAMS} streams are open")
        return
    stream = ListenStream(call.id, wanted, session.send)
    # From here on it is not a call that waits for its answer, but a stream that stays.
    del session.calls[call.id]
    session.streams[call.id] = stream
    session.wants_news()
    granted: dict[str, object] = {
        f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources") if wanted.wants(kind)
    }
    if not session.router.face.tools_change:
        granted.pop("toolsListChanged", None)
    session.router.in_background(_watch_all(session, call, stream, granted))


async def _watch_all(session: Session, call: ClientCall, stream: ListenStream, granted: dict[str, object]) -> None:
    """Subscribe to the resources that the filter names; what cannot be watched is left out of the acknowledgement."""
    watched: list[tuple[str, Watch]] = []
    has_heard_all = False
    for uri in stream.wanted.resourceSubscriptions:
        params = {"uri": Raw(encode(uri))}
        found = session.router.face.resource_owner(call.view, params, True)
        if isinstance(found, Reject) and not has_heard_all:
            # It may be the client's first request, and whoever has this resource may not have been heard yet.
            has_heard_all = True
            await session.router.hear_servers(call, "resources")
            found = session.router.face.resource_owner(call.view, params, True)
        if isinstance(found, Reject):
            continue
        try:
            watch = await session.router.watch(call, found[0])
            await watch.subscribe(uri, stream)
        except WorkbenchError:
            continue
        watched.append((uri, watch))

    async def stop_watching() -> None:
        for uri, watch in watched:
            await watch.unsubscribe(uri, stream)

    def end() -> None:
        if watched:
            session.router.in_background(stop_watching())

    if watched:
        granted["resourceSubscriptions"] = [uri for uri, _ in watched]
    stream.on_end = end
    if session.streams.get(stream.id) is stream:
        stream.acknowledge(granted)
    else:
        stream.end()


def unknown(session: Session, call: ClientCall, params: Params) -> None:
    """A method that we do not know."""
    session.router.act(call, session.router.face.resolve_unknown(call.view, call.method, params))


def _removed(session: Session, call: ClientCall, params: Params) -> None:
    call.finish_error(METHOD_NOT_FOUND, f"method `{call.method}` does not exist in MCP {call.revision.name}")


def find(call: ClientCall) -> Method:
    """What serves this request."""
    if call.from_modern and call.method in LEGACY_ONLY:
        return _removed
    return TABLE.get(call.method, unknown)


TABLE: Final[dict[str, Method]] = {
    "tools/call": _call_tool,
    "tools/list": _list("tools"),
    "prompts/list": _list("prompts"),
    "prompts/get": _get_prompt,
    "resources/list": _list("resources"),
    "resources/templates/list": _list("resourceTemplates"),
    "resources/read": _read_resource,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "completion/complete": _complete,
    "logging/setLevel": _set_level,
    "subscriptions/listen": _listen,
    "server/discover": _discover,
    "ping": _ping,
    "tasks/get": _task,
    "tasks/result": _task,
    "tasks/update": _task,
    "tasks/cancel": _task,
}
