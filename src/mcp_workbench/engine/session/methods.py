"""The methods that clients may call: one function for each, in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.engine.face.base import Params
from mcp_workbench.engine.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    decode_object,
    decode_string,
)
from mcp_workbench.engine.protocol.constants import MISSING_CLIENT_CAPABILITY
from mcp_workbench.engine.protocol.logging_levels import LEVELS
from mcp_workbench.engine.session.client_call import ClientCall
from mcp_workbench.engine.session.notifications import MAX_CLIENT_STREAMS, ListenStream, read_filter

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.session.session import Session

Method = Callable[["Session", ClientCall, Params], None]


TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
OWN_SCHEME: Final = b'"workbench://'


def _list(kind: str) -> Method:
    listed_as = "resources" if kind in ("resourceTemplates", "skills") else kind

    def list_kind(session: Session, call: ClientCall, params: Params) -> None:
        # Lists have one page, so no cursor can be ours.
        if "cursor" in params and bytes(params["cursor"]) != b"null":
            call.finish_error(INVALID_PARAMS, "unknown cursor: the list has one page")
            return

        def note_listed(_: object = None) -> None:
            session.listed.add(listed_as)

        def answer(definitions: Sequence[bytes]) -> None:
            # Before the answer is sent: a change right after it must be announced.
            note_listed()
            call.finish_result(session.welcome.list_result(kind, definitions, call.revision, call.view))

        session.router.list(call, kind, answer)
        if call.route.task is None:
            note_listed()
        else:
            # A client that stops waiting still wants a notification when there is something to list.
            call.route.task.add_done_callback(note_listed)

    return list_kind


_list_known_skills: Final = _list("skills")


def _discover(session: Session, call: ClientCall, params: Params) -> None:
    if not call.revision.has_handshake:

        def answer() -> None:
            call.finish_result(session.welcome.discover_result(session.view.introduced(call.client_info)))

        session.router.when_introducible(call, answer)
    else:
        call.finish_error(METHOD_NOT_FOUND, "method `server/discover` is not supported after `initialize`")


def _read_resource(session: Session, call: ClientCall, params: Params) -> None:
    # A search for bytes, so that addresses of servers are not decoded here.
    if OWN_SCHEME in bytes(params.get("uri", b"")):
        try:
            uri = decode_string(params["uri"])
        except (DecodeError, ValidationError):
            call.finish_error(INVALID_PARAMS, "`uri` must be a string")
            return
        if session.router.read_own_resource(call, uri):
            return
    session.router.read_resource(call, params)


def _list_skills(session: Session, call: ClientCall, params: Params) -> None:
    def act() -> None:
        if session.router.has_skills(call.view):
            _list_known_skills(session, call, params)
        else:
            session.router.relay(call, params)

    session.router.when_listed(call, "skills", act)


def _ask_about_skill(session: Session, call: ClientCall, params: Params) -> None:
    session.router.ask_about_skill(call, params)


def _set_level(session: Session, call: ClientCall, params: Params) -> None:
    try:
        level = decode_string(params["level"])
    except (KeyError, DecodeError, ValidationError):
        level = ""
    if level not in LEVELS:
        call.finish_error(INVALID_PARAMS, f"`level` must be one of {', '.join(LEVELS)}")
        return

    # Stored only when the steps have allowed it.
    def accepted() -> None:
        session.log_level = level

    session.router.set_log_level(call, level, accepted)


def _subscribe(session: Session, call: ClientCall, params: Params) -> None:
    session.router.subscriptions.subscribe(call, params, session, session.subscriptions)


def _unsubscribe(session: Session, call: ClientCall, params: Params) -> None:
    session.router.subscriptions.unsubscribe(call, _string(params.get("uri")), params, session, session.subscriptions)


def _string(raw: Raw | None) -> str:
    try:
        return "" if raw is None else decode_string(raw)
    except (DecodeError, ValidationError):
        return ""


def _listen(session: Session, call: ClientCall, params: Params) -> None:
    if not call.revision.has_listen:
        call.finish_error(METHOD_NOT_FOUND, "method `subscriptions/listen` is not supported after `initialize`")
        return
    wanted = read_filter(params.get("notifications"))
    if wanted is None:
        call.finish_error(INVALID_PARAMS, "`notifications` must say what to listen to")
        return
    if wanted.taskIds and not _has_tasks(call):
        required: dict[str, object] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        call.finish_error(MISSING_CLIENT_CAPABILITY, "`taskIds` needs the extension for tasks", required)
        return
    if len(session.streams) >= MAX_CLIENT_STREAMS:
        call.finish_error(INTERNAL_ERROR, f"more than {MAX_CLIENT_STREAMS} streams are open")
        return
    # A workbench that takes over this client opens the stream again with these params.
    request = params if call.meta is None else {**params, "_meta": call.meta}
    stream = ListenStream(call.id, wanted, request, session.send, session.close_stream)
    # From here on it is a stream that stays open, and no longer a call that waits for its response.
    del session.calls[call.id]
    session.streams[call.id] = stream
    session.subscribe_to_changes()
    granted: dict[str, object] = {
        f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources") if wanted.wants(kind)
    }
    # Acknowledged when the servers have accepted, because the acknowledgement lists what the client will really get.
    session.router.in_background(_subscribe_all(session, call, stream, granted))


def _has_tasks(call: ClientCall) -> bool:
    """Whether the client declares the extension for tasks."""
    try:
        return TASKS_EXTENSION in decode_object(decode_object(call.caller.capabilities)["extensions"])
    except (KeyError, DecodeError, ValidationError):
        return False


async def _subscribe_all(session: Session, call: ClientCall, stream: ListenStream, granted: dict[str, object]) -> None:
    """Subscribe to the resources and tasks in the filter. Those that fail are left out of the acknowledgement."""
    subscriptions = stream.subscriptions
    await session.router.subscriptions.subscribe_all(call, stream.wanted.resourceSubscriptions, stream, subscriptions)
    if subscriptions:
        granted["resourceSubscriptions"] = list(subscriptions)
    if stream.wanted.taskIds:
        await session.router.tasks.subscribe_all(
            call,
            stream.wanted.taskIds,
            lambda entry, params: _report_task(session, stream, entry, params),
            stream.tasks,
        )
        if stream.tasks:
            granted["taskIds"] = list(stream.tasks)
    stream.on_end = lambda: _end_subscriptions(session, stream)
    # The client may have ended the stream meanwhile.
    if session.streams.get(stream.id) is not stream:
        stream.end()
    elif stream.is_acknowledged and len(stream.tasks) < len(stream.wanted.taskIds):
        # Servers that a previous workbench ran have taken their tasks with them.
        session.close_stream(stream)
    else:
        stream.acknowledge(granted)


def _report_task(session: Session, stream: ListenStream, entry: ServerEntry, params: Raw) -> None:
    from mcp_workbench.engine.session.questions import BadQuestion

    try:
        stream.on_task_changed(Raw(bytes(session.attribution_in_results(entry).input_required(params))))
    except BadQuestion:
        # Its question cannot be passed on; the client sees the state of the task when it polls.
        return


def _end_subscriptions(session: Session, stream: ListenStream) -> None:
    session.router.subscriptions.end(stream, stream.subscriptions)
    if stream.tasks:
        session.router.tasks.end(stream.tasks)


def _task(session: Session, call: ClientCall, params: Params) -> None:
    session.router.tasks.ask(call, params)


def _relay(session: Session, call: ClientCall, params: Params) -> None:
    session.router.relay(call, params)


def _removed(session: Session, call: ClientCall, params: Params) -> None:
    call.finish_error(METHOD_NOT_FOUND, f"method `{call.method}` does not exist in MCP {call.revision.name}")


def find(call: ClientCall) -> Method:
    if call.method in call.revision.removed_methods:
        return _removed
    return METHOD_HANDLERS.get(call.method, _relay)


METHOD_HANDLERS: Final[dict[str, Method]] = {
    "tools/call": lambda session, call, params: session.router.call_tool(call, params),
    "tools/list": _list("tools"),
    "prompts/list": _list("prompts"),
    "prompts/get": lambda session, call, params: session.router.get_prompt(call, params),
    "resources/list": _list("resources"),
    "resources/templates/list": _list("resourceTemplates"),
    "resources/read": _read_resource,
    "resources/directory/read": _ask_about_skill,
    "skills/list": _list_skills,
    "skills/get": _ask_about_skill,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "completion/complete": lambda session, call, params: session.router.complete(call, params),
    "logging/setLevel": _set_level,
    "subscriptions/listen": _listen,
    "server/discover": _discover,
    "ping": lambda session, call, params: call.finish_result(b"{}"),
    "tasks/get": _task,
    "tasks/list": _task,
    "tasks/result": _task,
    "tasks/update": _task,
    "tasks/cancel": _task,
}
