"""The words of the HTTP binding: headers, revisions, `_meta` keys. Facts of the specification, no decisions."""

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

# Revisions that shake hands; every other value of the header is served statelessly, or refused there.
LEGACY_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
# The one revision that allows several messages in one POST.
BATCH_VERSION: Final = "2025-03-26"
# Revisions whose clients expect an event with an id and empty data at the start of a stream; older ones may choke.
PRIMED_VERSIONS: Final = frozenset({"2025-11-25"})

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"

# Which parameter is mirrored in `Mcp-Name`.
NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
# What only a server of the modern era answers with.
MODERN_CODES: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
