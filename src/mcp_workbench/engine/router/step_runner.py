"""The steps around every request to a server: the only place where a request is let through.

Acts on the verdicts of steps. Without steps there is no runner, and the router sends requests at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic
from typing import Final, NamedTuple, cast

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import replace

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.sharing import SHARED
from mcp_workbench.engine.face.decisions import Answer, Forward, Reject
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Body, ErrorObject, LargeObject, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.router.routed_call import Notifier, Requester, RoutedCall, StartFor, passage_of
from mcp_workbench.engine.steps import (
    AnyPassage,
    CountedPassage,
    CountingStep,
    DefinitionStep,
    Denial,
    GuardedRequest,
    Held,
    HidingStep,
    IdentifyingStep,
    Observer,
    Passage,
    ResultStep,
    Step,
    Substitute,
    Tracker,
    UncheckedPassage,
)
from mcp_workbench.errors import WorkbenchError

log = logging.getLogger(__name__)
# The maximum number of notifications that steps hold. The limit on calls does not include them, and clients send few.
MAX_HELD_NOTIFICATIONS: Final = 100
RESULT_NOT_JUDGED: Final = "a check of this result failed, so it is withheld; the log of the workbench says why"
# Marks the results in which faces report an error.
IS_ERROR_TRUE: Final = b'"isError":true'
# Recorded instead of a rule, for an unknown item or invalid arguments.
NOT_FOUND: Final = "face"
# The maximum number of cached descriptions of calls: most clients use the same few tools.
MAX_CACHED_ORIGINS: Final = 1024
# Why a result must be kept from its client; None if it need not.
JudgeResult = Callable[[Raw], Denial | None]
read_text: Final = Decoder(str).decode


class StepRunner:
    """Sends every request through the steps, in order."""

    def __init__(
        self,
        steps: tuple[Step, ...],
        tracker: Tracker | None,
        start_for: StartFor,
        in_background: Callable[[Awaitable[None]], None],
        stop: Callable[[RoutedCall, Denial], None],
        act: Callable[[RoutedCall, Forward], None],
    ) -> None:
        self._act = act
        self._tracker = tracker
        # The steps that record what happens, whether they decide or not.
        self._observers = tuple(step for step in steps if isinstance(step, Observer))
        # The observers that do not decide. They are first in the list of steps, and last when a request ends.
        self._passive = tuple(step for step in self._observers if not step.is_asked)
        self._steps = tuple(step for step in steps if step not in self._passive)
        # No step decides: the cheapest case, which is handled separately.
        self._is_unchecked = len(self._passive) <= 1 and not self._steps
        self._sole_observer = self._passive[0] if self._is_unchecked and self._passive else None
        # Nobody else wants to know, as in most workbenches.
        self._sole_tracker = tracker if not steps else None
        # The same for the router, which then does not ask us.
        self.plain_tracker = self._sole_tracker
        self._origins: dict[object, GuardedRequest] = {}
        # If there are any, a server has to be listed before anything is sent to it.
        self.definition_steps = tuple(
            cast("DefinitionStep", step) for step in self._steps if getattr(step, "judges_definitions", False)
        )
        self._result_steps = tuple(step for step in self._steps if isinstance(step, ResultStep))
        # The methods, as JSON, whose results have to be judged.
        self.judged_methods = frozenset(encode(each) for step in self._result_steps for each in step.judged_methods)
        self._identifier = next((step for step in self._steps if isinstance(step, IdentifyingStep)), None)
        self._counting = tuple(step for step in self._steps if isinstance(step, CountingStep))
        self._start_for = start_for
        self._in_background = in_background
        self._stop = stop
        self._held_notifications = 0

    # ── the identity of the requester ──

    def begin_to_wait(self, call: RoutedCall) -> None:
        """Store the time of arrival and the identity of a call before it waits: the identity may change meanwhile."""
        if passage_of(call) is None and call.route.arrived is None:
            call.route.arrived = monotonic()
        if self._identifier is not None and call.route.identity is None:
            call.route.identity = self._identifier.identify(call.caller.principal)

    def recall_identity(self, call: RoutedCall) -> None:
        """Restore the identity when a call continues, so that decisions are about the user who made it."""
        if self._identifier is not None and call.route.identity is not None:
            self._identifier.recall(call.route.identity)

    def _describe(
        self,
        call: RoutedCall,
        method: str,
        entry: ServerEntry | None,
        item: str,
        body: Body,
        meta: Raw | None = None,
    ) -> GuardedRequest:
        identity = call.route.identity
        if identity is None and self._identifier is not None:
            identity = self._identifier.identify(call.caller.principal)
        return _describe(call, call.introduction, method, entry, item, body, meta, identity, call.route.program)

    # ── a request with its own response ──

    def admit(
        self,
        call: RoutedCall,
        method: str,
        entry: ServerEntry | None,
        item: str,
        body: Body,
        send: Callable[[], None],
    ) -> None:
        """Call `send` once every step has let it pass; otherwise answer as a step decided."""
        if self.passes(call, method, entry, item, body, send):
            send()

    def lets_pass(self, call: RoutedCall, decision: Forward) -> bool:
        """Whether every step lets it pass at once. If they do so later, the decision is carried out then."""
        route = call.route
        passage, arrived = route.passage, route.arrived
        # It has passed the steps already, perhaps after being held for minutes. An undecided passage is from
        # `unsent`: the server could not be listed until the user had signed in, so the steps have not seen the call
        # yet.
        if passage is not None and (not isinstance(passage, Passage) or passage.decision == "passed"):
            return not self.denies_again(call, decision)
        if self._sole_tracker is not None:
            self._begin_counting(call, decision, self._sole_tracker)
            return True
        # No step can deny it: there is nothing to check, and equal calls share one description.
        if self._is_unchecked:
            observer, tracker = self._sole_observer, self._tracker
            caller, info, peer = call.caller, call.client_info, call.session.peer
            key = (caller, info, peer, call.method, decision.entry, decision.item, route.program)
            origin = self._origins.get(key) or self._new_origin(key, call, decision)
            now = monotonic()
            unchecked = route.passage = (
                UncheckedPassage(observer, tracker, origin, decision.body, call.meta, now)
                if arrived is None
                else UncheckedPassage(observer, tracker, origin, decision.body, call.meta, arrived, now)
            )
            if tracker is not None:
                tracker.begin(unchecked)
            return True
        route.entry, route.decision = decision.entry, decision
        later = partial(self._act, call, decision)
        return self.passes(call, call.method, decision.entry, decision.item, decision.body, later)

    def _begin_counting(self, call: RoutedCall, decision: Forward, tracker: Tracker) -> None:
        """Count a call when it ends. It has a passage from now on if it had to wait, or somebody watches it."""
        route = call.route
        if route.tracker is not None:
            # It has passed already.
            return
        now, has_waited = monotonic(), route.arrived is not None
        route.tracker, route.decision = tracker, decision
        if not has_waited:
            route.arrived = now
            if not tracker.is_watched:
                return
        passage = passage_of(call)
        assert passage is not None
        if has_waited:
            passage.sent = now
        tracker.begin(passage)

    def passes(
        self,
        call: RoutedCall,
        method: str,
        entry: ServerEntry | None,
        item: str,
        body: Body,
        send: Callable[[], None],
    ) -> bool:
        """Whether every step lets it pass at once. If not, it is answered, or sent later, as the steps decide."""
        request = self._describe(call, method, entry, item, body, call.meta)
        if "requestState" in call.params:
            # Our own state has been removed from the body by now. An approval of the first request covers the retry.
            request = replace(request, is_retry=True)
        before = call.route.passage
        if before is not None and before.tracker is not None:
            before.tracker.forget(before)
        passage = call.route.passage = Passage(
            self._steps, request, self._passive, _arrival(call), tracker=self._tracker
        )
        verdict = passage.check()
        if self._tracker is not None:
            # Afterwards, because what passes at once is not held.
            self._tracker.begin(passage)
        if verdict is None:
            if passage.limit is not None:
                self._limit(passage, call)
            return True
        if isinstance(verdict, Held):
            self._tell_changed(passage)
            self._start_for(call, self._wait(call, passage, send))
        else:
            _act_on(verdict, call, send)
        return False

    def _begin(self, passage: Passage) -> None:
        if self._tracker is not None:
            self._tracker.begin(passage)

    def _tell_changed(self, passage: AnyPassage) -> None:
        if passage.tracker is not None:
            passage.tracker.changed(passage)

    def wait_for_server(self, call: RoutedCall) -> None:
        """It has passed the steps, but its server is not ready."""
        if (passage := passage_of(call)) is not None:
            passage.is_waiting = True
            self._tell_changed(passage)

    def note_sent(self, call: RoutedCall) -> None:
        """It is sent now, after it had to wait for its server."""
        passage = call.route.passage
        if passage is not None and passage.is_waiting:
            passage.is_waiting, passage.reached = False, monotonic()
            self._tell_changed(passage)

    def _new_origin(self, key: object, call: RoutedCall, decision: Forward) -> GuardedRequest:
        """Describe the requester and the item, once for all equal calls."""
        if len(self._origins) >= MAX_CACHED_ORIGINS:
            self._origins.clear()
        found = self._origins[key] = self._describe(call, call.method, decision.entry, decision.item, b"")
        return found

    def denies_again(self, call: RoutedCall, decision: Forward) -> bool:
        """Whether a call is denied after it had passed: its server has been listed again, or the steps have changed."""
        if not self.definition_steps:
            return False
        before = passage_of(call)
        passage = before if isinstance(before, Passage) else self._belated(call, decision, before)
        denial = passage.check_again(self.definition_steps)
        if denial is not None:
            self._refuse(call, passage, denial)
        return denial is not None

    def _refuse(self, call: RoutedCall, passage: Passage, denial: Denial) -> None:
        before = call.route.passage
        if before is not None and before is not passage and before.tracker is not None:
            before.tracker.forget(before)
        call.route.passage = passage
        call.refuse(denial)

    def judge_of_result(self, call: RoutedCall, decision: Forward) -> JudgeResult:
        """What judges the result of a call before its client gets it. For any thread."""
        method = read_text(decision.method)
        request = self._describe(call, method, decision.entry, decision.item, b"{")
        judging = [step for step in self._result_steps if method in step.judged_methods]

        def judge(result: Raw) -> Denial | None:
            try:
                return next(filter(None, (step.judge_result(request, result) for step in judging)), None)
            except Exception:
                log.exception("a step around requests failed; please report this")
                return Denial(INTERNAL_ERROR, RESULT_NOT_JUDGED)

        return judge

    def withhold_result(self, call: RoutedCall, decision: Forward, denial: Denial) -> None:
        """Answer with this denial instead of the result."""
        before = passage_of(call)
        passage = before if isinstance(before, Passage) else self._belated(call, decision, before)
        passage.withhold(denial)
        self._refuse(call, passage, denial)

    def _belated(
        self, call: RoutedCall, decision: Forward, before: UncheckedPassage | CountedPassage | None
    ) -> Passage:
        """The passage of a call that began without deciding steps: its observers still learn how it ends."""
        request = self._describe(call, call.method, decision.entry, decision.item, decision.body, call.meta)
        if before is None:
            return Passage((), request, self._observers, tracker=self._tracker)
        observers = (before.observer,) if isinstance(before, UncheckedPassage) and before.observer is not None else ()
        return Passage((), request, observers, before.arrived, tracker=before.tracker)

    async def _wait(self, call: RoutedCall, passage: Passage, send: Callable[[], None]) -> None:
        verdict = await passage.decided(call.user())
        if verdict is None:
            self._limit(passage, call)
            self._tell_changed(passage)
        _act_on(verdict, call, send)

    def _limit(self, passage: Passage, call: RoutedCall) -> None:
        """Stop the call after the time limit that a step set."""
        limit = passage.limit
        if limit is not None and limit.within is not None and limit.late is not None:
            passage.timer = asyncio.get_running_loop().call_later(limit.within, self._stop, call, limit.late)

    def refuses_to_answer(self, call: RoutedCall) -> bool:
        """Whether a request that we would answer ourselves is refused, because its caller has reached a limit.

        It counts once, whatever is decided about it later."""
        route = call.route
        if not self._counting or route.is_counted or route.passage is not None:
            return False
        route.is_counted = True
        size = sum(memoryview(each).nbytes for each in call.params.values())
        request = self._describe_wanted(call)
        for step in self._counting:
            denial = step.count(request, size)
            if denial is not None:
                passage = route.passage = self._refused(request, _arrival(call))
                passage.decision, passage.rules = "denied", (denial.rule,)
                call.refuse(denial)
                return True
        return False

    def notes(self, call: RoutedCall, decision: Answer | Reject) -> bool:
        """Whether the face answers this with an error and sends it to no server. If so, observers learn of it and its
        end.

        For items that do not exist, or are hidden from this client, they get the name that the client used."""
        if isinstance(decision, Answer) and IS_ERROR_TRUE not in decision.result:
            return False
        refusal = decision.refusal
        if refusal is None:
            request = self._describe_wanted(call)
            rule = self._hiding_rule(request)
        else:
            request = self._describe(call, call.method, refusal.entry, refusal.item, b"{", call.meta)
            rule = refusal.rule
        passage = call.route.passage = self._refused(request, _arrival(call))
        passage.decision, passage.rules = "denied", (rule,)
        return True

    def _hiding_rule(self, request: GuardedRequest) -> str:
        """The rule that hides it, if a step knows one; otherwise it does not exist."""
        for step in self._steps:
            if isinstance(step, HidingStep) and (rule := step.hiding_rule(request)):
                return rule
        return NOT_FOUND

    def _describe_wanted(self, call: RoutedCall) -> GuardedRequest:
        wanted = wanted_item(call.method, call.params)
        request = self._describe(call, call.method, None, wanted.item, b"{", call.meta)
        return replace(request, toolbox=wanted.toolbox, server=wanted.server)

    def unsent(self, call: RoutedCall) -> Passage | None:
        """The passage of a call that ends while it waits for its server to be listed, so that observers learn of its
        end. None for requests that we answer ourselves, such as lists, which name no item."""
        route = call.route
        if route.arrived is None:
            return None
        if route.entry is not None and route.item:
            request = self._describe(call, call.method, route.entry, route.item, b"{", call.meta)
        else:
            request = self._describe_wanted(call)
        # Each call of a list is recorded for itself.
        return self._refused(request, route.arrived) if request.item not in ("", OPEN_TOOLBOX, _USE) else None

    def _refused(self, request: GuardedRequest, arrived: float) -> Passage:
        """The passage of a request that reaches no server, so that those who observe learn of its end."""
        return Passage((), request, self._observers, arrived, tracker=self._tracker)

    def judge_by_list(
        self, call: RoutedCall, method: str, entry: ServerEntry, item: str, passage: Passage | None
    ) -> None:
        """Check a request again now that its server has been listed. Raises `RemoteError` if it is denied."""
        if passage is None:
            passage = Passage((), self._describe(call, method, entry, item, b"{", call.meta))
        denial = passage.check_again(self.definition_steps)
        if denial is not None:
            raise RemoteError(ErrorObject(denial.code, denial.message))

    # ── one part of a request to several servers ──

    async def run(
        self,
        call: RoutedCall,
        method: str,
        entry: ServerEntry,
        item: str,
        body: Body,
        work: Callable[[Passage], Awaitable[None]],
    ) -> None:
        """Do `work` if every step lets it pass. The part has no response of its own. Raises what `work` raises."""
        request = self._describe(call, method, entry, item, body, call.meta)
        passage = Passage(self._steps, request, self._passive, tracker=self._tracker)
        try:
            verdict = passage.check()
            self._begin(passage)
            if isinstance(verdict, Held):
                self._tell_changed(passage)
                verdict = await passage.decided()
            if verdict is not None:
                _end(passage, verdict)
                return
            await work(passage)
            passage.end("result", b"{}")
        except RemoteError as error:
            passage.end("error", encode(error.error))
            raise
        except WorkbenchError as error:
            passage.end("error", encode({"code": INTERNAL_ERROR, "message": error.message}))
            raise
        finally:
            # If it has not ended by now, it was cancelled.
            passage.end("cancelled")

    # ── a notification, which has no response ──

    def notify(self, sender: Notifier, method: str, body: Body, send: Callable[[], None]) -> None:
        """Call `send` once every step has let it pass; otherwise it is dropped."""
        passage = Passage(
            self._steps,
            _describe(sender, (sender.client_info, sender.peer), method, None, "", body),
            self._passive,
            tracker=self._tracker,
        )
        verdict = passage.check()
        self._begin(passage)
        if not isinstance(verdict, Held):
            _finish_notification(passage, verdict, send)
        # A notification has no response, so the client need not learn that it was dropped.
        elif self._held_notifications >= MAX_HELD_NOTIFICATIONS:
            log.warning(
                "dropped `%s` from a client: %d notifications are waiting already",
                method[:100],
                MAX_HELD_NOTIFICATIONS,
            )
            passage.end("cancelled")
        else:
            self._held_notifications += 1
            self._in_background(self._wait_and_notify(passage, send))

    async def _wait_and_notify(self, passage: Passage, send: Callable[[], None]) -> None:
        try:
            _finish_notification(passage, await passage.decided(), send)
        finally:
            self._held_notifications -= 1
            passage.end("cancelled")


def _arrival(call: RoutedCall) -> float:
    """It is with the steps now, and came before if it had to wait."""
    return monotonic() if call.route.arrived is None else call.route.arrived


def _describe(
    sender: Requester,
    introduction: tuple[bytes, str],
    method: str,
    entry: ServerEntry | None,
    item: str,
    body: Body,
    meta: Raw | None = None,
    identity: object = None,
    program: str = "",
) -> GuardedRequest:
    client, peer = introduction
    session = sender.caller.client
    return GuardedRequest(
        principal=sender.caller.principal,
        client=client,
        session=session if session > SHARED else SHARED,
        method=method,
        toolbox="" if entry is None else entry.toolbox,
        server="" if entry is None else entry.config.name,
        item=item,
        body=body,
        meta=meta,
        peer=peer,
        identity=identity,
        program=program,
    )


def _act_on(verdict: Denial | Substitute | None, call: RoutedCall, send: Callable[[], None]) -> None:
    match verdict:
        case None:
            send()
        case Substitute():
            call.finish_result(verdict.result)
        case Denial():
            call.refuse(verdict)


def _finish_notification(passage: Passage, verdict: Denial | Substitute | None, send: Callable[[], None]) -> None:
    if verdict is None:
        send()
        passage.end("result")
    else:
        _end(passage, verdict)


def _end(passage: Passage, verdict: Substitute | Denial) -> None:
    if isinstance(verdict, Substitute):
        passage.end("result", verdict.result)
    else:
        passage.end("error", encode({"code": verdict.code, "message": verdict.message, "data": verdict.data}))


class WantedItem(NamedTuple):
    """An item that does not exist, or not for this client."""

    toolbox: str = ""
    server: str = ""
    item: str = ""


class _WantedTool(Struct):
    toolbox: str = ""
    server: str = ""
    tool: str = ""


class _WantedArguments(Struct):
    tool: str | _WantedTool = ""
    toolbox_name: str = ""


class _WantedReference(Struct):
    name: str = ""
    uri: str = ""


# Prefixes of our own tools that lead to others.
_USE: Final = "use_tool"
OPEN_TOOLBOX: Final = "open_toolbox"
_read_arguments: Final = Decoder(_WantedArguments).decode
_read_reference: Final = Decoder(_WantedReference).decode


def wanted_item(method: str, params: Mapping[str, Raw]) -> WantedItem:
    """Read the client's own name for it from the params of a request; empty if they cannot be read."""
    try:
        if method == "completion/complete":
            reference = _read_reference(params["ref"])
            return WantedItem(item=reference.name or reference.uri)
        member = next((each for each in ("name", "uri", "taskId") if each in params), None)
        item = "" if member is None else read_text(params[member])
    except (KeyError, DecodeError, ValidationError):
        return WantedItem()
    # Of a large request, no more is decoded than a name.
    if method != "tools/call" or not item.startswith((_USE, OPEN_TOOLBOX)) or type(params) is LargeObject:
        return WantedItem(item=item)
    try:
        arguments = _read_arguments(params["arguments"])
    except (KeyError, DecodeError, ValidationError):
        return WantedItem(item=item)
    if item == OPEN_TOOLBOX:
        return WantedItem(arguments.toolbox_name, item=item)
    wanted = arguments.tool
    if isinstance(wanted, _WantedTool):
        return WantedItem(wanted.toolbox, wanted.server, wanted.tool)
    # Split at the first slashes, unlike when a tool is looked up, because there are no known names to compare with.
    toolbox, _, rest = wanted.partition("/")
    server, slash, tool = rest.partition("/")
    return WantedItem(toolbox, server, tool) if slash else WantedItem(item=wanted or item)
