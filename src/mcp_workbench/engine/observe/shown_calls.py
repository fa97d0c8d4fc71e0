"""Calls as people are shown them. Many are described at a time, and who makes similar ones is found out once."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from mcp_workbench.engine.config.redact import without_keys
from mcp_workbench.engine.jsonrpc.messages import read_error
from mcp_workbench.engine.observe.call_figures import sent_at, state_of
from mcp_workbench.engine.observe.call_record import CallEnd, CallState, client_name
from mcp_workbench.engine.observe.ended_calls import EndedCall
from mcp_workbench.engine.steps import (
    LOCAL_PRINCIPAL,
    AnyPassage,
    CountedPassage,
    GuardedRequest,
    Passage,
    call_id,
    new_call_id,
)


class ShownCall(Struct, rename="camel", gc=False):
    """As `CallRecord`, for people and without content."""

    id: int
    at: float
    client: str
    principal: str
    toolbox: str
    server: str
    method: str
    item: str
    state: CallState
    seconds: float | None = None
    sent_after: float | None = None
    end: CallEnd = ""
    rule: str = ""
    error_code: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0


# Whose call it is, and the fields of `ShownCall` from `client` to `item`.
_Origin = tuple[str, tuple[str, str, str, str, str, str]]


class CallDescriber:
    """Describes the calls of one batch, each with its principal."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._epoch = time.time() - time.monotonic()
        self._origins: dict[object, _Origin] = {}

    def running(self, passage: AnyPassage) -> tuple[str, ShownCall]:
        arrived, sent = passage.arrived, sent_at(passage)
        whose, origin = self._shown_origin(passage.origin)
        return whose, ShownCall(
            call_id(passage),
            self._epoch + arrived,
            *origin,
            state_of(passage),
            sent_after=None if sent is None else _rounded(sent - arrived),
            bytes_in=len(passage.body) + 1,
        )

    def ended(self, call: EndedCall) -> tuple[str, ShownCall]:
        """Inlined as far as it helps: there is one for each call."""
        passage, kind, end, payload, size, ended = call
        arrived, error_code = passage.arrived, passage.failure_code
        if kind == "error" and error_code is None:
            error_code = read_error(b"".join(payload)).code
        rule, sent_after = "", 0.0
        sent: float | None = arrived
        # Nearly all are sent as they arrive.
        if passage.sent is not None or passage.reached is not None or passage.is_waiting or type(passage) is Passage:
            sent = sent_at(passage)
            sent_after = 0.0 if sent is None else _rounded(sent - arrived)
            if isinstance(passage, Passage):
                rule = ", ".join(rule for rule in passage.rules if rule)
        if type(passage) is CountedPassage:
            # Not its origin, which it would have to make.
            key = passage.entry, passage.item, passage.method, passage.caller, passage.client_info
            found = self._origins.get(key)
            if found is None:
                found = self._origins[key] = self._shown_origin(passage.origin)
        else:
            found = self._shown_origin(passage.origin)
        whose, (client, principal, toolbox, server, method, item) = found
        # As `call_id` does.
        id = passage.id = passage.id or new_call_id()
        return whose, ShownCall(
            id,
            self._epoch + arrived,
            client,
            principal,
            toolbox,
            server,
            method,
            item,
            "ended",
            int((ended - arrived) * 1e6 + 0.5) / 1e6,
            None if sent is None else sent_after,
            end,
            rule,
            error_code,
            len(passage.body) + 1,
            size,
        )

    def _shown_origin(self, origin: GuardedRequest) -> _Origin:
        # Those of calls that a step decides about have a body, and are no one else's.
        key = _key(origin) if origin.body else origin
        found = self._origins.get(key)
        if found is None:
            # A URI may hold a key.
            item = without_keys(self._redact(origin.item))[:200]
            who = client_name(origin.client), origin.principal or LOCAL_PRINCIPAL
            shown = (*who, origin.toolbox, origin.server, origin.method, item)
            found = self._origins[key] = (origin.principal, shown)
        return found


def _key(origin: GuardedRequest) -> tuple[bytes, str, str, str, str, str]:
    return origin.client, origin.principal, origin.toolbox, origin.server, origin.method, origin.item


def _rounded(seconds: float) -> float:
    """To microseconds. Not by `round`, which writes and reads decimals for it."""
    return int(seconds * 1e6 + 0.5) / 1e6
