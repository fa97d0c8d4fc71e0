"""Our own progress notifications while a server sends nothing about a call, for clients that wait longer with progress.

Loaded with the first long call. Does not know how long that is: the caller decides when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.protocol.constants import PROGRESS_TOKEN

if TYPE_CHECKING:
    from mcp_workbench.engine.session.client_call import ClientCall

# Progress has to increase with each notification (*Progress*), and the server's next value should still be higher.
_STEP: Final = 1e-6


def keep_waiting(call: ClientCall) -> None:
    """Notify the client that its call is still running, if that makes it wait longer."""
    if call.progress_token is None or not call.view.face.recognise(call.client_info).progress_extends:
        return
    call.progress += max(abs(call.progress), 1.0) * _STEP
    fields = {
        PROGRESS_TOKEN: call.progress_token,
        "progress": call.progress,
        "message": f"[{call.where}] still running",
    }
    call.session.notify("notifications/progress", messages.encode(fields), call.id)
