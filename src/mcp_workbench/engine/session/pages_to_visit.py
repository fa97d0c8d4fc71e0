"""A server's error that lists pages the user has to visit first (URL elicitation required, 2025-11-25).

Loaded with the first error of that kind. A legacy client gets the error with the name of the server; a modern one is
asked in a result, as modern servers do it, and retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import ErrorObject, read_error
from mcp_workbench.engine.protocol.constants import ANSWERS_INPUT_REQUIRED, URL_ELICITATION_REQUIRED
from mcp_workbench.engine.protocol.results import may_mention
from mcp_workbench.engine.session.parking import input_required
from mcp_workbench.engine.session.questions import MOST_QUESTIONS, members_of, unreadable

if TYPE_CHECKING:
    from mcp_workbench.engine.session.client_call import ClientCall


class _PagesToVisit(Struct):
    elicitations: list[dict[str, Raw]]


_decode_pages: Final = Decoder(_PagesToVisit).decode


def attributed(call: ClientCall, error: Raw, read: ErrorObject) -> Raw:
    """Return the error; if it lists pages, each with the name of the server. Raises `BadQuestion`."""
    if call.route.entry is None:
        return error
    if read.code != URL_ELICITATION_REQUIRED or isinstance(read.data, UnsetType):
        if isinstance(read.data, UnsetType) and may_mention(error, "elicitations"):
            # We cannot read this error, but a client might, and would show pages that have not been checked.
            raise unreadable()
        return error
    pages = call.session.attribution(call.route.entry.label).pages(read.data)
    return Raw(messages.encode({**messages.decode_object(error), "data": pages}))


def asks_for_visit(call: ClientCall, error: Raw) -> bool:
    """Whether a modern client is asked to show the pages. It retries the call after they have been visited."""
    read = read_error(error)
    if read.code != URL_ELICITATION_REQUIRED or isinstance(read.data, UnsetType):
        return False
    declared = members_of(messages.decode_object(call.caller.capabilities).get("elicitation"))
    try:
        pages = _decode_pages(read.data).elicitations
    except (DecodeError, ValidationError):
        return False
    if "url" not in declared or not 0 < len(pages) <= MOST_QUESTIONS or call.method not in ANSWERS_INPUT_REQUIRED:
        return False
    asked = {
        f"question-{number}": Raw(messages.encode({"method": "elicitation/create", "params": page}))
        for number, page in enumerate(pages, 1)
    }
    state = call.session.parking.state_without_parking(call)
    call.emit("result", input_required(asked, state, call.made_by()))
    return True
