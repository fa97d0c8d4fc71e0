"""What one client has before it: which toolboxes it opened, and which of them changed since it looked."""

from __future__ import annotations


class View:
    """Belongs to a session where there is one, and to the principal in the modern era, which has no sessions."""

    __slots__ = ("changed", "opened", "principal")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        # Insertion-ordered sets.
        self.opened: dict[str, None] = {}
        self.changed: dict[str, None] = {}
