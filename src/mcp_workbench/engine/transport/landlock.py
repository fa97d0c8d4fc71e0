"""Landlock: the part of Linux with which a thread gives up access to files, ports and other processes.

Owns the calls and their numbers. Knows nothing about who should give up what (`confinement`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_ASK_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1

# From which version on the kernel can limit what.
# With the first version, no file could be renamed from one folder to another.
RENAMES_ABI: Final = 2
TCP_ABI: Final = 4
SCOPES_ABI: Final = 6

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_MAKE_CHAR: Final = 1 << 6
_MAKE_BLOCK: Final = 1 << 11
_REFER: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_IOCTL_DEV: Final = 1 << 15
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
# What can be granted for a single file.
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# How many rights over files each version knows: REFER came with 2, TRUNCATE with 3, IOCTL_DEV with 5.
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_MAX_FILE_RIGHTS: Final = 16
_TCP: Final = 0b11
# Abstract Unix sockets and signals.
_SCOPES: Final = 0b11


@cache
def _system_call() -> Any:
    return ctypes.CDLL(None, use_errno=True).syscall


@cache
def abi() -> int:
    """The version that this kernel has; 0: none."""
    try:
        return max(0, int(_system_call()(_CREATE_RULESET, None, 0, _ASK_VERSION)))
    except (AttributeError, OSError):
        return 0


def opened_itself(path: str) -> int | None:
    """A descriptor of what is at this path, if no link is on its way: whatever is put there later, it stays this."""
    try:
        descriptor = os.open(path, os.O_PATH)
    except (OSError, ValueError):
        return None
    if os.readlink(f"/proc/self/fd/{descriptor}") == path:
        return descriptor
    os.close(descriptor)
    return None


class Ruleset:
    """What a thread may still do, from when it is applied. With `files`, only what is granted; with `tcp`, it can
    neither connect nor listen; with `scopes`, it reaches no process outside."""

    def __init__(self, *, files: bool, tcp: bool, scopes: bool) -> None:
        version = abi()
        if files:
            self._handled = (1 << _RIGHTS.get(version, _MAX_FILE_RIGHTS)) - 1
        elif version >= SCOPES_ABI:
            self._handled = 0
        else:
            # Any domain keeps its processes from looking into others. Where it cannot consist of scopes, it gives up a
            # right that it does not have, that of making devices.
            self._handled = _MAKE_BLOCK | _REFER
        fields = struct.pack(
            "=QQQ",
            self._handled,
            _TCP if tcp and version >= TCP_ABI else 0,
            _SCOPES if scopes and version >= SCOPES_ABI else 0,
        )
        size = 24 if version >= SCOPES_ABI else 16 if version >= TCP_ABI else 8
        self._descriptor = _checked(_system_call()(_CREATE_RULESET, fields, size, 0))
        if self._handled & _REFER and not files:
            # Renaming from one folder to another is refused to every domain that limits files, unless it is granted.
            self._allow(_REFER, "/")

    def grant(self, paths: Iterable[str], *, write: bool, refused: Callable[[str], None]) -> None:
        """Grant what is at these paths, each without a link on its way. What is missing, or has been replaced by a
        link to somewhere else, is passed to `refused` and not granted."""
        rights = self._handled & ~(_MAKE_CHAR | _MAKE_BLOCK) if write else self._handled & _READ
        for path in paths:
            descriptor = opened_itself(path)
            if descriptor is None:
                refused(path)
                continue
            try:
                is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
                allowed = rights if is_folder else rights & _OF_FILES
                self._add(allowed, descriptor)
            finally:
                os.close(descriptor)

    def _allow(self, rights: int, path: str) -> None:
        descriptor = os.open(path, os.O_PATH)
        try:
            self._add(rights, descriptor)
        finally:
            os.close(descriptor)

    def _add(self, rights: int, descriptor: int) -> None:
        rule = struct.pack("=Qi", rights, descriptor)
        _checked(_system_call()(_ADD_RULE, self._descriptor, _RULE_PATH_BENEATH, rule, 0))

    def apply(self) -> None:
        """Give up everything else, in this thread, for good. It must have `no_new_privs`."""
        _checked(_system_call()(_RESTRICT_SELF, self._descriptor, 0))

    def close(self) -> None:
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result
