"""The name that a client introduced itself with, for people who look at what is running."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

MAX_NAME_CHARACTERS: Final = 100


def client_name(info: bytes) -> str | None:
    """The name in a `clientInfo`, if it has one."""
    try:
        introduced = decode(info)
    except DecodeError:
        return None
    name = introduced.get("name") if isinstance(introduced, dict) else None
    return name[:MAX_NAME_CHARACTERS] if isinstance(name, str) else None


def whose(info: bytes, principal: str, peer: str) -> str:
    """A client in the log: its name, and its principal and address if it has any."""
    return " ".join(filter(None, (client_name(info) or "client", principal, peer)))


def client_names(sessions: Iterable[object]) -> list[str]:
    """The names of these clients, each once."""
    found = (client_name(getattr(session, "client_info", b"{}")) for session in sessions)
    return sorted({name for name in found if name})
