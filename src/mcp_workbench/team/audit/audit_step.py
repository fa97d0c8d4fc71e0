"""The audit: a line for each request that is sent to a server or denied, and for each event.

A step around requests that observes and never decides (`steps.Observer`). What it keeps of a request is small, and does
not include its arguments or its result, unless arguments are to be written. `audit_lines` makes the lines, `audit_file`
and `audit_streams` write them, and `audit_writer` decides when.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from mcp_workbench import __version__
from mcp_workbench.engine.jsonrpc.messages import read_error
from mcp_workbench.engine.steps import APPROVED, arguments_digest, new_call_id
from mcp_workbench.errors import ConfigError
from mcp_workbench.team.audit.audit_arguments import MAX_AUDITED_ARGUMENT_BYTES
from mcp_workbench.team.audit.audit_file import AuditFile
from mcp_workbench.team.audit.audit_lines import (
    MAX_CACHED_PARTS,
    AuditLine,
    CallEntry,
    EventEntry,
    Field,
    LineMaker,
    trace_of,
)
from mcp_workbench.team.audit.audit_writer import (
    MAX_QUEUED_ENTRIES,
    MAX_QUEUED_ENTRIES_BY_WAITING,
    AuditWriter,
    Destination,
)

if TYPE_CHECKING:
    from mcp_workbench.engine.config.audit_settings import AuditConfig
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.engine.jsonrpc.messages import Part
    from mcp_workbench.engine.steps import EndKind, EventKind, GuardedRequest, Outcome, UncheckedPassage, Verdict

# How long a call waits for room in the queue. Then it continues, because the audit must not block work.
QUEUE_TIMEOUT: Final = 2.0
QUEUE_POLL_INTERVAL: Final = 0.01
# As many as there are common parts of lines.
MAX_AUDITED_ORIGINS: Final = MAX_CACHED_PARTS


class Audit:
    """The step, and the recorder of events."""

    def __init__(self, config: AuditConfig, writer: AuditWriter) -> None:
        self._writer = writer
        # Longer params are not kept.
        self._longest_kept = -1 if config.arguments == "none" else MAX_AUDITED_ARGUMENT_BYTES
        self._waits = config.when_full == "wait"
        # It need not be asked unless calls wait for room.
        self.is_asked = self._waits
        self._origins: dict[object, GuardedRequest] = {}
        self._most = MAX_QUEUED_ENTRIES_BY_WAITING if self._waits else MAX_QUEUED_ENTRIES

    @property
    def lost(self) -> int:
        """How many lines were lost so far."""
        return self._writer.lost

    def record_start(self, path: str) -> None:
        """Record that the audit has started. `path` is that of the configuration."""
        self.record("audit", event="started", pid=os.getpid(), version=__version__, config=path)

    def check(self, request: GuardedRequest) -> Verdict | Awaitable[Verdict]:
        return self._room() if self._waits and self._writer.is_full else None

    async def _room(self) -> None:
        now = asyncio.get_running_loop().time
        end = now() + QUEUE_TIMEOUT
        # Polled, because it is rare, and the writer's thread should not have to know about waiting calls.
        while self._writer.is_full and now() < end:  # noqa: ASYNC110
            await asyncio.sleep(QUEUE_POLL_INTERVAL)

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        """Record the end of a request (`steps.Step`)."""
        meta, body, end = request.meta, request.body, outcome.kind
        entry = CallEntry(
            self._origin_of(request),
            "refused" if outcome.decision == "denied" else "tool_error" if outcome.is_tool_error else end,
            outcome.arrived,
            outcome.ended,
            len(body) + 1,
            outcome.size,
            body if len(body) <= self._longest_kept and isinstance(body, bytes) else b"",
            "" if meta is None else trace_of(meta),
            outcome.code if end == "error" else None,
            outcome.sent,
            outcome.decision,
            outcome.rules,
            arguments_digest(request.params) if APPROVED in outcome.rules else "",
            outcome.id,
        )
        self._writer.put(entry, self._most)

    def _origin_of(self, request: GuardedRequest) -> GuardedRequest:
        """Without body and `_meta`: the same object for similar requests, whose common part is described once."""
        key = (
            request.principal,
            request.method,
            request.toolbox,
            request.server,
            request.item,
            request.client,
            request.session,
            request.peer,
            request.is_retry,
            request.identity,
            request.program,
        )
        found = self._origins.get(key)
        if found is None:
            if len(self._origins) >= MAX_AUDITED_ORIGINS:
                self._origins.clear()
            found = self._origins[key] = replace(request, body=b"", meta=None)
        return found

    def on_unchecked_end(
        self,
        passage: UncheckedPassage,
        kind: EndKind | Literal["tool_error"],
        payload: tuple[Part, ...],
        size: int,
        ended: float,
    ) -> None:
        """Like `on_end` (`steps.Observer`), with everything inlined: the response waits for it, and this is most of the
        cost of an audit. Entries in the queue keep no messages, so that their memory can be reused at once, and a slow
        disk does not use more of it."""
        writer = self._writer
        queue = writer.queue
        if len(queue) >= self._most:
            writer.count_lost()
            return
        body, meta = passage.body, passage.meta
        length = len(body)
        queue.append(
            CallEntry(
                passage.origin,
                kind,
                passage.arrived,
                ended,
                length + 1,
                size,
                body if length <= self._longest_kept and isinstance(body, bytes) else b"",
                "" if meta is None else trace_of(meta),
                read_error(b"".join(payload)).code if kind == "error" else None,
                passage.sent,
                id=passage.id or new_call_id(),
            )
        )
        if not writer.is_awake:
            writer.wake()

    def record(self, kind: EventKind | str, /, **fields: Field) -> None:
        """Write an event that is not a request, as `steps.EventRecorder` says."""
        self._writer.put(EventEntry(kind, time.time(), fields), self._most)

    def discard(self) -> None:
        """Close the file of an audit that was not used."""
        self._writer.finish()

    def finish(self, reason: str = "", heir: Audit | None = None) -> None:
        """Have the remaining lines written, without waiting. `heir`: the audit that continues this one."""
        self.record("audit", event="stopped", reason=reason)
        self._writer.finish(None if heir is None else heir._writer)

    def close(self) -> None:
        """Wait for a limited time until the remaining lines are written. Blocks, so not for the event loop."""
        self._writer.close()


def open_audit(config: AuditConfig, redactor: Redactor, *, stdout_is_free: bool) -> Audit:
    """Open the audit. Raises `ConfigError` if it cannot be written, so that nothing is served without it. Accesses the
    disk, so not for the event loop."""
    lines = LineMaker(redactor, config.arguments)
    destination, where = _destination(config, lines, stdout_is_free=stdout_is_free)
    return Audit(config, AuditWriter(destination, lines.lines, where))


def _destination(config: AuditConfig, lines: LineMaker, *, stdout_is_free: bool) -> tuple[Destination, str]:
    if config.file is not None:

        def notice(text: str) -> AuditLine:
            return lines.event("audit", event="file", reason=text)

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
    from mcp_workbench.team.audit.audit_streams import Stdout, Syslog

    if config.syslog is not None:
        return Syslog(config.syslog), config.syslog
    if not stdout_is_free:
        raise ConfigError(
            "the audit cannot be written to stdout: over stdio, that is where the client reads its answers",
            hint="use `file` or `syslog` in `audit`, or serve over HTTP with `serve --http`",
        )
    return Stdout(), "stdout"
