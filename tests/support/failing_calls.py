"""A program that dies, or is refused, at its n-th system call about files: for every n.

In the process, so that hundreds of deaths cost nothing; `killed_writes` kills real ones. What `open(…)` of Python
itself does is not seen.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import pytest

CALLS = (
    *("open", "write", "pwrite", "pread", "fsync", "ftruncate", "fchmod", "fstat", "stat", "utime"),
    *("rename", "replace", "link", "unlink", "makedirs", "listdir"),
)
# It ends there; half of a write is written before; the call fails and the program goes on, now and then for good.
Mode = Literal["dies", "dies halfway", "disk is full", "disk fills up", "disk stays full", "interrupted"]
MODES: tuple[Mode, ...] = get_args(Mode)
NEEDS_ROOM = ("open", "write", "pwrite", "fsync", "rename", "replace", "link", "makedirs", "ftruncate")


class Died(BaseException):
    """The process has ended: no call does anything any more."""


class FailingCalls:
    """Counts calls, and fails the n-th."""

    def __init__(self, number: int, mode: Mode) -> None:
        self.left = number
        self._mode = mode

    def wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left > 0:
                return real(*arguments, **named)
            if self._mode.startswith("dies"):
                if self.left == 0 and self._mode == "dies halfway" and name in ("write", "pwrite"):
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], *arguments[2:])
                raise Died
            if self.left == 0 and self._mode == "interrupted":
                raise OSError(errno.EIO, "Input/output error")
            if self.left == 0 and self._mode == "disk fills up" and name == "write":
                # The next one finds it full.
                self.left, self._mode = 1, "disk is full"
                return real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            is_full = self.left == 0 or self._mode == "disk stays full"
            if is_full and self._mode.startswith("disk") and name in NEEDS_ROOM and _adds(name, arguments):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **named)

        return call

    @property
    def was_reached(self) -> bool:
        return self.left <= 0


def _adds(name: str, arguments: tuple[Any, ...]) -> bool:
    return name != "open" or bool(arguments[1] & os.O_CREAT)


@contextmanager
def failing_at(number: int, mode: Mode) -> Iterator[FailingCalls]:
    calls = FailingCalls(number, mode)
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, calls.wrapped(name, getattr(os, name)))
        yield calls


@contextmanager
def no_descriptor_left(mode: Mode) -> Iterator[None]:
    before = _descriptors()
    yield
    left = _descriptors() - before
    if mode.startswith("dies"):
        # Those of a dead process end with it.
        for descriptor in left:
            os.close(descriptor)
    else:
        assert not left


def _descriptors() -> set[int]:
    found = {int(each) for each in os.listdir("/proc/self/fd")}
    # The one that read this folder is closed by now.
    return {each for each in found if os.path.exists(f"/proc/self/fd/{each}")}
