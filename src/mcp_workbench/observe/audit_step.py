"""The audit: a line for each request that reaches a server or is kept from it, and for each event beside them.

A step around requests that looks and never decides (`steps.Step`). What it keeps of a request is small and does not
hold on to its arguments or its answer, unless arguments are to be written. What a line says is `audit_lines`, where it
goes `audit_file` and `audit_streams`, when `audit_writer`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench import __version__
from mcp_workbench.errors import ConfigError
from mcp_workbench.observe.audit_arguments import LARGEST_ARGUMENTS
from mcp_workbench.observe.audit_file import AuditFile
from mcp_workbench.observe.audit_lines import CallEntry, EventEntry, Field, LineMaker
from mcp_workbench.observe.audit_writer import MOST_QUEUED, MOST_QUEUED_BY_WAITING, AuditWriter, Destination

if TYPE_CHECKING:
    from mcp_workbench.config.model import AuditConfig
    from mcp_workbench.config.redact import Redactor
    from mcp_workbench.steps import EventKind, GuardedRequest, Outcome, Verdict

# A call that waits for room in the queue waits so long, and then goes on: the audit must not stop the work.
WAIT_SECONDS: Final = 2.0
WAIT_POLL_SECONDS: Final = 0.01
# In a larger answer it is not looked for whether the tool said that it failed.
MOST_SEARCHED: Final = 256 * 1024
# Requests that wait with all that belongs to them, and how large that may be; of others only a summary waits.
MOST_WHOLE: Final = 512
LARGEST_WHOLE: Final = 16 * 1024


class _Trace(Struct):
    traceparent: str = ""


class _ToolOutcome(Struct):
    isError: bool = False


_read_trace: Final = Decoder(_Trace).decode
_read_result: Final = Decoder(_ToolOutcome).decode


class Audit:
    """The step, and what events are handed to."""

    _writer: AuditWriter

    def __init__(self, config: AuditConfig) -> None:
        self._waits = config.when_full == "wait"
        # Unless calls wait for room, there is nothing to ask it.
        self.is_listener = not self._waits
        self._keeps_arguments = config.arguments != "none"
        self._most = MOST_QUEUED_BY_WAITING if self._waits else MOST_QUEUED

    def begin(self, writer: AuditWriter) -> None:
        """From now on it is written down."""
        self._writer = writer

    def check(self, request: GuardedRequest) -> Verdict | Awaitable[Verdict]:
        return self._room() if self._waits and self._writer.is_full else None

    async def _room(self) -> None:
        now = asyncio.get_running_loop().time
        end = now() + WAIT_SECONDS
        # Polled: the thread that makes room should not have to know who waits, and it is rare.
        while self._writer.is_full and now() < end:  # noqa: ASYNC110
            await asyncio.sleep(WAIT_POLL_SECONDS)

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        # The client's answer is about to leave: what can be is left to the thread. But what waits there must not hold
        # on to large messages, nor, when it does not get on, to many.
        writer = self._writer
        if len(writer.queue) < MOST_WHOLE and len(request.body) + outcome.size < LARGEST_WHOLE:
            writer.queue.append((request, outcome))
            if not writer.is_awake:
                writer.wake()
        else:
            writer.put(self.summarised((request, outcome)), self._most)

    def summarised(self, ended: EndedRequest) -> CallEntry:
        """What of it is written. From any thread."""
        request, outcome = ended
        body, size = request.body, outcome.size
        return CallEntry(
            (
                request.principal,
                request.peer,
                request.client,
                request.session,
                request.method,
                request.toolbox,
                request.server,
                request.item,
                outcome.decision,
                outcome.rules,
            ),
            time.time() - (time.monotonic() - outcome.arrived),
            outcome.ended - outcome.arrived,
            outcome.sent - outcome.arrived if outcome.sent is not None else 0.0,
            _end_of(outcome, size),
            outcome.code if outcome.kind == "error" else None,
            len(body) + 1,
            size,
            _trace_of(request.meta) if request.meta is not None else "",
            body if self._keeps_arguments and len(body) <= LARGEST_ARGUMENTS else b"",
        )

    def record(self, kind: EventKind | str, /, **fields: Field) -> None:
        """An event (`steps.EventRecorder`)."""
        self._writer.put(EventEntry(kind, time.time(), fields), self._most)

    def close(self) -> None:
        """Write what is left."""
        self.record("audit", event="stopped")
        self._writer.close()


def _end_of(outcome: Outcome, size: int) -> str:
    """`result`, or `tool_error` where the tool itself says that it failed; `refused` where it was never asked."""
    if outcome.decision == "denied":
        return "refused"
    if outcome.kind != "result":
        return outcome.kind
    payload = b"".join(outcome.payload) if size <= MOST_SEARCHED else b""
    if b'"isError"' not in payload:
        return "result"
    try:
        return "tool_error" if _read_result(payload).isError else "result"
    except (DecodeError, ValidationError):
        return "result"


def _trace_of(meta: Raw) -> str:
    """The trace that the request belongs to (W3C Trace Context), where the client says so."""
    if b'"traceparent"' not in bytes(meta):
        return ""
    try:
        version, trace, *_ = (*_read_trace(meta).traceparent.split("-"), "")
    except (DecodeError, ValidationError, ValueError):
        return ""
    is_valid = len(version) == 2 and len(trace) == 32 and not trace.strip("0123456789abcdef")
    return trace if is_valid else ""


EndedRequest = tuple["GuardedRequest", "Outcome"]


def open_audit(config: AuditConfig, redactor: Redactor, path: str, *, stdout_is_free: bool) -> Audit:
    """Begin to write. Raises `ConfigError` where that cannot be: nothing is served unseen.

    `path` is the configuration's."""
    make_line = LineMaker(redactor, config.arguments)
    destination, where = _destination(config, make_line, stdout_is_free=stdout_is_free)
    audit = Audit(config)

    def describe(entry: EndedRequest | CallEntry | EventEntry, lost: int) -> bytes:
        return make_line(entry if isinstance(entry, CallEntry | EventEntry) else audit.summarised(entry), lost)

    audit.begin(AuditWriter(destination, describe, where))
    audit.record("audit", event="started", pid=os.getpid(), version=__version__, config=path)
    return audit


def _destination(config: AuditConfig, make_line: LineMaker, *, stdout_is_free: bool) -> tuple[Destination, str]:
    if config.file is not None:

        def notice(text: str) -> bytes:
            return make_line(EventEntry("audit", time.time(), {"event": "file", "reason": text}), 0)

        file = AuditFile(config.file, config.max_file_bytes, config.keep_files, notice)
        try:
            file.open()
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"the audit cannot be written to `{config.file}`: {reason}",
                hint="set `audit` to a file in a folder of yours, on a disk of this machine",
            ) from None
        return file, config.file
    from mcp_workbench.observe.audit_streams import Stdout, Syslog

    if config.syslog is not None:
        return Syslog(config.syslog), config.syslog
    if not stdout_is_free:
        raise ConfigError(
            "the audit cannot be written to stdout: over stdio, that is where the client reads its answers",
            hint="use `file` or `syslog` in `audit`, or serve over HTTP with `serve --http`",
        )
    return Stdout(), "stdout"
