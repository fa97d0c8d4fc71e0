"""Local users, as reported by the kernel for the other end of a Unix socket."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from mcp_workbench.engine.steps import LOCAL_PRINCIPAL
from mcp_workbench.errors import ConfigError
from mcp_workbench.team.identity.credentials import TokenRejection
from mcp_workbench.team.identity.identities import Identity

UNIX_USER_PREFIX: Final = "unix#"
STRANGER: Final = TokenRejection("this user of the machine may not connect", "")


class UnixUsers:
    """Our own user, and those who were allowed."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._identities = {f"uid:{uid_of(user)}": Identity(principal=f"{UNIX_USER_PREFIX}{user}") for user in allowed}
        # Last: the user who started us is `local`, even if named in the list.
        self._identities[f"uid:{os.geteuid()}"] = Identity(principal=LOCAL_PRINCIPAL)

    def recognise(self, peer: str) -> Identity | TokenRejection | None:
        """The user at the other end; None if the peer is not a local user."""
        if not peer.startswith("uid:"):
            return None
        return self._identities.get(peer, STRANGER)


def uid_of(user: str) -> int:
    """Raises `ConfigError`."""
    import pwd

    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(
            f"there is no user `{user}` on this machine", hint="name one of `getent passwd`, or a uid"
        ) from None
