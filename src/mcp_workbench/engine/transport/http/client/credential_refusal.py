"""Whether a response means that the request would have been accepted with other credentials.

Only then may it be sent again: any other refusal may come from the server's own code, which has already acted. Knows
nothing about where credentials come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal
from mcp_workbench.engine.transport.http.client.response import Response
from mcp_workbench.engine.transport.http.client.response_body import ERROR_SECONDS

# RFC 6750, section 3.1, defines the first, with status 401. Some servers answer 403 if a token has expired, and some
# give the reason only in the body.
_TOKEN_IS_OVER: Final = frozenset(("invalid_token", "expired_token", "token_expired"))
_SCOPE: Final = "insufficient_scope"
# A refusal is a small object; do not wait for a larger one.
MOST_OF_REFUSAL: Final = 4 * 1024


async def credential_refusal(response: Response, own: Mapping[str, str]) -> CredentialRefusal | None:
    """What a 401 or 403 means for `own`, the headers that were sent; None if it is not about them."""
    challenge = response.headers.get("www-authenticate", "")
    if response.status == 403 and _SCOPE in challenge:
        return CredentialRefusal(403, challenge, own)
    if response.status == 401 or any(word in challenge for word in _TOKEN_IS_OVER) or await _says_so(response):
        return CredentialRefusal(401, challenge, own)
    return None


async def _says_so(response: Response) -> bool:
    """Whether the body is an OAuth error. JSON-RPC errors are objects, and come from code that has already acted."""
    if response.content_type != names.JSON:
        return False
    try:
        said = decode(await response.peek(MOST_OF_REFUSAL, ERROR_SECONDS))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    error = said.get("error") if isinstance(said, dict) else None
    return isinstance(error, str) and error in _TOKEN_IS_OVER
