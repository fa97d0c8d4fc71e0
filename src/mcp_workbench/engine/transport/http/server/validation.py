"""Whether a POST belongs to a session, and if not, whether its headers match its body. Pure.

"Server Validation" of the streamable HTTP page: intermediaries may act on the headers, so a body that differs from them
is refused. What the body must contain is up to the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Raw

from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.header_parameters import HeaderParameters, find_mismatch
from mcp_workbench.engine.transport.http.message_summary import MessageSummary
from mcp_workbench.engine.transport.http.server.request_head import RequestHead

# The parameters that a tool mirrors into headers, by tool and calling principal; None for an unknown tool.
ShownParameters = Callable[[str, str], HeaderParameters | None]

# The longest name of a tool that is remembered with a head.
MAX_AGREED_NAME: Final = 256


def is_stateless(head: RequestHead, summary: MessageSummary) -> bool:
    """Whether a POST belongs to no session: stamped requests do not, `initialize` does, else the header decides.

    Unknown revisions have no sessions either; they are refused where the stamp is read."""
    if summary.kind == "request" and summary.version is not None:
        return True
    return head.lacks_sessions and summary.method != "initialize"


def has_agreed(
    head: RequestHead, version: str | None, params: Mapping[str, Raw], parameters_of: ShownParameters | None
) -> bool:
    """Whether a tool call certainly agrees with its head: nearly all are what the head was last compared with, and
    their tools mirror no parameters."""
    known_version, written, name = head.agreed
    return (
        version == known_version
        and bytes(params.get("name", b"")) == written
        and (parameters_of is None or not parameters_of(name, head.principal))
    )


def mismatch(head: RequestHead, summary: MessageSummary, parameters_of: ShownParameters | None) -> str | None:
    """What is wrong with the headers of a modern request, or None."""
    version, method, params = summary.version, summary.method, summary.params
    if method == "tools/call" and params is not None and has_agreed(head, version, params, parameters_of):
        return None
    headers = head.headers
    if version is None:
        # Nothing to compare with. The session refuses requests without a stamp, but not `ping`, which a legacy client
        # may send before `initialize`; and here the header names a revision without sessions.
        return f"`_meta` lacks the revision that `{names.PROTOCOL_VERSION_HEADER}` names" if method == "ping" else None
    if headers.get(names.PROTOCOL_VERSION_HEADER) != version:
        return _differs(head, names.PROTOCOL_VERSION_HEADER, "the revision in `_meta`")
    if headers.get(names.METHOD) != method:
        return _differs(head, names.METHOD, "`method`")
    if method not in names.NAMED_BY:
        return None
    found = summary.name
    if found is None or params is None:
        return None
    if head.named != found:
        return _differs(head, names.NAME, f"`{names.NAMED_BY[method]}`")
    if method != "tools/call":
        return None
    if len(found) <= MAX_AGREED_NAME:
        head.agreed = version, bytes(params["name"]), found
    parameters = None if parameters_of is None else parameters_of(found, head.principal)
    return find_mismatch(parameters, summary.arguments, head.parameters) if parameters else None


def _differs(head: RequestHead, header: str, what: str) -> str:
    if header not in head.headers:
        return f"the header `{header}` is missing"
    return f"the header `{header}` does not match {what} in the body"
