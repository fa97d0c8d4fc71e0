"""Progress of our own, for clients whose timeout progress extends, while a server sends nothing about a call.

Loaded with the first call that takes long. Refuses to know how long that is: whoever watches calls says when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_workbench.jsonrpc import messages
from mcp_workbench.protocol.constants import PROGRESS_TOKEN

if TYPE_CHECKING:
    from mcp_workbench.session.client_call import ClientCall

# Progress has to increase with each notification (*Progress*), and what the server says next should still be more.
_STEP: Final = 1e-6


def keep_waiting(call: ClientCall) -> None:
    """Tell the client that its call is still under way, where that makes it wait longer."""
    if call.progress_token is None or not call.view.face.recognise(call.client_info).progress_extends:
        return
    call.progress += max(abs(call.progress), 1.0) * _STEP
    fields = {
        PROGRESS_TOKEN: call.progress_token,
        "progress": call.progress,
        "message": f"[{call.where}] still running",
    }
    call.session.notify("notifications/progress", messages.encode(fields), call.id)
