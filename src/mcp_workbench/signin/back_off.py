"""When an authorization server that fails is asked again: after 0.25, 0.5, 1 … 60 seconds. Pure.

What fails for one sign-in may be about that sign-in alone, so others wait only once it has failed for two.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from msgspec import Struct, field

FIRST_BACK_OFF_DELAY: Final = 0.25
MAX_BACK_OFF_DELAY: Final = 60.0


class _Trouble(Struct):
    until: float = 0.0
    pause: float = 0.0
    why: str = ""
    sign_ins: set[Hashable] = field(default_factory=set)


class BackOff:
    """Shared by all sign-ins of one workbench."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}

    def pause(self, issuer: str, sign_in: Hashable, now: float) -> tuple[float, str] | None:
        """The seconds until this issuer may be asked for this sign-in, and why; None if it may be asked now."""
        trouble = self._troubles.get(issuer)
        if trouble is None or (sign_in not in trouble.sign_ins and len(trouble.sign_ins) < 2):
            return None
        # Also after the clock was set back.
        left = min(trouble.until - now, trouble.pause)
        return (left, trouble.why) if left > 0 else None

    def failed(self, issuer: str, sign_in: Hashable, now: float, why: str) -> None:
        trouble = self._troubles.setdefault(issuer, _Trouble())
        trouble.pause = min(max(2 * trouble.pause, FIRST_BACK_OFF_DELAY), MAX_BACK_OFF_DELAY)
        trouble.until, trouble.why = now + trouble.pause, why
        trouble.sign_ins.add(sign_in)

    def answered(self, issuer: str) -> None:
        self._troubles.pop(issuer, None)
