"""Names and numbers of the specification that more than one package needs. Facts, no decisions."""

from __future__ import annotations

from typing import Final

# ── members of `_meta` ──

PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_INFO: Final = PREFIX + "clientInfo"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"

# ── error codes, beyond those of JSON-RPC ──

# Up to 2025-11-25; later revisions use "invalid params".
RESOURCE_NOT_FOUND: Final = -32002
# Since 2026-07-28.
HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
# Defined by revision 2025-11-25 only; later ones forbid sending it.
URL_ELICITATION_REQUIRED: Final = -32042
# Error codes that no server up to 2025-11-25 uses.
STATELESS_CODES: Final = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})

# A method as it is written in a message.
TOOLS_CALL: Final = b'"tools/call"'
# The requests that a server may answer with `input_required`.
ANSWERS_INPUT_REQUIRED: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
