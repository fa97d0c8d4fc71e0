"""Header names and media types of the HTTP binding. Facts of the specification, no decisions."""

from __future__ import annotations

from typing import Final

# Header names are case-insensitive; ours are in lower case.
PROTOCOL_VERSION_HEADER: Final = "mcp-protocol-version"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
PARAMETER_PREFIX: Final = "mcp-param-"
SESSION_ID: Final = "mcp-session-id"
LAST_EVENT_ID: Final = "last-event-id"
# W3C, *Trace Context*. MCP has it in `_meta`; a proxy or an HTTP library may add it here.
TRACE_PARENT: Final = "traceparent"

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
ACCEPT_BOTH: Final = f"{JSON}, {EVENT_STREAM}"

# The parameter that `Mcp-Name` mirrors.
NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
