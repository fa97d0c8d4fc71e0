"""The result of checking a token: who is calling, or why it was rejected. Values."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.guard.identities import Identity
from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse

INVALID: Final = "invalid_token"
INSUFFICIENT: Final = "insufficient_scope"
UNREACHABLE: Final = "temporarily_unavailable"

# A request to the identity provider; an answer with status 0 says why there was none.
Fetch = Callable[[OAuthRequest], Awaitable[OAuthResponse]]
StartTask = Callable[[Awaitable[None]], "asyncio.Task[None]"]


class Verified(Struct, frozen=True):
    """Somebody, until a moment (seconds since 1970)."""

    identity: Identity
    expires: float
    # Who vouches for it: what it proved is looked at again when that one's keys have changed.
    issuer: str
    # On a clock that nobody sets: when it has to be looked at again, whatever the time is then.
    believed_until: float = math.inf


class TokenRejection(Struct, frozen=True):
    """Why it was rejected: sent to the client and logged, so it quotes nothing of a token."""

    message: str
    error: str = INVALID
    # What it would take.
    scope: str = ""


TokenVerdict = Verified | TokenRejection
Pending = asyncio.Future[TokenVerdict]
Claims = dict[str, Any]
