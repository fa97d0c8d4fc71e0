"""The result of checking a token: who is calling, or why it was rejected. Values."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse
from mcp_workbench.team.identity.identities import Identity

INVALID: Final = "invalid_token"
INSUFFICIENT: Final = "insufficient_scope"
UNREACHABLE: Final = "temporarily_unavailable"

# A request to the identity provider; if there is no response, status 0 and the reason.
Fetch = Callable[[OAuthRequest], Awaitable[OAuthResponse]]
StartTask = Callable[[Awaitable[None]], "asyncio.Task[None]"]


class Verified(Struct, frozen=True):
    """A proven identity, valid until a moment (seconds since 1970)."""

    identity: Identity
    expires: float
    # The issuer that vouches for it: the token is checked again when its keys change.
    issuer: str
    # On the monotonic clock: when it must be checked again, whatever the wall clock shows.
    believed_until: float = math.inf


class PresentingPeer(Struct, frozen=True):
    """The sender of a token that an identity provider is asked about, before anything else is known about it."""

    # The address, or its network; empty if unknown.
    peer: str = ""
    # Whether it has recently failed to authenticate too often.
    is_slowed: bool = False


class TokenRejection(Struct, frozen=True):
    """Why it was rejected: sent to the client and logged, so it quotes no part of a token."""

    message: str
    error: str = INVALID
    # The required scope.
    scope: str = ""


TokenVerdict = Verified | TokenRejection
Pending = asyncio.Future[TokenVerdict]
Claims = dict[str, Any]
