"""What one principal has before it: which toolboxes it opened, and which of them changed since it looked."""

from __future__ import annotations


class View:
    """State that belongs to a principal, not to a connection: the modern era has no connections to keep it on."""

    __slots__ = ("changed", "opened", "principal")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        # Insertion-ordered sets.
        self.opened: dict[str, None] = {}
        self.changed: dict[str, None] = {}
