"""What the engine asks of a policy: which face a principal sees, the steps of a request, and whether something that was
kept of a request may still be read or resumed.

One object, given at construction, which stays while what it decides changes; whoever depends on that is told. This one
allows everything. Knows nothing about what a decision depends on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from mcp_workbench.engine.face.base import Face
    from mcp_workbench.engine.steps import Denial, EventRecorder, Step, Subject, Tracer, Tracker


class GateFollower(Protocol):
    """Has something that depends on what a gate decides."""

    def on_steps_changed(self) -> None:
        """New requests have to pass other steps."""

    def on_rules_changed(self, principal: str | None) -> None:
        """Other faces may be shown and other things refused: to this principal, or to any."""


class Gate:
    """Lets everything pass, and shows everyone the same face."""

    def __init__(self) -> None:
        self._followers: list[GateFollower] = []

    def follow(self, follower: GateFollower) -> None:
        """Tell this one of every change from now on."""
        self._followers.append(follower)

    @property
    def has_rules(self) -> bool:
        """Whether anything may be hidden or refused: if not, nothing has to be asked."""
        return False

    @property
    def recorder(self) -> EventRecorder | None:
        """Records events that are not requests; None if nothing is recorded."""
        return None

    def face_of(self, principal: str, face: Face) -> Face:
        """The face that a principal sees. `face`: the one of our own user without any rules."""
        return face

    def steps(self) -> tuple[Step, ...]:
        """The steps that every request to a server passes, in this order; each learns how it ended (`steps.py`)."""
        return ()

    @property
    def tracker(self) -> Tracker | None:
        """Counts every request to a server from its beginning to its end; None if nobody asked for that."""
        return None

    @property
    def tracer(self) -> Tracer | None:
        """Traces requests; None if nobody asked for that. With it there is a tracker."""
        return None

    def on_listed(self, face: Face, tools: Sequence[bytes]) -> None:
        """A client was given this list of tools. Called only if there is a tracker."""

    def calls_at_once(self, toolbox: str = "", server: str = "") -> int:
        """How many calls made for one request may be in flight to this server, or to all together, so that they do not
        refuse each other."""
        return sys.maxsize

    def on_session_end(self, version: str, seconds: float) -> None:
        """A client with a session of this revision has left after so long."""

    def refuses(self, request: Subject) -> Denial | None:
        """Why a principal may no longer use what is kept of a request that was let through before: its result, its
        task, its subscription, or the request itself, which waits for its client. Nobody is asked to approve it
        again."""
        return None


# For views without requests.
OPEN: Final = Gate()
