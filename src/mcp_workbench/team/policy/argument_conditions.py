"""Arguments as seen by rules: JSON Pointers to values, and globs for these values. Pure.

Decoded only if a rule depends on them, and once. For arguments that parsers may read differently, a rule is
undecidable.
"""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec import Raw

from mcp_workbench.team.policy.globs import fits

# Larger ones are not decoded: a rule would delay the calls of all other users.
LARGEST_JUDGED: Final = 1024 * 1024
_MISSING: Final = object()


class Undecidable(Exception):
    """Why it cannot be decided whether a rule matches."""


class JudgedArguments:
    """The arguments of one request; None matches everything."""

    __slots__ = ("_is_read", "_raw", "_value")

    def __init__(self, raw: bytes | Raw | None) -> None:
        self._raw = raw
        self._value: Any = None
        self._is_read = False

    def agree(self, wanted: dict[str, str]) -> bool:
        """Whether the value at each pointer matches its glob. Raises `Undecidable`."""
        if not wanted or self._raw is None:
            return True
        if not self._is_read:
            self._value, self._is_read = _read(bytes(self._raw)), True
        return all(_fits(glob, _at(self._value, pointer)) for pointer, glob in wanted.items())


def _read(raw: bytes) -> Any:
    if len(raw) > LARGEST_JUDGED:
        raise Undecidable(f"a rule depends on the arguments, and {len(raw)} bytes of them are too many to check")
    try:
        value = json.loads(raw or b"{}", object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise Undecidable("a rule depends on the arguments, and they cannot be read") from None
    if value is not None and not isinstance(value, dict):
        # Some servers accept an object encoded as a string.
        raise Undecidable("a rule depends on the arguments, and they are not an object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # We would see the last of two, a server perhaps the first: what is judged must be what is done.
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Undecidable("a rule depends on the arguments, and one of them is given twice")
    return members


def _at(value: Any, pointer: str) -> Any:
    """The value at a JSON Pointer (RFC 6901)."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and int(step[:9]) < len(value):
            value = value[int(step[:9])]
        else:
            return _MISSING
    return value


def _fits(glob: str, value: Any) -> bool:
    if value is _MISSING:
        return False
    # Values other than strings are compared in their JSON form.
    return fits(glob, value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False))
