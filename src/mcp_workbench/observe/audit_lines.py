"""From what happened to a line of the audit, without its place in the chain. In the thread that writes.

Owns the names of the members, and that no text goes out with a secret in it or of any length. Most calls are like one
before, but for their times and sizes: what they have in common is written once and kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder, encode

from mcp_workbench.config.redact import without_keys
from mcp_workbench.observe.audit_arguments import Arguments, described_arguments
from mcp_workbench.steps import LOCAL, Outcome, tool_failed

if TYPE_CHECKING:
    from mcp_workbench.config.redact import Redactor
    from mcp_workbench.steps import GuardedRequest

log = logging.getLogger(__name__)

# Names and URIs come from clients and servers, and may be of any length.
LONGEST_TEXT: Final = 1024
# Beginnings of lines that are kept.
MOST_CACHED: Final = 1024
# A step that holds a request waits for somebody; what takes less is our own work.
SHORTEST_HOLD: Final = 0.001

# How times end, by their milliseconds: `strftime` knows none, and formatting one costs more than looking it up.
_FRACTIONS: Final = tuple(f".{number:03d}Z" for number in range(1000))

# Members of events that may quote an address.
_WITH_ADDRESSES: Final = frozenset({"item", "reason"})

Field = str | int | float | bool | None
# What many lines have in common: whose request and what for, the decision, the rules, the outcome.
Common = tuple["GuardedRequest", str, tuple[str, ...], str]


class CallEntry(Struct, frozen=True, gc=False):
    """What is written of a request."""

    # Without its own body and `_meta`; the same object for calls that are alike.
    origin: GuardedRequest
    decision: str
    rules: tuple[str, ...]
    outcome: str
    # By `time.monotonic`. `sent` is None where it was not.
    arrived: float
    ended: float
    sent: float | None
    bytes_in: int
    bytes_out: int
    trace: str
    code: int | None
    # Where arguments are written: the params, as JSON without the closing brace.
    body: bytes


class EventEntry(Struct, frozen=True):
    kind: str
    at: float
    fields: dict[str, Field]


class _CallLine(Struct, gc=False):
    """The members of a line, in their order. Written by C in one go, which matters where there are many."""

    time: str
    # With it, all that many lines have in common: a `Raw` is written as it is.
    kind: Raw
    ms: float
    bytesIn: int
    bytesOut: int
    code: int | UnsetType = UNSET
    heldMs: float | UnsetType = UNSET
    trace: str | UnsetType = UNSET
    arguments: object = UNSET
    lost: int | UnsetType = UNSET


class _Trace(Struct):
    traceparent: str = ""


class _ClientInfo(Struct):
    name: str = ""
    version: str = ""


_read_trace: Final = Decoder(_Trace).decode
_read_client: Final = Decoder(_ClientInfo).decode


class LineMaker:
    """From entries to the bodies of lines."""

    def __init__(self, redactor: Redactor, arguments: Arguments) -> None:
        self._redactor = redactor
        self._arguments = arguments
        self._version = redactor.version
        self._common: dict[Common, Raw] = {}
        self._second = -1
        self._second_text = ""

    def lines(self, entries: Iterable[CallEntry | EventEntry], lost: int) -> list[bytes]:
        """The bodies of their lines. The first says how many were lost before it."""
        version = self._redactor.version
        if version != self._version or len(self._common) > MOST_CACHED:
            self._version = version
            self._common.clear()
        # What `time.monotonic` has to be added to.
        start = time.time() - time.monotonic()
        found: list[bytes] = []
        for entry in entries:
            try:
                if isinstance(entry, EventEntry):
                    line: _CallLine | dict[str, Field] = self._event(entry, lost)
                else:
                    line = self._call(entry, start + entry.arrived, lost)
                found.append(encode(line))
            except Exception:
                # One entry that cannot be described must not end the audit.
                log.exception("describing a line of the audit failed; please report this")
            else:
                lost = 0
        return found

    def event(self, kind: str, **fields: Field) -> bytes:
        """The body of one line, by itself."""
        return encode(self._event(EventEntry(kind, time.time(), fields), 0))

    def _event(self, entry: EventEntry, lost: int) -> dict[str, Field]:
        fields: dict[str, Field] = {"time": self._time(entry.at), "kind": entry.kind}
        for key, value in entry.fields.items():
            if value is not None and value != "" and not (key == "session" and value == 0):
                fields[key] = self._event_text(key, value) if isinstance(value, str) else value
        return {**fields, "lost": lost} if lost else fields

    def _event_text(self, key: str, text: str) -> str:
        if key == "client":
            return self._client(text.encode(errors="replace"))
        return self._text(text, hides_keys=key in _WITH_ADDRESSES)

    def _call(self, entry: CallEntry, at: float, lost: int) -> _CallLine:
        key = (entry.origin, entry.decision, entry.rules, entry.outcome)
        common = self._common.get(key)
        if common is None:
            common = self._common[key] = self._described(*key)
        seconds = int((entry.ended - entry.arrived) * 1_000_000) / 1000
        line = _CallLine(self._time(at), common, seconds, entry.bytes_in, entry.bytes_out)
        if entry.code is not None:
            line.code = entry.code
        if entry.sent is not None and entry.sent - entry.arrived > SHORTEST_HOLD:
            line.heldMs = round((entry.sent - entry.arrived) * 1000, 3)
        if entry.trace:
            line.trace = entry.trace
        body = entry.body
        if body and (arguments := described_arguments(body, self._arguments, self._redactor)) is not None:
            line.arguments = arguments
        if lost:
            line.lost = lost
        return line

    def _described(self, origin: GuardedRequest, decision: str, rules: tuple[str, ...], outcome: str) -> Raw:
        members: dict[str, str | int] = {
            "kind": "call" if origin.method == "tools/call" else "request",
            "principal": self._text(origin.principal) or LOCAL,
            "peer": origin.peer,
            "client": self._client(origin.client),
            "session": origin.session,
            "method": self._text(origin.method),
            # Where there is none, as the client said.
            "toolbox": self._text(origin.toolbox),
            "server": self._text(origin.server),
            # An address may hold a key of its own.
            "item": self._text(origin.item, hides_keys=True),
            "decision": decision,
            "rule": ", ".join(rules),
            "outcome": outcome,
        }
        # The value of `kind` and the members that follow it.
        return Raw(encode({key: value for key, value in members.items() if value})[len(b'{"kind":') : -1])

    def _text(self, text: str, *, hides_keys: bool = False) -> str:
        if not text.isascii():
            # Paths may hold bytes that are no UTF-8, which Python keeps as halves of pairs: JSON has none.
            text = text.encode(errors="backslashreplace").decode()
        # First hidden, then cut: half a secret would not be recognised.
        found = self._redactor.text(text)
        if hides_keys:
            found = without_keys(found)
        return found if len(found) <= LONGEST_TEXT else found[:LONGEST_TEXT] + "…"

    def _client(self, info: bytes) -> str:
        try:
            read = _read_client(info)
        except (DecodeError, ValidationError):
            return ""
        return self._text(f"{read.name} {read.version}".strip())

    def _time(self, at: float) -> str:
        second = int(at)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return self._second_text + _FRACTIONS[int((at - second) * 1000)]


def end_of(outcome: Outcome, size: int) -> str:
    """`result`, or `tool_error` where the tool itself says that it failed; `refused` where it was never asked."""
    if outcome.decision == "denied":
        return "refused"
    return "tool_error" if outcome.kind == "result" and tool_failed(outcome.payload, size) else outcome.kind


def trace_of(meta: Raw) -> str:
    """The trace that the request belongs to (W3C Trace Context), where the client says so."""
    if b'"traceparent"' not in bytes(meta):
        return ""
    try:
        version, trace, *_ = (*_read_trace(meta).traceparent.split("-"), "")
    except (DecodeError, ValidationError, ValueError):
        return ""
    is_valid = len(version) == 2 and len(trace) == 32 and not trace.strip("0123456789abcdef")
    return trace if is_valid else ""
