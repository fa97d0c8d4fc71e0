"""A client's request under way, from its arrival to its one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw

from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.wording import error_result, failure_text
from mcp_workbench.jsonrpc import messages
from mcp_workbench.jsonrpc.messages import read_error
from mcp_workbench.protocol.meta import PROGRESS_TOKEN
from mcp_workbench.protocol.results import for_modern_client
from mcp_workbench.router import RoutedCall

if TYPE_CHECKING:
    from mcp_workbench.session.session import Session

# Codes that a client acts upon by itself: URL elicitation required, header mismatch, missing client capability,
# unsupported protocol version. Shown to a model instead, they would be of no use to anybody.
CODES_FOR_CLIENTS: Final = frozenset({-32042, -32020, -32021, -32022})


class ClientCall(RoutedCall):
    """One request of one client."""

    __slots__ = ("id", "progress_token", "session")

    def __init__(self, session: Session, id: bytes, capabilities: bytes, from_modern: bool) -> None:
        self.wire_id = 0
        self.session = session
        self.caller = session
        self.id = id
        self.principal = session.principal
        self.capabilities = capabilities
        self.from_modern = from_modern
        self.meta = None
        self.wants_progress = False
        self.progress_token: Raw | None = None
        self.entry = None
        self.item = ""
        self.traffic = None
        self.task = None

    @property
    def where(self) -> str:
        """`toolbox/server/tool`, as far as it is known."""
        if self.entry is None:
            return self.item
        return f"{self.entry.toolbox}/{self.entry.name}/{self.item}".rstrip("/")

    # Answers from the server

    def on_result(self, result: Raw) -> None:
        """The server answered."""
        self.finish_result(result)

    def on_error(self, error: Raw) -> None:
        """The server answered with a JSON-RPC error: a result that says so, unless the client itself acts upon it."""
        read = read_error(error)
        if read.code in CODES_FOR_CLIENTS:
            self.session.finish(self, b"error", error)
        else:
            self.finish_result(error_result(f"[{self.where}] {read.message}", read))

    def on_failure(self, error: WorkbenchError) -> None:
        """No answer will come from the server."""
        self.finish_result(error_result(failure_text(error, self.where)))

    def on_progress(self, params: Raw) -> None:
        """Progress, under the token that the client chose."""
        if self.progress_token is not None:
            fields = messages.decode_object(params)
            fields[PROGRESS_TOKEN] = self.progress_token
            self.session.notify("notifications/progress", messages.encode(fields))

    # Answers to the client

    def finish_result(self, result: bytes | Raw) -> None:
        """Answer with a result."""
        if self.from_modern:
            result = for_modern_client(result)
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
