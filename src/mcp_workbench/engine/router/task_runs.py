"""Runs a task for a client that knows nothing of tasks: the call is made as one, and polled until it has a result.

Two protocols have tasks: those of 2025-11-25, where a tool says that it must be called as one, and the extension
`io.modelcontextprotocol/tasks`, where the server says so when it is called without. If the client would give up before
the result is there, it is told where the result will be kept. Owns the polling and its bounds.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.downstream.sharing import EVERYTHING
from mcp_workbench.engine.face.decisions import Forward
from mcp_workbench.engine.face.tasks import DEFAULT_LIFE, EXTENSION, life_of
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, decode_object, encode, read_error
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol.constants import CLIENT_CAPABILITIES, PROGRESS_TOKEN
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES, meta_for_server
from mcp_workbench.engine.protocol.results import result_type
from mcp_workbench.engine.router.routed_call import RoutedCall, passage_of
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.face.kept_results import KeptResults
    from mcp_workbench.engine.jsonrpc.messages import Part
    from mcp_workbench.engine.router.router import Router
    from mcp_workbench.engine.steps import EndKind

log = logging.getLogger(__name__)

# Between two requests for the state of a task, whatever its server suggests; without that, doubling between the others.
MIN_POLL_INTERVAL: Final = 0.1
MAX_POLL_INTERVAL: Final = 30.0
FIRST_POLL_INTERVAL: Final = 0.5
LAST_POLL_INTERVAL: Final = 5.0
POLL_TIMEOUT: Final = 30.0
# How long a server is kept running for a task that is not done: until it is asked again.
TASK_HOLD_LIFETIME: Final = 2 * (MAX_POLL_INTERVAL + POLL_TIMEOUT)
# A server that does not tell the state of a task this often in succession has lost it.
MAX_FAILED_POLLS: Final = 3
# In place of the result until there is one.
RUNNING: Final = encode({"content": [{"type": "text", "text": "The task is still running; read this again later."}]})
_TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})


class TaskState(Struct):
    taskId: str
    status: str = "working"
    statusMessage: str | None = None
    # The names of the extension, and those of 2025-11-25.
    ttlMs: float | UnsetType | None = UNSET
    pollIntervalMs: float | None = None
    ttl: float | UnsetType | None = UNSET
    pollInterval: float | None = None
    # Of the extension, once it has ended.
    result: Raw = Raw(b"")
    error: Raw = Raw(b"")

    @property
    def life(self) -> float:
        """How long it is waited for. Its server may delete it after the time that it states, and need not: one that
        states none at all is asked until it says that the task is gone."""
        return life_of(self.ttl if isinstance(self.ttlMs, UnsetType) else self.ttlMs) or DEFAULT_LIFE


class _CoreCreated(Struct):
    task: TaskState


_decode_state: Final = Decoder(TaskState).decode
_decode_core: Final = Decoder(_CoreCreated).decode


class TaskRun:
    """One call that is run as a task."""

    def __init__(self, router: Router, call: RoutedCall, decision: Forward, connection: Connection) -> None:
        self._router = router
        self._call = call
        self._decision = decision
        self._connection = connection
        self._began = monotonic()
        revision = connection.revision
        # Of the extension, and not of 2025-11-25.
        self._is_extension = revision is not None and revision.has_task_extension
        self._state: TaskState | None = None
        self._interval = FIRST_POLL_INTERVAL
        self._kept: str | None = None

    async def run(self, created: Raw | None = None) -> None:
        """Make the call as a task, and answer it. `created`: its server has made a task of it already."""
        try:
            await self._run(created)
        except asyncio.CancelledError:
            self._cancel()
            if self._kept is not None:
                # A limit has stopped it, or the workbench ends.
                self._end_passage("cancelled")
                self._keep(_failed("it was stopped"))
            raise
        except WorkbenchError as error:
            self._end_with_error(error)

    async def _run(self, created: Raw | None) -> None:
        result = await self._create() if created is None else created
        state = self._read_created(result)
        if state is None:
            # The server has answered after all.
            self._router.work_done(self._call)
            self._call.on_result(result)
            return
        self._state = state
        failed = 0
        deadline = self._began + state.life
        while state.status == "working" or (state.status == "input_required" and self._is_extension):
            if monotonic() > deadline:
                raise self._overdue(state)
            self._hold_server(TASK_HOLD_LIFETIME if state.status == "working" else deadline - monotonic())
            if state.status == "input_required":
                try:
                    async with asyncio.timeout(deadline - monotonic()):
                        await self._answer_inputs(result)
                except TimeoutError:
                    raise self._overdue(state) from None
            if self._kept is None:
                self._call.report(0, 0, state.statusMessage or f"the task is {state.status}")
            elif (results := self._results()) is not None:
                results.renew(self._kept)
            await self._pause(state)
            try:
                result = await self._ask("tasks/get", encode({"taskId": state.taskId})[1:-1])
                state = self._state = _decode_state(result)
                failed = 0
            except RemoteError:
                raise
            except (DecodeError, ValidationError) as error:
                raise DownstreamError(f"the state of the task cannot be read: {error}") from None
            except WorkbenchError:
                failed += 1
                if failed >= MAX_FAILED_POLLS or self._connection.traffic.ended is not None:
                    raise
        await self._finish(state)

    def _overdue(self, state: TaskState) -> DownstreamError:
        self._cancel()
        return DownstreamError(f"the task was not done within {state.life:g} s, the time its server keeps it")

    # ── requests about the task ──

    async def _create(self) -> Raw:
        members = (self._decision.body + b"")[1:]
        if not self._is_extension:
            members += b',"task":' + encode({"ttl": int(DEFAULT_LIFE * 1000)})
        return await self._ask("tools/call", members, self._connection.config.timeout, self._meta())

    def _meta(self) -> bytes | None:
        """The client's `_meta`, without its progress token: progress is what the server says of the task."""
        call, traffic = self._call, self._connection.traffic
        agreed, meta = traffic.revision, call.meta
        assert agreed is not None
        if meta is not None and call.progress_token is not None:
            fields = decode_object(meta)
            fields.pop(PROGRESS_TOKEN, None)
            meta = Raw(encode(fields)) if fields else None
        capabilities = self._capabilities
        if meta is not None and capabilities is not None and not call.revision.has_handshake:
            meta = Raw(encode({**decode_object(meta), CLIENT_CAPABILITIES: Raw(capabilities)}))
        info = traffic.identity.info
        return meta_for_server(meta, call.revision, agreed, info, capabilities or b"{}", None, call.log_level)

    @property
    def _capabilities(self) -> bytes | None:
        """What is declared for the client in each request; None where that was done in the handshake."""
        if not self._is_extension:
            return None
        is_mute = self._connection.traffic.withheld is EVERYTHING
        return _with_tasks(NO_CAPABILITIES if is_mute else self._call.caller.capabilities)

    def _read_created(self, result: Raw) -> TaskState | None:
        try:
            if not self._is_extension:
                return _decode_core(result).task
            return _decode_state(result) if b'"taskId"' in bytes(result) else None
        except (DecodeError, ValidationError):
            return None

    async def _ask(self, method: str, members: bytes, seconds: float = POLL_TIMEOUT, meta: bytes | None = None) -> Raw:
        try:
            async with asyncio.timeout(seconds):
                return await self._connection.traffic.ask_as_era(method, members, self._capabilities, meta=meta)
        except TimeoutError:
            raise DownstreamError(f"the server did not answer `{method}` within {seconds:g} s") from None

    async def _answer_inputs(self, result: Raw) -> None:
        assert self._state is not None
        if self._kept is None or not self._call.revision.asks_in_results:
            answers = await self._call.answer_inputs(result)
        else:
            answers = await self._answers_of_reader(self._kept, result)
        fields = {"taskId": self._state.taskId, "inputResponses": answers}
        await self._ask("tasks/update", encode(fields)[1:-1])

    async def _pause(self, state: TaskState) -> None:
        said = state.pollInterval if state.pollIntervalMs is None else state.pollIntervalMs
        if said is None:
            seconds, self._interval = self._interval, min(2 * self._interval, LAST_POLL_INTERVAL)
        else:
            seconds = min(max(said / 1000, MIN_POLL_INTERVAL), MAX_POLL_INTERVAL)
        left = self._until_given_up()
        if left is not None and left <= seconds:
            await asyncio.sleep(max(left, 0.0))
            self._answer_before_the_end()
            seconds -= max(left, 0.0)
        await asyncio.sleep(seconds)

    def _cancel(self) -> None:
        """The client wants no result any more: the server may stop."""
        state = self._state
        # A server that is gone has lost its tasks.
        if state is not None and state.status not in _TERMINAL and self._connection.traffic.ended is None:
            self._router.in_background(self._cancel_task(state.taskId))

    async def _cancel_task(self, id: str) -> None:
        try:
            await self._ask("tasks/cancel", encode({"taskId": id})[1:-1])
        except WorkbenchError as error:
            log.info("[%s] a task could not be cancelled: %s", self._connection.label, error.message)

    def _hold_server(self, seconds: float) -> None:
        # Beyond its idle timeout, because a server that is stopped loses its tasks.
        until = asyncio.get_running_loop().time() + seconds
        self._connection.held_until = max(self._connection.held_until, until)

    # ── the end ──

    async def _finish(self, state: TaskState) -> None:
        if self._kept is not None:
            await self._keep_result(state)
            return
        call = self._call
        if state.status == "cancelled":
            raise DownstreamError(
                "the server cancelled the task" + (f": {state.statusMessage}" if state.statusMessage else "")
            )
        # Read before the call is taken from this run, which answers it if there is nothing to read.
        ended = None if not self._is_extension else _error_of(state) if state.status == "failed" else _result_of(state)
        self._router.work_done(call)
        if ended is None:
            # As the client's own request, whose questions are its client's.
            self._router.ask_for_task_result(call, self._decision, self._connection, state.taskId, self._cancel)
        elif state.status == "failed":
            call.on_error(ended)
        else:
            call.on_result(ended)

    def _end_with_error(self, error: WorkbenchError) -> None:
        if self._kept is not None:
            self._keep(_failed(error.message))
            return
        self._router.work_done(self._call)
        if isinstance(error, RemoteError):
            self._call.on_error(Raw(encode(error.error)))
        else:
            self._call.on_failure(error)

    # ── clients that give up before it ──

    def _until_given_up(self) -> float | None:
        """How long the client is known to wait; None if it waits on, or nothing can be kept for it."""
        call = self._call
        if self._kept is not None or call.is_inner or self._results() is None:
            return None
        client = call.view.face.recognise(call.introduction[0])
        patience = client.patience(with_progress=call.progress_token is not None)
        return None if patience is None else self._began + patience - monotonic()

    def _results(self) -> KeptResults | None:
        return self._call.view.face.kept_results()

    def _answer_before_the_end(self) -> None:
        """Tell the client where the result will be, and go on without it."""
        results = self._results()
        assert results is not None and self._state is not None
        entry = self._decision.entry
        self._kept = results.keep(self._call.view, (entry.toolbox, entry.name, self._decision.item), RUNNING)
        text = (
            f"The tool is still running, as a task. Its result will be kept: read it later with use_tool "
            f'{{"tool": "{self._kept}"}}.'
        )
        # From here on nobody waits, and cancelling the answered call does not end the task.
        self._router.work_done(self._call)
        run = asyncio.current_task()
        assert run is not None
        route, passage = self._call.route, passage_of(self._call)
        # The call has not ended: limits count it, and the audit records its end, when its task has.
        route.passage, route.tracker = None, None
        self._call.finish_result(encode({"content": [{"type": "text", "text": text}]}))
        route.passage, route.on_cancelled = passage, partial(_stop, run)

    async def _answers_of_reader(self, kept: str, result: Raw) -> dict[str, Raw]:
        """Ask within the next call that reads the kept result: a client that is asked in results has to come back."""
        results = self._results()
        assert results is not None
        answered: asyncio.Future[dict[str, Raw]] = asyncio.get_running_loop().create_future()

        def take(reader: RoutedCall) -> None:
            results.next_reader(kept, None)
            reader.route.entry = self._decision.entry
            self._router.start_for(reader, ask(reader))

        async def ask(reader: RoutedCall) -> None:
            said = RUNNING
            try:
                answers = await reader.answer_inputs(result)
                if not answered.done():
                    answered.set_result(answers)
            except DownstreamError as error:
                said = _failed(error.message)
                if not answered.done():
                    answered.set_exception(error)
            except asyncio.CancelledError:
                # Another one may read it.
                if not answered.done():
                    results.next_reader(kept, take)
                raise
            self._router.work_done(reader)
            reader.finish_result(said)

        results.next_reader(kept, take)
        try:
            while not answered.done():
                results.renew(kept)
                await asyncio.wait({answered}, timeout=LAST_POLL_INTERVAL)
            return answered.result()
        finally:
            answered.cancel()
            results.next_reader(kept, None)

    async def _keep_result(self, state: TaskState) -> None:
        if self._is_extension:
            if state.status != "completed":
                raise RemoteError(read_error(_error_of(state)))
            result = bytes(_result_of(state))
        else:
            result = bytes(await self._ask("tasks/result", encode({"taskId": state.taskId})[1:-1]))
        self._keep(result)

    def _keep(self, result: bytes) -> None:
        results = self._results()
        assert results is not None and self._kept is not None
        results.replace(self._kept, result)
        self._end_passage("result", result)

    def _end_passage(self, kind: EndKind, *payload: Part) -> None:
        if (passage := self._call.route.passage) is not None:
            passage.end(kind, *payload)


