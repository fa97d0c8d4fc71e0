"""Makes the lines of the audit from entries, without their position in the chain. Runs in the writer's thread.

Owns the names of the members, and makes sure that texts are redacted and limited in length. Most calls differ from an
earlier one only in times and sizes, so their common part is encoded once and cached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder, encode

from mcp_workbench.engine.config.redact import without_keys
from mcp_workbench.engine.printable import in_unicode
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL
from mcp_workbench.team.audit.audit_arguments import Arguments, described_arguments
from mcp_workbench.team.audit.audit_file import ChainedLine

if TYPE_CHECKING:
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.engine.steps import GuardedRequest

log = logging.getLogger(__name__)

# Names and URIs come from clients and servers, and may be of any length.
MAX_AUDIT_TEXT_LENGTH: Final = 1024
# The maximum number of cached common parts.
MAX_CACHED_PARTS: Final = 1024
# A step that holds a request waits for a person; shorter times are our own work.
MIN_AUDITED_HOLD: Final = 0.001

# Members of events that may quote an address.
_WITH_ADDRESSES: Final = frozenset({"item", "reason"})

Field = str | int | float | bool | None
# The common part of lines: the requester and the item, the decision, the rules, the outcome.
Common = tuple["GuardedRequest", str, tuple[str, ...], str]


class CallEntry(Struct, frozen=True, gc=False):
    """A request to write. One is made for each request, so fields that are nearly always the same have a default."""

    # Without body and `_meta`; equal calls share the same object.
    origin: GuardedRequest
    outcome: str
    # By `time.monotonic`, like `sent`.
    arrived: float
    ended: float
    bytes_in: int
    bytes_out: int
    # If arguments are written: the params, as JSON without the closing brace.
    body: bytes = b""
    trace: str = ""
    code: int | None = None
    # None if it was not sent, or sent at once.
    sent: float | None = None
    decision: str = "passed"
    rules: tuple[str, ...] = ()
    # Of the arguments, if the user was asked about them.
    digest: str = ""
    # `steps.call_id`; 0 if it has none.
    id: int = 0


class EventEntry(Struct, frozen=True):
    kind: str
    at: float
    fields: dict[str, Field]


Entry = CallEntry | EventEntry


class AuditLine(ChainedLine, gc=False):
    """The members of a line, in order. A `Struct`, so that hundreds of them are encoded in one call in C."""

    time: str = ""
    # Includes the whole common part of the line, because a `Raw` is written unchanged.
    kind: Raw = Raw(b"null")
    ms: float | UnsetType = UNSET
    bytesIn: int | UnsetType = UNSET
    bytesOut: int | UnsetType = UNSET
    call: int | UnsetType = UNSET
    code: int | UnsetType = UNSET
    heldMs: float | UnsetType = UNSET
    trace: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    lost: int | UnsetType = UNSET


class _Trace(Struct):
    traceparent: str = ""


class _ClientInfo(Struct):
    name: str = ""
    version: str = ""


_read_trace: Final = Decoder(_Trace).decode
_read_client: Final = Decoder(_ClientInfo).decode


class LineMaker:
    """Makes lines from entries."""

    def __init__(self, redactor: Redactor, arguments: Arguments) -> None:
        self._redactor = redactor
        self._arguments = arguments
        self._version = redactor.version
        self._common: dict[Common, Raw] = {}
        self._millisecond = -1
        self._time_text = ""

    def lines(self, entries: Sequence[Entry], lost: int) -> list[AuditLine]:
        """The lines of these entries. The first reports how many were lost before it."""
        version = self._redactor.version
        if version != self._version or len(self._common) > MAX_CACHED_PARTS:
            self._version = version
            self._common.clear()
        # The offset of `time.monotonic`.
        start = time.time() - time.monotonic()
        found: list[AuditLine] = []
        for entry in entries:
            try:
                # Calls first, because most entries are calls.
                found.append(self._call(entry, start) if isinstance(entry, CallEntry) else self._event(entry))
            except Exception:
                # A single bad entry must not end the audit.
                log.exception("describing a line of the audit failed; please report this")
        if lost and found:
            found[0].lost = lost
        return found

    def event(self, kind: str, **fields: Field) -> AuditLine:
        """Make a single line."""
        return self._event(EventEntry(kind, time.time(), fields))

    def _event(self, entry: EventEntry) -> AuditLine:
        fields: dict[str, Field] = {"kind": entry.kind}
        for key, value in entry.fields.items():
            if value is not None and value != "" and not (key == "session" and value == 0):
                fields[key] = self._event_text(key, value) if isinstance(value, str) else value
        return AuditLine(0, UNSET, self._time(int(entry.at * 1000)), _from_kind(fields))

    def _event_text(self, key: str, text: str) -> str:
        if key == "client":
            return self._client(text.encode(errors="replace"))
        return self._text(text, hides_keys=key in _WITH_ADDRESSES)

    def _call(self, entry: CallEntry, start: float) -> AuditLine:
        key = (entry.origin, entry.decision, entry.rules, entry.outcome)
        common = self._common.get(key)
        if common is None:
            common = self._common[key] = self._described(*key)
        arrived = entry.arrived
        millisecond = int((start + arrived) * 1000)
        text = self._time_text if millisecond == self._millisecond else self._time(millisecond)
        took = int((entry.ended - arrived) * 1_000_000) / 1000
        line = AuditLine(0, UNSET, text, common, took, entry.bytes_in, entry.bytes_out, entry.id or UNSET)
        if entry.code is not None:
            line.code = entry.code
        if entry.sent is not None and entry.sent - entry.arrived > MIN_AUDITED_HOLD:
            line.heldMs = round((entry.sent - entry.arrived) * 1000, 3)
        if entry.trace:
            line.trace = entry.trace
        body = entry.body
        if body and (arguments := described_arguments(body, self._arguments, self._redactor)) is not None:
            line.arguments = Raw(encode(arguments))
        if entry.digest:
            line.digest = entry.digest
        return line

    def _described(self, origin: GuardedRequest, decision: str, rules: tuple[str, ...], outcome: str) -> Raw:
        members: dict[str, str | int] = {
            "kind": "call" if origin.method == "tools/call" else "request",
            "principal": self._text(origin.principal) or LOCAL_PRINCIPAL,
            "peer": origin.peer,
            "client": self._client(origin.client),
            "session": origin.session,
            "method": self._text(origin.method),
            # If it does not exist, the client's own name.
            "toolbox": self._text(origin.toolbox),
            "server": self._text(origin.server),
            # An address may contain a key.
            "item": self._text(origin.item, hides_keys=True),
            "program": origin.program,
            "decision": decision,
            "rule": ", ".join(rules),
            "outcome": outcome,
        }
        return _from_kind({key: value for key, value in members.items() if value})

    def _text(self, text: str, *, hides_keys: bool = False) -> str:
        if not text.isascii():
            text = in_unicode(text)
        # Redacted before it is truncated, because half a secret would not be recognised.
        found = self._redactor.text(text)
        if hides_keys:
            found = without_keys(found)
        return found if len(found) <= MAX_AUDIT_TEXT_LENGTH else found[:MAX_AUDIT_TEXT_LENGTH] + "…"

    def _client(self, info: bytes) -> str:
        try:
            read = _read_client(info)
        except (DecodeError, ValidationError):
            return ""
        return self._text(f"{read.name} {read.version}".strip())

    def _time(self, millisecond: int) -> str:
        # Cached, because calls come in bursts.
        self._millisecond = millisecond
        second, rest = divmod(millisecond, 1000)
        self._time_text = f"{_second_text(second)}.{rest:03d}Z"
        return self._time_text


@lru_cache(maxsize=4)
def _second_text(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _from_kind(members: Mapping[str, Field]) -> Raw:
    """The value of `kind`, which is the first member, and the members that follow it."""
    return Raw(encode(members)[len(b'{"kind":') : -1])


def trace_of(meta: Raw) -> str:
    """The id of the trace that the request belongs to (W3C Trace Context), if the client sent one."""
    # `find`, because `in` would first try to convert its operand to a number.
    if bytes(meta).find(b'"traceparent"') < 0:
        return ""
    try:
        version, trace, *_ = (*_read_trace(meta).traceparent.split("-"), "")
    except (DecodeError, ValidationError, ValueError):
        return ""
    is_valid = len(version) == 2 and len(trace) == 32 and not trace.strip("0123456789abcdef")
    return trace if is_valid else ""
