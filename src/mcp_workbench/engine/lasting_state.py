"""What outlives the process that serves a client: the interface behind which state is left for other instances.

Each owner keeps its state in memory, with or without this. Here it leaves a copy of what another instance needs when
this one has ended, and asks for the copy of another when it knows nothing itself. This implementation is for a
workbench that is alone: it keeps no copies and finds none. The other one is `cluster.state.ClusterState`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from msgspec import Struct


class StateKind(NamedTuple):
    """One kind of state: how long it is kept, and how much of it."""

    name: str
    # Seconds since it was last written.
    lifetime: float
    # The most that a principal has of it. 0: each is found by its name alone, and only `lifetime` bounds them.
    most: int
    # Of one value. Larger ones stay where they are.
    max_bytes: int
    # Whether all of it belongs to nobody and every instance knows it (`LastingState.follow`).
    is_common: bool = False
    # Whether instances that know it write it again before its time is over.
    is_renewed: bool = False
    # Whether it stays with the name of a principal when their key is revoked and created again.
    stays_with_name: bool = False


# The handshake, opened toolboxes and subscriptions of a legacy session, by its id.
SESSION: Final = StateKind("session", 1800.0, 0, 256 * 1024)
# Toolboxes opened by clients without a session, by the name of the client.
OPENED: Final = StateKind("opened", 24 * 3600.0, 50, 64 * 1024)
# Results that are read in pieces, by their id.
RESULT: Final = StateKind("result", 1800.0, 0, 4 * 1024 * 1024)
# Handles of tasks.
TASK: Final = StateKind("task", 24 * 3600.0, 200, 16 * 1024)
# The instances themselves.
INSTANCE: Final = StateKind("instance", 10.0, 1000, 16 * 1024)
# Named keys, and those that were revoked, by the hash of their token. Both belong to nobody.
NAMED_KEY: Final = StateKind("key", 30 * 24 * 3600.0, 1000, 16 * 1024, is_common=True, is_renewed=True)
REVOKED_KEY: Final = StateKind("revoked-key", 30 * 24 * 3600.0, 5000, 1024, is_common=True, is_renewed=True)
# Approvals for a time and denials, by the digest of their call. For a day at most, as `approve --for`.
APPROVAL: Final = StateKind("approval", 24 * 3600.0, 500, 1024)
# Calls that wait for an approval, by their id, with what people have to see before they decide.
WAITING: Final = StateKind("waiting", 600.0, 1000, 32 * 1024, is_common=True)
# Sign-ins to servers, by the address of the server. As long as refresh tokens usually last.
SIGN_IN: Final = StateKind("sign-in", 90 * 24 * 3600.0, 200, 128 * 1024, stays_with_name=True)
# Definitions that differ from the lock file and were accepted, by server and item.
ACCEPTED_DEFINITION: Final = StateKind("accepted", 30 * 24 * 3600.0, 5000, 16 * 1024, is_common=True, is_renewed=True)


class StateHealth(Struct, frozen=True, rename="camel"):
    """How the state is doing, for people and metrics."""

    address: str
    # Why it cannot be used now; None while it can.
    problem: str | None
    # Of the last round trip; None before the first.
    latency_seconds: float | None
    # How often it went away.
    outages: int
    # Copies that wait to be written, that were dropped before they could be, and that were refused when they were read.
    waiting: int
    lost: int
    refused: int


class StateUnavailable(Exception):
    """The state cannot be used now; the message says why."""


class StateLease(Protocol):
    """The exclusive right to change one copy, for a while. Whoever had it before and is late changes nothing."""

    # The copy as it is now; None if there is none.
    value: bytes | None
    # What the one who had it last wrote down and has not settled: it has ended in between.
    left_mark: str

    async def mark(self, mark: str) -> bool:
        """Write down what is about to be done, for whoever comes next. False: another one has the lease meanwhile.
        Raises `StateUnavailable`."""
        ...

    async def finish(self, value: bytes) -> bool:
        """Store a new copy, take the mark back, and give the lease back. False: another one has the lease meanwhile,
        and nothing was stored. Raises `StateUnavailable`; then it may be tried again."""
        ...

    async def release(self, *, settles: bool = False) -> bool:
        """Give the lease back, and take the mark back if that is settled. Raises `StateUnavailable`."""
        ...


class LastingState:
    """Nothing outlives this process."""

    # Whether other instances find what is kept here. If not, nothing has to be kept.
    is_shared = False
    # Tells this instance from others.
    instance = ""

    def holder_of(self, principal: str) -> str:
        """Whom a principal's name stands for now: a key may have been revoked and created again."""
        return principal

    @property
    def is_blind(self) -> bool:
        """Whether calls are to be refused that depend on what other instances count and decide: they cannot be asked,
        and the user does not want us to decide alone."""
        return False

    def health(self) -> StateHealth | None:
        """None if there is nothing that could be away."""
        return None

    def keep(self, kind: StateKind, principal: str, name: str, value: bytes) -> None:
        """Leave a copy. Returns at once; it is written soon, and later if that is not possible now."""

    def drop(self, kind: StateKind, principal: str, name: str) -> None:
        """Remove the copy."""

    async def find(self, kind: StateKind, principal: str, name: str, *, is_patient: bool = False) -> bytes | None:
        """The copy that another instance left; None if there is none. `is_patient`: wait for longer, because there is
        nothing else to answer with than an error. Raises `StateUnavailable`."""
        return None

    async def find_all(self, kind: StateKind, principal: str, *, is_patient: bool = False) -> dict[str, bytes]:
        """All copies of this kind that were left for this principal, by name. `is_patient`: as above. Raises
        `StateUnavailable`."""
        return {}

    @property
    def is_in_doubt(self) -> bool:
        """Whether others may have what was not found, because they cannot be asked now."""
        health = self.health()
        return health is not None and health.problem is not None

    def follow(self, kind: StateKind, changed: Callable[[dict[str, bytes]], None]) -> None:
        """Call this with all copies of a common kind (its principal is empty), by name: at first, whenever they have
        changed, and when all were lost. Whoever misses one of their own keeps it again. Not called while they
        cannot be read: what is known stays known."""

    async def claim(self, kind: StateKind, principal: str, name: str, seconds: float) -> StateLease | None:
        """The right to change this copy, for so long; None: another instance has it. Raises `StateUnavailable`."""
        raise StateUnavailable("there are no other instances")

    def tell(self, subject: str, body: bytes) -> None:
        """Tell all other instances that run now. Whoever is away does not hear it."""

    def on_told(self, subject: str, heard: Callable[[bytes], None]) -> None:
        """Call this with what other instances tell about a subject."""

    def on_emptied(self, keep_again: Callable[[], None]) -> None:
        """Call this if all copies were lost, to leave them again."""


LOCAL_STATE: Final = LastingState()