def _failed(why: str) -> bytes:
    return encode({"content": [{"type": "text", "text": f"The task has failed: {why}"}], "isError": True})


def _stop(run: asyncio.Task[None]) -> None:
    run.cancel()


def _error_of(state: TaskState) -> Raw:
    if bytes(state.error)[:1] == b"{":
        return state.error
    return Raw(encode({"code": INTERNAL_ERROR, "message": state.statusMessage or f"the task is {state.status[:100]}"}))


def _result_of(state: TaskState) -> Raw:
    """Raises `DownstreamError` if a task that has ended has none. One that asks or is a task again would have the call
    made once more."""
    if state.status != "completed":
        raise DownstreamError(f"the server gave the task the status `{state.status[:100]}`, which MCP does not have")
    if bytes(state.result)[:1] != b"{" or result_type(state.result) not in (None, "complete"):
        raise DownstreamError("the server says that the task is completed, but gives no usable result")
    return state.result


def _with_tasks(capabilities: bytes) -> bytes:
    """The capabilities of a client, with tasks, which we handle for it."""
    members = decode_object(capabilities)
    try:
        extensions = decode_object(members.get("extensions", b"{}"))
    except (DecodeError, ValidationError):
        extensions = {}
    return encode({**members, "extensions": {**extensions, EXTENSION: Raw(b"{}")}})
