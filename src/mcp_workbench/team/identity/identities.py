"""What is known about a principal besides its name, which is the key of everything that belongs to a user.

Written by authentication, read by decisions. Knows nothing about how a user was authenticated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from contextvars import ContextVar
from itertools import islice
from typing import Final

from msgspec import Struct

from mcp_workbench.engine.steps import LOCAL_PRINCIPAL, GuardedRequest, Subject

# Principals that are remembered. A caller is refreshed with each request, so the ones that are dropped have not called
# for longest. Principals being served, or limited to some toolboxes, are never dropped.
MAX_IDENTITIES: Final = 20_000
# How many are dropped at once: finding out who is being served requires a pass over all of them.
_IDENTITIES_DROPPED_AT_ONCE: Final = 200


class Identity(Struct, frozen=True, kw_only=True, cache_hash=True):
    """The identity of a caller, as far as rules can depend on it."""

    # A key's name, `issuer#subject`, `default` (the single token), `anonymous`, or `local` (stdio, our own user).
    principal: str
    # From the identity provider's claim.
    groups: frozenset[str] = frozenset()
    # Globs of the toolboxes that a key is limited to; None for all.
    toolboxes: tuple[str, ...] | None = None


# The identity of the request being handled, also in the tasks that it starts. Tasks of connections begin without it.
_proved: Final[ContextVar[Identity | None]] = ContextVar("proved", default=None)


class Identities:
    """Bounded: the principals that were neither seen nor looked up for longest are dropped first."""

    __slots__ = ("_known", "_latest", "_served", "on_change")

    def __init__(self, served: Callable[[], Collection[str]] = frozenset) -> None:
        """`served`: principals with something open, as a stream may be silent for hours."""
        # Called with an identity that has changed.
        self.on_change: list[Callable[[Identity], None]] = []
        self._known: OrderedDict[str, Identity] = OrderedDict()
        # The one that was remembered last.
        self._latest: Identity | None = None
        self._served = served

    def __len__(self) -> int:
        return len(self._known)

    @property
    def has_limits(self) -> bool:
        """Whether any principal is limited to some toolboxes."""
        return any(identity.toolboxes is not None for identity in self._known.values())

    def of(self, principal: str) -> Identity:
        """What is known about this principal; only its name if nothing else is."""
        known = self._known.get(principal)
        if known is None:
            return known_by_name(principal)
        self._known.move_to_end(principal)
        return known

    def of_request(self, principal: str) -> Identity:
        """The identity proved by the token of the request being handled, whatever was proved since; outside a request
        of this principal, the latest one."""
        proved = _proved.get()
        return proved if proved is not None and proved.principal == principal else self.of(principal)

    def remember(self, identity: Identity) -> None:
        """Record the latest identity: groups change, and keys are recreated with other limits."""
        _proved.set(identity)
        if identity is self._latest:
            return
        self._latest = identity
        known = self._known
        before = known.get(identity.principal)
        known[identity.principal] = identity
        known.move_to_end(identity.principal)
        if len(known) > MAX_IDENTITIES:
            self._forget_some(identity.principal)
        if before != identity:
            for listener in self.on_change:
                listener(identity)

    def _forget_some(self, newest: str) -> None:
        served = self._served()
        idle = (
            principal
            for principal, each in self._known.items()
            # The limits of a key would be lost with it. There are few keys.
            if each.toolboxes is None and principal not in served and principal != newest
        )
        for principal in list(islice(idle, _IDENTITIES_DROPPED_AT_ONCE)):
            del self._known[principal]


def known_by_name(principal: str) -> Identity:
    """An identity of which only the name is known."""
    return Identity(principal=principal or LOCAL_PRINCIPAL)


def identity_in(subject: Subject, identities: Identities) -> Identity:
    """The identity that a request proved when it arrived; for anything else, the latest one of its principal."""
    proved = subject.identity if isinstance(subject, GuardedRequest) else None
    return proved if isinstance(proved, Identity) else identities.of(subject.principal)
