"""Whether a response says that the request would have been welcome with other credentials.

Only then may it be sent again: any other refusal may come from the server's own code, which has acted by then. Refuses
to know where credentials come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.transport.http import header_names as names
from mcp_workbench.transport.http.client.headers import CredentialRefusal
from mcp_workbench.transport.http.client.response import Response
from mcp_workbench.transport.http.client.response_body import ERROR_SECONDS

# RFC 6750, section 3.1, has the first, and 401 with it. Some servers say 403 of a token that has expired, and some say
# why in the body alone.
_TOKEN_IS_OVER: Final = frozenset(("invalid_token", "expired_token", "token_expired"))
_SCOPE: Final = "insufficient_scope"
# A refusal is a small object; a larger one is not waited for.
MOST_OF_REFUSAL: Final = 4 * 1024


async def credential_refusal(response: Response, own: Mapping[str, str]) -> CredentialRefusal | None:
    """What a response with status 401 or 403 says of `own`, the headers that it answers; None where nothing."""
    challenge = response.headers.get("www-authenticate", "")
    if response.status == 403 and _SCOPE in challenge:
        return CredentialRefusal(403, challenge, own)
    if response.status == 401 or any(word in challenge for word in _TOKEN_IS_OVER) or await _says_so(response):
        return CredentialRefusal(401, challenge, own)
    return None


async def _says_so(response: Response) -> bool:
    """An error as OAuth writes it. Those of JSON-RPC are objects, and come from code that has acted."""
    if response.content_type != names.JSON:
        return False
    try:
        said = decode(await response.peek(MOST_OF_REFUSAL, ERROR_SECONDS))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    error = said.get("error") if isinstance(said, dict) else None
    return isinstance(error, str) and error in _TOKEN_IS_OVER
