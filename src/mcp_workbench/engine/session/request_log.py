"""Logs every request of a client, and how it ended. In place only with `--debug`, so that it costs nothing otherwise.

Arguments and results are not logged: they may be private, and the audit records what is wanted of them.
"""

from __future__ import annotations

import logging
import time
from typing import Final, Literal

from msgspec import Raw, field

from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS, Part, decode_string
from mcp_workbench.engine.session.client_call import ClientCall
from mcp_workbench.engine.session.client_name import whose
from mcp_workbench.engine.session.session import MAX_LOGGED_LENGTH, Session
from mcp_workbench.engine.steps import call_id

log = logging.getLogger(__name__)

# The members of params that name what is asked for.
NAMING_PARAMS: Final = ("name", "uri")


class LoggedSession(Session, eq=False):
    """A session that logs its requests."""

    # When each request in flight arrived, by id.
    arrived: dict[bytes, float] = field(default_factory=dict)

    def on_request(self, id: bytes, method: str, params: dict[str, Raw]) -> None:
        named = next((f" `{_text(params[key])}`" for key in NAMING_PARAMS if key in params), "")
        log.debug("[%s] → %s%s (id %s)", self.whose, method[:MAX_LOGGED_LENGTH], named, _id(id))
        self.arrived.setdefault(id, time.monotonic())
        super().on_request(id, method, params)
        if id not in self.calls and id not in self.streams:
            self.arrived.pop(id, None)

    def finish(self, call: ClientCall, kind: Literal["result", "error"], parts: tuple[Part, ...]) -> None:
        if self.calls.get(call.id) is call:
            since = self.arrived.pop(call.id, None)
            took = "" if since is None else f" after {(time.monotonic() - since) * 1000:.1f} ms"
            size = sum(map(len, parts))
            client = whose(call.client_info, self.view.principal, self.peer)
            ids = _id(call.id)
            if call.route.passage is not None:
                ids += f", call {call_id(call.route.passage)}"
            log.debug("[%s] ← %s (id %s): %s of %d bytes%s", client, call.where, ids, kind, size, took)
        super().finish(call, kind, parts)


def _id(id: bytes) -> str:
    return id[:MAX_LOGGED_LENGTH].decode(errors="replace")


def _text(raw: Raw) -> str:
    try:
        return decode_string(raw)[:MAX_LOGGED_LENGTH]
    except READING_ERRORS:
        return "…"
