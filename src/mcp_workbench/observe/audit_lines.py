"""From what happened to a line of the audit, without its place in the chain. In the thread that writes.

Owns the names of the members, and that no text goes out with a secret in it or of any length. Most calls are like one
before, but for their times and sizes: what they have in common is written once and kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode

from mcp_workbench.observe.audit_arguments import Arguments, described_arguments

if TYPE_CHECKING:
    from mcp_workbench.config.redact import Redactor

# Names and URIs come from clients and servers, and may be of any length.
LONGEST_TEXT: Final = 1024
# Beginnings of lines that are kept.
MOST_CACHED: Final = 1024
# Over stdio the principal has no name.
LOCAL: Final = "local"
# A step that holds a request waits for somebody; what takes less is our own work.
SHORTEST_HOLD: Final = 0.001

Field = str | int | float | bool | None
# Principal, peer, client info, session, method, toolbox, server, item, decision, rules.
Who = tuple[str, str, bytes, int, str, str, str, str, str, tuple[str, ...]]


class CallEntry(NamedTuple):
    """What is kept of a request until its line is written."""

    who: Who
    # When it arrived, in seconds since 1970.
    at: float
    seconds: float
    held: float
    end: str
    code: int | None
    bytes_in: int
    bytes_out: int
    trace: str
    # Where arguments are written: the params, as JSON without the closing brace.
    body: bytes


class EventEntry(NamedTuple):
    kind: str
    at: float
    fields: dict[str, Field]


class _ClientInfo(Struct):
    name: str = ""
    version: str = ""


_read_client: Final = Decoder(_ClientInfo).decode


class LineMaker:
    """From entries to the bodies of lines."""

    def __init__(self, redactor: Redactor, arguments: Arguments) -> None:
        self._redactor = redactor
        self._arguments = arguments
        self._version = redactor.version
        self._common: dict[Who, bytes] = {}
        self._second = -1
        self._second_text = b""

    def __call__(self, entry: CallEntry | EventEntry, lost: int) -> bytes:
        if isinstance(entry, EventEntry):
            fields: dict[str, Field] = {"time": self._time(entry.at).decode(), "kind": entry.kind}
            for key, value in entry.fields.items():
                if value is not None and value != "":
                    fields[key] = self._text(value) if isinstance(value, str) else value
            return encode({**fields, "lost": lost} if lost else fields)
        return b'{"time":"%b",%b,"outcome":"%b","ms":%.3f,"bytesIn":%d,"bytesOut":%d%b}' % (
            self._time(entry.at),
            self._common_part(entry.who),
            entry.end.encode(),
            entry.seconds * 1000,
            entry.bytes_in,
            entry.bytes_out,
            self._rare_part(entry, lost),
        )

    def _common_part(self, who: Who) -> bytes:
        version = self._redactor.version
        if version != self._version or len(self._common) > MOST_CACHED:
            self._version = version
            self._common.clear()
        found = self._common.get(who)
        if found is None:
            found = self._common[who] = self._described(who)
        return found

    def _described(self, who: Who) -> bytes:
        principal, peer, client, session, method, toolbox, server, item, decision, rules = who
        members: dict[str, str | int] = {
            "kind": "call" if method == "tools/call" else "request",
            "principal": self._text(principal) or LOCAL,
            "peer": peer,
            "client": self._client(client),
            "session": session,
            "method": self._text(method),
            "toolbox": toolbox,
            "server": server,
            "item": self._text(item),
            "decision": decision,
            "rule": ", ".join(rules),
        }
        return encode({key: value for key, value in members.items() if value})[1:-1]

    def _rare_part(self, entry: CallEntry, lost: int) -> bytes:
        rare: dict[str, object] = {}
        if entry.code is not None:
            rare["code"] = entry.code
        if entry.held > SHORTEST_HOLD:
            rare["heldMs"] = round(entry.held * 1000, 3)
        if entry.trace:
            rare["trace"] = entry.trace
        if entry.body and (arguments := described_arguments(entry.body, self._arguments, self._redactor)) is not None:
            rare["arguments"] = arguments
        if lost:
            rare["lost"] = lost
        return b"," + encode(rare)[1:-1] if rare else b""

    def _text(self, text: str) -> str:
        # First hidden, then cut: half a secret would not be recognised.
        found = self._redactor.text(text)
        return found if len(found) <= LONGEST_TEXT else found[:LONGEST_TEXT] + "…"

    def _client(self, info: bytes) -> str:
        try:
            read = _read_client(info)
        except (DecodeError, ValidationError):
            return ""
        return self._text(f"{read.name} {read.version}".strip())

    def _time(self, at: float) -> bytes:
        second = int(at)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%b.%03dZ" % (self._second_text, int((at - second) * 1000))
