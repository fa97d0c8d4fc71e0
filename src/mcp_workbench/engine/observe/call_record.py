"""One call as those who look at calls see it: made only while somebody listens, or asks what is running."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.steps import LOCAL_PRINCIPAL

# `waiting`: for its server to start. `held`: by a step, for a person or a limit.
CallState = Literal["waiting", "held", "sent", "ended"]
# `error`: the server answered with a JSON-RPC error, or could not be reached. `tool_error`: the tool itself failed.
# `needs_approval`: the client could not ask its user, and is to make the call again once it is approved elsewhere.
CallEnd = Literal["", "ok", "tool_error", "error", "refused", "needs_approval", "cancelled", "timeout"]


class CallRecord(Struct, kw_only=True, eq=False):
    """One call from its arrival to its end. The same object for all listeners, changed as the call goes on."""

    # That of the call in the audit, in its trace and in logs (`steps.call_id`).
    id: int
    # When it arrived, by the wall clock.
    at: float
    # By `time.monotonic`. `sent` is None until a server was sent it, and stays so if none was.
    arrived: float
    sent: float | None = None
    ended: float | None = None
    principal: str
    # The name in the client's `clientInfo`; empty if it has none.
    client: str
    # The number of the client's session; 0 without one.
    session: int
    peer: str
    # As the client named them, if there are none of these names. Empty for requests to all servers.
    toolbox: str
    server: str
    method: str
    item: str
    state: CallState = "waiting"
    end: CallEnd = ""
    # The rules that decided, as in the audit.
    rule: str = ""
    # Of a JSON-RPC error that the client got.
    error_code: int | None = None
    # Why it failed, in the words of the server or ours. Content, and with secrets: not for everybody who sees the call.
    reason: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    # The trace that the client sent with it (W3C `traceparent` and others), in `_meta` as JSON.
    meta: bytes | None = None

    @property
    def seconds(self) -> float | None:
        """From its arrival to its end."""
        return None if self.ended is None else self.ended - self.arrived

    def as_json(self) -> dict[str, Any]:
        """For people, without content."""
        return {
            "id": self.id,
            "at": self.at,
            "client": self.client,
            "principal": self.principal or LOCAL_PRINCIPAL,
            "toolbox": self.toolbox,
            "server": self.server,
            "method": self.method,
            "item": self.item[:200],
            "state": self.state,
            "seconds": None if self.seconds is None else round(self.seconds, 6),
            "sentAfter": None if self.sent is None else round(self.sent - self.arrived, 6),
            "end": self.end,
            "rule": self.rule,
            "errorCode": self.error_code,
            "bytesIn": self.bytes_in,
            "bytesOut": self.bytes_out,
        }


class CallListener(Protocol):
    """Called on the event loop while calls are made and answered, so it must be quick, and change nothing."""

    def begun(self, call: CallRecord) -> None: ...

    def changed(self, call: CallRecord) -> None:
        """It is held, waits for its server, or is sent after that."""

    def ended(self, call: CallRecord) -> None:
        """Called once for each call; a call that was refused at once, or began before, has not begun here."""


class _NamedClient(Struct):
    name: str = ""


_read_client: Final = Decoder(_NamedClient).decode


def client_name(info: bytes) -> str:
    """The name in a client's `clientInfo`; empty if it has none."""
    try:
        return _read_client(info).name[:100]
    except (DecodeError, ValidationError):
        return ""


class _TextContent(Struct):
    text: str = ""


class _FailedResult(Struct):
    content: list[_TextContent] = []


_read_result: Final = Decoder(_FailedResult).decode


def tool_error_text(result: bytes) -> str:
    """The first text of the result of a tool that failed; empty if it has none."""
    try:
        return next((each.text for each in _read_result(result).content if each.text), "")
    except (DecodeError, ValidationError):
        return ""
