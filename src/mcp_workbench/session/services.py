"""What every session is given: the same for all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mcp_workbench.router import Router
from mcp_workbench.session.parking import Parking
from mcp_workbench.session.welcome import Welcome

if TYPE_CHECKING:
    from mcp_workbench.session.session import Session


class NewsDesk(Protocol):
    """Where sessions that want to be told of changes are known."""

    def add(self, session: Session) -> None:
        """Tell this one too."""

    def discard(self, session: Session) -> None:
        """Tell it no longer."""


class Services:
    """The rooms that a session sends its requests to."""

    __slots__ = ("hub", "parking", "router", "welcome")

    def __init__(self, router: Router, welcome: Welcome, parking: Parking, hub: NewsDesk) -> None:
        self.router = router
        self.welcome = welcome
        self.parking = parking
        self.hub = hub
