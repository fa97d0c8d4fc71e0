"""One program, from its code to its answer.

Owns its limits, and what is told of it: an error names the line, the cause, and what was done before, so that nothing
is repeated blindly. Every call is a call of its own (`make_call`), for the client that sent the program. Knows nothing
about processes (`program_pool`).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from asyncio import timeout
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import Raw

from mcp_workbench.engine.config.program_settings import ProgramsConfig
from mcp_workbench.engine.face.call_values import CallFailed, value_of
from mcp_workbench.engine.face.decisions import RunProgram
from mcp_workbench.engine.face.wording import error_result, failure_text
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.engine.router.call_list import LARGE_TO_READ, make_call, origin_of_call
from mcp_workbench.engine.router.routed_call import InnerCall, RoutedCall
from mcp_workbench.engine.router.router import Router
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL, Passage
from mcp_workbench.errors import DownstreamError
from mcp_workbench.programs.program_pool import ProgramPool, Worker, WorkerEnded

# Of the processor, without waiting for calls. The interpreter is killed if it does not stop by itself.
MAX_CPU_SECONDS: Final = 10.0
MAX_SOURCE_BYTES: Final = 64 * 1024
MAX_PRINTED_BYTES: Final = 64 * 1024
# One result that a call returns to its program, the arguments of a call, and the answer.
MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
# One sleep. It counts towards the time of the program.
MAX_SLEEP: Final = 1.0
# In which the time of a program stands still, for all questions to its user together: as long as one may wait for its
# answer (`STEP_HOLD_TIMEOUT`), so that servers that ask again and again do not keep a program for ever.
MAX_ASKED_SECONDS: Final = 900.0
MAX_PROGRAMS_OF_ONE: Final = 2
MAX_PROGRAMS: Final = 4
DEFAULT_ANSWER_TOKENS: Final = 2_000
# How many of the tools that a program has called are named in an error.
_MAX_NAMED_TOOLS_DONE: Final = 8
# Of the line that an error is about.
_MAX_TOLD_SOURCE: Final = 200
_UNSUPPORTED: Final = "NotImplementedError: "
# What to do instead of what the interpreter does not know: how its message begins, a part of it, and the advice.
_SUBSTITUTES: Final = (
    (_UNSUPPORTED, "yield", "append to a list and return it"),
    (_UNSUPPORTED, "'del'", "assign None, or build a new value without it"),
    (
        _UNSUPPORTED,
        "cannot suspend",
        "make calls in a loop or a comprehension, not in a function for `map`, `filter` or `sorted`",
    ),
    (_UNSUPPORTED, "class inheritance", "use functions, dicts, or a class of its own"),
    (
        "ModuleNotFoundError: ",
        "",
        "available: json, re, csv, datetime, math, collections, itertools, functools, hashlib and time",
    ),
    ("PermissionError: Permission denied: '", "", "programs have no files: call a tool that reads them"),
    ("TypeError: ", "object can't be awaited", "`call` returns the value: leave out `await`"),
)
# The limits that the worker notices.
_PASSED_LIMITS: Final = {
    "print": f"the program prints more than {MAX_PRINTED_BYTES // 1024} KiB, the most allowed",
    "value": f"the program hands over a value of more than {MAX_VALUE_BYTES >> 20} MiB or a million values, the most "
    "allowed for arguments and for the answer",
}


class LimitReached(Exception):
    """Ends a program; the message names the limit."""


class ProgramTime:
    """How long a program may still run. It stands still while its user is asked, up to `MAX_ASKED_SECONDS` in all."""

    def __init__(self, bound: asyncio.Timeout, clock: Callable[[], float]) -> None:
        """`bound`: ends the program at a time of this clock."""
        self._bound = bound
        self._clock = clock
        # Since when its user is asked, and for how long its time may still stand still.
        self._asked_at: float | None = None
        self._patience = MAX_ASKED_SECONDS

    @property
    def is_asked_out(self) -> bool:
        """Whether it stands still no more."""
        asked = 0.0 if self._asked_at is None else self._clock() - self._asked_at
        return asked >= self._patience

    def note_asked(self, is_asked: bool) -> None:
        """Its user is asked something from now on, or nothing any more."""
        due = self._bound.when()
        if self._bound.expired() or due is None or is_asked is (self._asked_at is not None):
            return
        if is_asked:
            self._asked_at = self._clock()
            self._bound.reschedule(due + self._patience)
        elif self._asked_at is not None:
            # What was not needed of it.
            left = max(0.0, self._patience - (self._clock() - self._asked_at))
            self._bound.reschedule(due - left)
            self._asked_at, self._patience = None, left


def longest(seconds: float, patience: float | None) -> tuple[float, str]:
    """How long a program may run that its client waits for so long, and which setting says so."""
    if patience is None or seconds <= patience:
        return seconds, "`programs.seconds`"
    # Its error would find nobody who waits for it.
    return max(patience, 0.0), "`callSeconds` of `clients`: how long the client waits"


class Programs:
    """All programs of one gateway."""

    def __init__(self, pool: ProgramPool) -> None:
        self.pool = pool
        self._running: Counter[str] = Counter()

    async def run(self, router: Router, call: RoutedCall, decision: RunProgram, settings: ProgramsConfig) -> bytes:
        """The result of a program."""
        principal = call.view.principal
        # Over stdio all clients belong to one user, and know nothing of each other.
        whose, what = (principal, "user") if principal else (f"client {call.caller.client}", "client")
        if len(decision.code.encode()) > MAX_SOURCE_BYTES:
            return error_result(f"the program has more than {MAX_SOURCE_BYTES // 1024} KiB; nothing was run")
        if self._running[whose] >= MAX_PROGRAMS_OF_ONE:
            return error_result(
                f"{MAX_PROGRAMS_OF_ONE} programs of this {what} are running, the most allowed; wait until one has ended"
            )
        if self._running.total() >= MAX_PROGRAMS:
            return error_result(f"{MAX_PROGRAMS} programs are running, the most allowed; try again in a moment")
        self._running[whose] += 1
        try:
            return await self._run(router, call, decision, settings)
        finally:
            self._running[whose] -= 1
            if not self._running[whose]:
                del self._running[whose]

    async def _run(self, router: Router, call: RoutedCall, decision: RunProgram, settings: ProgramsConfig) -> bytes:
        run = ProgramRun(router, call, settings, decision.code)
        run.record()
        # Its client waits from now on, also while a process starts.
        began = asyncio.get_running_loop().time()
        try:
            worker = await self.pool.take(call.view.principal)
        except DownstreamError as error:
            return error_result(failure_text(error))
        is_in_order = False
        try:
            said = run.said(await run.through(worker, began))
            is_in_order = True
        except LimitReached as error:
            said = run.stopped(str(error)), True
        except WorkerEnded:
            said = run.stopped("the interpreter ended unexpectedly"), True
        finally:
            if is_in_order:
                self.pool.give_back(worker)
            else:
                self.pool.end(worker)
        return await run.answer(*said, decision.result_budget or DEFAULT_ANSWER_TOKENS)


class ProgramRun:
    def __init__(self, router: Router, call: RoutedCall, settings: ProgramsConfig, code: str) -> None:
        self._router = router
        self._call = call
        self._settings = settings
        self._code = code
        self.id = secrets.token_hex(6)
        self._printed = ""
        # The line of its latest call or pause, and whether it is still there.
        self._line: int | None = None
        self._is_there = False
        # How often which tool was called, and with it those that failed; and the call in flight.
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._inner: InnerCall | None = None
        self._made = 0
        self._origins: dict[tuple[str, str, str], None] = {}

    def record(self) -> None:
        """Record that it runs: its calls refer to it by its id."""
        recorder = self._router.gate.recorder
        if recorder is not None:
            info, peer = self._call.introduction
            recorder(
                "program",
                principal=self._call.view.principal or LOCAL_PRINCIPAL,
                peer=peer,
                client=info.decode(errors="replace"),
                program=self.id,
                sha256=hashlib.sha256(self._code.encode()).hexdigest(),
                bytes=len(self._code.encode()),
            )

    async def through(self, worker: Worker, began: float) -> dict[str, Any]:
        """Run it to its end, as the worker tells it. Raises `LimitReached` and `WorkerEnded`."""
        clock = asyncio.get_running_loop().time
        client = self._call.view.face.recognise(self._call.introduction[0])
        patience = client.patience(with_progress=self._call.progress_token is not None)
        seconds, why = longest(self._settings.seconds, None if patience is None else patience - (clock() - began))
        bound = timeout(seconds)
        time = ProgramTime(bound, clock)
        try:
            async with bound:
                return await self._through(worker, time)
        except TimeoutError:
            if not bound.expired():
                raise
            asked = f" beside {MAX_ASKED_SECONDS:g} s of questions to its user" if time.is_asked_out else ""
            raise LimitReached(f"the program has run for {seconds:.3g} s{asked}, the longest allowed ({why})") from None

    async def _through(self, worker: Worker, time: ProgramTime) -> dict[str, Any]:
        settings = self._settings
        worker.send(
            {
                "code": self._code,
                "calls": settings.calls,
                "cpu": min(MAX_CPU_SECONDS, settings.seconds),
                "memory": settings.memory << 20,
                "printed": MAX_PRINTED_BYTES,
                "value": MAX_VALUE_BYTES,
            }
        )
        while True:
            message = await worker.receive()
            if "end" in message:
                end: dict[str, Any] = message["end"]
                return end
            if "printed" in message:
                self._printed += str(message["printed"])
                continue
            if "line" in message:
                self._line, self._is_there = message["line"], True
            if "limit" in message:
                raise LimitReached(_PASSED_LIMITS[message["limit"]])
            if "sleep" in message:
                seconds = float(message["sleep"])
                # NaN is not within these bounds.
                await asyncio.sleep(seconds if 0 <= seconds <= MAX_SLEEP else MAX_SLEEP)
                answer: dict[str, object] = {"value": None}
            else:
                answer = await self._answered(message, time)
            self._is_there = False
            worker.send(answer)

    async def _answered(self, message: dict[str, Any], time: ProgramTime) -> dict[str, object]:
        self._made += 1
        if self._made > self._settings.calls:
            raise LimitReached(
                f"the program has made {self._settings.calls} calls, the most allowed (`programs.calls`)"
            )
        if "find" in message:
            name, arguments = b'"open_toolbox"', {"query": message["find"]}
        else:
            name, arguments = b'"use_tool"', {"tool": message.get("call"), "arguments": message.get("arguments")}
        inner = self._call.inner({"name": Raw(name), "arguments": Raw(encode(arguments))})
        inner.route.program, inner.on_asked, self._inner = self.id, time.note_asked, inner
        try:
            await make_call(self._router, self._call, inner)
        finally:
            inner.on_asked = None
            time.note_asked(False)
        self._call.report(self._made, 0)
        answer = await self._value(inner)
        self._inner = None
        if inner.was_sent:
            where = self._where(inner)
            (self._failed if "error" in answer else self._done)[where] += 1
        return answer

    async def _value(self, inner: InnerCall) -> dict[str, object]:
        kind, payload = inner.ended.result()
        origin, where = origin_of_call(inner), self._where(inner)
        results = self._call.view.face.kept_results()
        assert results is not None
        try:
            if len(payload) > MAX_VALUE_BYTES:
                limit = f"larger than {MAX_VALUE_BYTES >> 20} MiB, the most that a program can read"
                raise CallFailed(f"[{where}] the result is {limit}" if where else f"the kept result is {limit}")
            keeper = results.keeper(self._call.view, origin)
            read = (kind, payload, where, keeper)
            value_of_it = partial(value_of, *read, is_declared=True)
            value = await asyncio.to_thread(value_of_it) if len(payload) > LARGE_TO_READ else value_of_it()
            keeper.finish()
        except CallFailed as error:
            passage = inner.route.passage
            # Only a step denies; what a face refuses does not exist, or not for this client.
            denied = isinstance(passage, Passage) and passage.decision == "denied" and passage.asked > 0
            return {"error": str(error), "denied": denied}
        if where:
            self._origins[origin] = None
        return {"value": value}

    def _where(self, inner: InnerCall) -> str:
        return "/".join(origin_of_call(inner)).strip("/")

    # ── the answer ──

    def failed(self, why: str) -> str:
        """The text of an error: the cause, what was done before, and what it had printed. That comes last: it may be
        long, and of a long text the beginning is shown."""
        done = [
            f"Done before: {_counted(self._done)}" if self._done else "Done before: no calls",
            f"Failed: {_counted(self._failed)}" if self._failed else "",
        ]
        if self._inner is not None and self._inner.was_sent:
            done.append(f"In flight: {self._where(self._inner)}, which was cancelled and may have been carried out")
        printed = self._printed.rstrip("\n")
        return "\n".join(filter(None, (why, *done, printed and f"Printed before:\n{printed}")))

    def stopped(self, why: str) -> str:
        """The same for a program that has not come to an end of its own."""
        named = self._named(self._line)
        return self.failed("\n".join(filter(None, (named if self._is_there else named and f"after {named}", why))))

    def _named(self, line: object) -> str:
        lines = self._code.split("\n")
        if not isinstance(line, int) or not 0 < line <= len(lines):
            return ""
        return f"line {line}: `{lines[line - 1].strip()[:_MAX_TOLD_SOURCE]}`"

    def said(self, end: dict[str, Any]) -> tuple[str, bool]:
        """The text of an answer, and whether it is an error."""
        if "error" in end:
            return self.failed(self._cause(end["error"])), True
        value = end.get("value")
        text = value if isinstance(value, str) else encode(value).decode()
        if value is None:
            text = "" if self._printed else "(no value: end the program with an expression)"
        return (self._printed + text).rstrip("\n"), False

    async def answer(self, text: str, is_error: bool, budget: int) -> bytes:
        result = encode({"content": [{"type": "text", "text": text}], **({"isError": True} if is_error else {})})
        results = self._call.view.face.kept_results()
        assert results is not None
        shortening = results.shortening(self._call.view, result, budget, tuple(self._origins))
        if shortening is None:
            return result
        await asyncio.to_thread(shortening.work)
        return bytes(shortening.finish())

    def _cause(self, error: dict[str, Any]) -> str:
        settings, message = self._settings, str(error.get("message", ""))
        match error.get("kind"):
            case "time":
                limit = min(MAX_CPU_SECONDS, settings.seconds)
                cause = f"the program has computed for {limit:g} s, the longest allowed"
            case "memory":
                cause = f"the program needs more than {settings.memory} MiB, the most allowed (`programs.memoryMiB`)"
            case "crash":
                cause = f"the interpreter crashed: {message}"
            case _:
                advice = (text for start, part, text in _SUBSTITUTES if message.startswith(start) and part in message)
                instead = next(advice, "")
                cause = f"{message.replace('The monty syntax parser does not yet support', 'no support for')}"
                cause += f"; {instead}" if instead else ""
        return "\n".join(filter(None, (self._named(error.get("line")), cause)))


def _counted(calls: Counter[str]) -> str:
    named = ", ".join(f"{tool} ×{count}" for tool, count in calls.most_common(_MAX_NAMED_TOOLS_DONE))
    more, total = len(calls) - _MAX_NAMED_TOOLS_DONE, calls.total()
    return f"{total} call{'s' * (total != 1)} ({named}{f' and {more} more tools' if more > 0 else ''})"
