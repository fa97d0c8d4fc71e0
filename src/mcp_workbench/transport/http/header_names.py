"""The words of the HTTP binding: headers and media types. Facts of the specification, no decisions."""

from __future__ import annotations

from typing import Final

# Names of headers are the same in any case; ours are lower.
PROTOCOL_VERSION: Final = "mcp-protocol-version"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
PARAMETER_PREFIX: Final = "mcp-param-"
SESSION_ID: Final = "mcp-session-id"
LAST_EVENT_ID: Final = "last-event-id"

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
ACCEPT_BOTH: Final = f"{JSON}, {EVENT_STREAM}"

# Which parameter is mirrored in `Mcp-Name`.
NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
