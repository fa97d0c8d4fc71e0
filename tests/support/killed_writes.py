"""A process that is killed at its n-th call that changes something on disk: before it, or in the middle of a write."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

CHANGING = ("open", "write", "fsync", "replace", "link", "unlink", "fchmod", "makedirs", "mkdir", "close")


def kill_at(number: int, *, halfway: bool) -> None:
    """Replace the functions of `os`, for the rest of this process. `halfway`: half of a write is written before."""
    left = number

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if halfway and name == "write":
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    for name in CHANGING:
        setattr(os, name, counted(name, getattr(os, name)))
