"""What is known of a principal beside its name, which keys everything that is a person's.

Written by whoever authenticates, read by whoever decides. Refuses to know how somebody was authenticated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final

from msgspec import Struct

from mcp_workbench.steps import LOCAL, GuardedRequest, Subject

# Principals of which something is remembered. Whoever calls is remembered with each request, so the ones that are
# forgotten have not called for longest. Nobody is who is being served, or is limited to some toolboxes.
MOST_IDENTITIES: Final = 20_000
# So many are forgotten at once: to find out who is being served takes a look at all of them.
_FORGOTTEN_AT_ONCE: Final = 200


class Identity(Struct, frozen=True, kw_only=True):
    """Who somebody is, as far as rules can depend on it."""

    # A key's name, `issuer#subject`, `default` (the single token), `anonymous`, or `local` (stdio, our own user).
    principal: str
    # From the identity provider's claim.
    groups: frozenset[str] = frozenset()
    # Globs of the toolboxes that a key is limited to; None for all.
    toolboxes: tuple[str, ...] | None = None


class Identities:
    """Bounded: the principals that were neither seen nor asked about for longest are forgotten first."""

    __slots__ = ("_known", "on_change", "served")

    def __init__(self) -> None:
        # Told of somebody of whom something else is known than before.
        self.on_change: list[Callable[[Identity], None]] = []
        self._known: OrderedDict[str, Identity] = OrderedDict()
        # Those who have something open: a stream may last for hours without a word.
        self.served: Callable[[], Collection[str]] = frozenset

    def __len__(self) -> int:
        return len(self._known)

    @property
    def has_limits(self) -> bool:
        """Whether anybody is limited to some toolboxes."""
        return any(identity.toolboxes is not None for identity in self._known.values())

    def of(self, principal: str) -> Identity:
        """What is known of this principal; its name where nothing else is."""
        known = self._known.get(principal)
        if known is None:
            return known_by_name(principal)
        self._known.move_to_end(principal)
        return known

    def remember(self, identity: Identity) -> None:
        """What was proved last counts: groups change, and keys are made again with other limits."""
        known = self._known
        before = known.get(identity.principal)
        known[identity.principal] = identity
        known.move_to_end(identity.principal)
        if len(known) > MOST_IDENTITIES:
            self._forget_some(identity.principal)
        if before != identity:
            for listener in self.on_change:
                listener(identity)

    def _forget_some(self, newest: str) -> None:
        served = self.served()
        idle = (
            principal
            for principal, each in self._known.items()
            # Of a key that is forgotten nobody would know the limits. There are few of them.
            if each.toolboxes is None and principal not in served and principal != newest
        )
        for principal in list(islice(idle, _FORGOTTEN_AT_ONCE)):
            del self._known[principal]


def known_by_name(principal: str) -> Identity:
    """Somebody of whom nothing else is known."""
    return Identity(principal=principal or LOCAL)


def identity_in(subject: Subject, identities: Identities) -> Identity:
    """Who makes a request, as they proved it then; of what is no request, as they did last."""
    proved = subject.identity if isinstance(subject, GuardedRequest) else None
    return proved if isinstance(proved, Identity) else identities.of(subject.principal)
