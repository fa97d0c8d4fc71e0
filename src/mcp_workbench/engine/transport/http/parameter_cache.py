"""Which tool parameters are mirrored into headers, read once from the tools' definitions.

Needed for every call over HTTP, in both directions, although hardly any tool has such parameters. Owns the cache; knows
nothing about where definitions come from and when they change.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import DecodeError, Raw
from msgspec.json import decode

from mcp_workbench.engine.transport.http.header_parameters import (
    ANNOTATION,
    HeaderParameters,
    InvalidAnnotation,
    read_annotations,
)

_ANNOTATION_KEY = f'"{ANNOTATION}"'.encode()


class HeaderParameterCache:
    """Valid as long as `state` stays the same."""

    __slots__ = ("_definition_of", "_known", "_known_for", "_read_for", "_state")

    def __init__(
        self,
        definition_of: Callable[[str], Raw | None],
        state: Callable[[str], object | None],
        *,
        read_for: Callable[[str, str], HeaderParameters | None] | None = None,
    ) -> None:
        """`state`: what these definitions depend on; None if a principal is not shown them. For those, `read_for` reads
        the definitions that they are shown, each time."""
        self._definition_of = definition_of
        self._state = state
        self._read_for = read_for
        self._known: dict[str, HeaderParameters | None] = {}
        self._known_for: object = None

    def __call__(self, tool: str, principal: str = "") -> HeaderParameters | None:
        """None for a tool without any, for an unknown tool, or if its definition cannot be used over HTTP."""
        known, state = self._known, self._state(principal)
        if state is None and self._read_for is not None:
            return self._read_for(tool, principal)
        if state is not self._known_for:
            if state != self._known_for:
                known.clear()
            self._known_for = state
        if tool in known:
            return known[tool]
        definition = self._definition_of(tool)
        if definition is None:
            # Unknown names are not cached: clients may send any number of them.
            return None
        known[tool] = found = read_parameters(definition)
        return found


def read_parameters(definition: Raw) -> HeaderParameters | None:
    """None for a tool without any, or whose definition cannot be used over HTTP."""
    if _ANNOTATION_KEY not in bytes(definition):
        return None
    try:
        return read_annotations(decode(definition)["inputSchema"])
    except (InvalidAnnotation, DecodeError, KeyError):
        return None
