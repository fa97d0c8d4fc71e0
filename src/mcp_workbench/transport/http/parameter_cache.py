"""Which parameters of tools are mirrored into headers, read from their definitions once.

Every call over HTTP asks, in both directions, and hardly any tool has such parameters. Owns what was read; refuses to
know where definitions come from and when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from msgspec import DecodeError, Raw
from msgspec.json import decode

from mcp_workbench.transport.http.header_parameters import (
    ANNOTATION,
    HeaderParameters,
    InvalidAnnotation,
    read_annotations,
)

_WORD = f'"{ANNOTATION}"'.encode()


class HeaderParameterCache:
    """Remembered for as long as `state` stays the same."""

    __slots__ = ("_definition_of", "_known", "_known_for", "_state", "own", "read_for")

    def __init__(self, definition_of: Callable[[str], Raw | None], state: Callable[[], object]) -> None:
        self._definition_of = definition_of
        self._state = state
        # The principals whom the definitions are shown to; for others they are read each time, as each is shown them.
        self.own: Container[str] = ("",)
        self.read_for: Callable[[str, str], HeaderParameters | None] | None = None
        self._known: dict[str, HeaderParameters | None] = {}
        self._known_for: object = None

    def __call__(self, tool: str, principal: str = "") -> HeaderParameters | None:
        """None for a tool that has none, that is not known, or whose definition cannot be used over HTTP."""
        if self.read_for is not None and principal not in self.own:
            return self.read_for(tool, principal)
        known, state = self._known, self._state()
        if state is not self._known_for:
            if state != self._known_for:
                known.clear()
            self._known_for = state
        if tool in known:
            return known[tool]
        definition = self._definition_of(tool)
        if definition is None:
            # Names that nobody knows are not kept: clients may send any number of them.
            return None
        known[tool] = found = read_parameters(definition)
        return found


def read_parameters(definition: Raw) -> HeaderParameters | None:
    """None for a tool without any, or whose definition cannot be used over HTTP."""
    if _WORD not in bytes(definition):
        return None
    try:
        return read_annotations(decode(definition)["inputSchema"])
    except (InvalidAnnotation, DecodeError, KeyError):
        return None
