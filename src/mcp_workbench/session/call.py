"""A client's request under way, from its arrival to its one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.downstream.traffic import Traffic
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.wording import error_result, failure_text, with_notice
from mcp_workbench.jsonrpc import messages
from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, read_error
from mcp_workbench.protocol.logging_levels import is_at_least
from mcp_workbench.protocol.meta import PROGRESS_TOKEN
from mcp_workbench.protocol.results import for_modern_client, result_type
from mcp_workbench.router import RoutedCall

if TYPE_CHECKING:
    from mcp_workbench.session.session import Session

# Codes that a client acts upon by itself: URL elicitation required, header mismatch, missing client capability,
# unsupported protocol version. Shown to a model instead, they would be of no use to anybody.
CODES_FOR_CLIENTS: Final = frozenset({-32042, -32020, -32021, -32022})


class _LogMessage(Struct, gc=False):
    level: str = "emergency"


_decode_level: Final = Decoder(_LogMessage).decode


class ClientCall(RoutedCall):
    """One request of one client."""

    __slots__ = ("id", "method", "progress_token", "session")

    def __init__(self, session: Session, id: bytes, method: str, capabilities: bytes, from_modern: bool) -> None:
        self.wire_id = 0
        self.session = session
        self.client = session
        self.id = id
        self.method = method
        self.view = session.view
        self.capabilities = capabilities
        self.from_modern = from_modern
        self.meta = None
        self.wants_progress = False
        self.progress_token: Raw | None = None
        self.log_level: str | None = None
        self.entry = None
        self.decision = None
        self.traffic = None
        self.task = None

    @property
    def where(self) -> str:
        """`toolbox/server/tool`, as far as it is known."""
        if self.entry is None:
            return self.method
        item = "" if self.decision is None else self.decision.item
        return f"{self.entry.toolbox}/{self.entry.name}/{item}".rstrip("/")

    # ── answers from the server ──

    def on_result(self, result: Raw) -> None:
        """The server answered."""
        if self.view.changed and self.decision is not None and self.decision.shows_errors:
            self.finish_result(with_notice(bytes(result), list(self.view.changed)))
            self.view.changed.clear()
        else:
            self.finish_result(result)

    def on_error(self, error: Raw) -> None:
        """The server answered with a JSON-RPC error.

        Where an agent is to read it, it becomes a result, unless the client itself acts upon that code.
        """
        if self.decision is not None and self.decision.shows_errors:
            read = read_error(error)
            if read.code not in CODES_FOR_CLIENTS:
                self.finish_result(error_result(f"[{self.where}] {read.message}", read))
                return
        self.session.finish(self, b"error", error)

    def on_failure(self, error: WorkbenchError) -> None:
        """No answer will come from the server."""
        text = failure_text(error, self.where)
        if self.method == "tools/call":
            self.finish_result(error_result(text))
        else:
            self.finish_error(INTERNAL_ERROR, text)

    # ── what the server says meanwhile ──

    def on_progress(self, params: Raw) -> None:
        """Progress, under the token that the client chose."""
        if self.progress_token is not None:
            fields = messages.decode_object(params)
            fields[PROGRESS_TOKEN] = self.progress_token
            self.session.notify("notifications/progress", messages.encode(fields), self.id)

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        """A question of the server in the middle of this call."""
        if self.from_modern:
            return False
        return self.session.ask(traffic, id, method, params, self.id)

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        """The server gave its question up."""
        self.session.questions.cancelled_by_server(traffic, id, params, self.id)

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        """Log messages and whatever else a server tells."""
        if method == "notifications/message" and not self._wants_log(params):
            return
        self.session.notify(method, params, self.id)

    def _wants_log(self, params: Raw | None) -> bool:
        least = self.log_level if self.from_modern else self.session.log_level
        if least is None:
            # Modern clients ask for log messages, legacy ones get them unless they said otherwise.
            return not self.from_modern
        try:
            return params is not None and is_at_least(_decode_level(params).level, least)
        except (DecodeError, ValidationError):
            return False

    # ── answers to the client ──

    def finish_result(self, result: bytes | Raw) -> None:
        """Answer with a result."""
        if self.from_modern:
            if self.traffic is not None and result_type(result) == "task":
                self.session.remember_task(self, bytes(result))
            result = for_modern_client(result, self.method)
        self.session.finish(self, b"result", result)

    def finish_error(self, code: int, message: str, data: object = None) -> None:
        """Answer with a JSON-RPC error."""
        body: dict[str, object] = {"code": code, "message": message}
        if data is not None:
            body["data"] = data
        self.session.finish(self, b"error", messages.encode(body))

    def cancel(self, params: dict[str, Raw]) -> None:
        """The client gave it up: no answer is sent."""
        if self.traffic is not None:
            self.traffic.cancel(self, params)
        elif self.task is not None:
            self.task.cancel()
