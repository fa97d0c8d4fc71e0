"""Which era a POST belongs to, and whether the headers of a modern one agree with its body. Pure.

"Server Validation" of the streamable HTTP page: parties on the way may act by the headers, so a body that says
something else is refused. What the body itself must contain is the session's to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from mcp_workbench.transport.http import vocabulary as words
from mcp_workbench.transport.http.header_parameters import HeaderParameters, find_mismatch
from mcp_workbench.transport.http.message_summary import MessageSummary
from mcp_workbench.transport.http.server.arrival import Arrival

# What a tool mirrors into headers; None for a tool that is not known.
ParametersOf = Callable[[str], HeaderParameters | None]


def era_of(arrival: Arrival, summary: MessageSummary) -> Literal["legacy", "modern"]:
    """A stamp makes a request modern, `initialize` makes it legacy, and for the rest the header decides."""
    if summary.kind == "request" and summary.version is not None:
        return "modern"
    version = arrival.get(words.PROTOCOL_VERSION)
    if version is None or version in words.LEGACY_VERSIONS or summary.method == "initialize":
        return "legacy"
    return "modern"


def mismatch(arrival: Arrival, summary: MessageSummary, parameters_of: ParametersOf | None) -> str | None:
    """What is wrong with the headers of a modern request, or None."""
    version, method, headers = summary.version, summary.method, arrival.headers
    if version is None:
        # Nothing to compare with. The session refuses what is not stamped; but not a `ping`, which a legacy client may
        # send before anything is agreed upon, and this one names a revision without sessions.
        return f"`_meta` lacks the revision that `{words.PROTOCOL_VERSION}` names" if method == "ping" else None
    if headers.get(words.PROTOCOL_VERSION) != version:
        return _differs(arrival, words.PROTOCOL_VERSION, "the revision in `_meta`")
    if headers.get(words.METHOD) != method:
        return _differs(arrival, words.METHOD, "`method`")
    if method not in words.NAMED_BY:
        return None
    name = summary.name
    if name is None:
        return None
    if arrival.named != name:
        return _differs(arrival, words.NAME, f"`{words.NAMED_BY[method]}`")
    if method != "tools/call" or parameters_of is None:
        return None
    parameters = parameters_of(name)
    return find_mismatch(parameters, summary.arguments, arrival.parameters) if parameters else None


def _differs(arrival: Arrival, header: str, what: str) -> str:
    if header not in arrival.headers:
        return f"the header `{header}` is missing"
    return f"the header `{header}` does not match {what} in the body"
