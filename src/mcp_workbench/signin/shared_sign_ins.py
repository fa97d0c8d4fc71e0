"""Sign-ins of all instances of a cluster: signed in once is signed in everywhere, and a token is refreshed once.

Each machine has a copy of them in its own store, which is what requests read. A refresh holds a lease on the cluster's
copy: whoever gets it finds what the one before has stored. Before the refresh token is sent, that is marked there; if
the mark is still there afterwards, its holder has ended without storing the answer, and a token that may have been used
is not sent again. Without the cluster's state nothing is refreshed: another instance may be about to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, encode

from mcp_workbench.engine.lasting_state import SIGN_IN, LastingState, StateLease, StateUnavailable
from mcp_workbench.signin.flow_io import NotNow
from mcp_workbench.signin.flow_runner import REQUEST_SECONDS
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore
from mcp_workbench.signin.store_location import StoreUnusable

log = logging.getLogger(__name__)

# For a refresh: the request, and storing the answer. A holder that takes longer has ended, or is too late.
LEASE_SECONDS: Final = 2 * REQUEST_SECONDS
# How often the lease is asked for while another instance has it.
LEASE_CHECK_INTERVAL: Final = 0.05
# How often the store is looked at for sign-ins that commands have changed, at the cost of a stat.
SIGN_IN_CHECK_INTERVAL: Final = 1.0
# After the state has lost everything: time for all instances to leave again what they know. Whoever refreshed before
# that might send a token that another one has exchanged.
RECOVERY_SECONDS: Final = 3.0
_CHANGED: Final = "sign-in"
_SENT: Final = "sent"

# A principal and a server.
_Place = tuple[str, str]


class _LeftSignIn(Struct):
    # Empty: the user has signed out.
    records: list[SignInRecord]
    # Seconds since 1970; later than that of what it replaced.
    at: float
    # Whether the last refresh has left the refresh token as it was: then it can be sent again.
    is_reusable: bool = False


_decode: Final = Decoder(_LeftSignIn).decode


class _Unfinished(Struct, frozen=True):
    """What could not be written when a turn ended. None: nothing but that it has ended."""

    lease: StateLease
    value: bytes | None

    async def finish(self) -> bool:
        """Raises `StateUnavailable`."""
        if self.value is None:
            return await self.lease.release(settles=True)
        return await self.lease.finish(self.value)


class SharedTurn:
    """The turn of this instance to refresh the sign-in of one principal to one server."""

    def __init__(self, lease: StateLease, left: _LeftSignIn | None, unfinished: list[_Unfinished]) -> None:
        self._lease = lease
        self._left = left
        self._unfinished = unfinished
        self._has_failed = False
        self._is_over = False

    @property
    def is_lost(self) -> bool:
        """Whether an instance has sent the refresh token, and ended before it had stored the answer."""
        return bool(self._lease.left_mark) and not (self._left is not None and self._left.is_reusable)

    async def send(self) -> None:
        """The refresh token is about to be sent. Raises `NotNow`; then it must not be."""
        try:
            is_ours = await self._lease.mark(_SENT)
        except StateUnavailable as error:
            raise _away(error) from None
        if not is_ours:
            raise NotNow("another instance refreshes this sign-in", hint="try again later")

    async def store(self, records: list[SignInRecord], *, is_reusable: bool = False) -> None:
        """Raises `NotNow` if another instance has taken over: what that has stored counts."""
        written = _written(records, self._left, is_reusable=is_reusable)
        self._is_over = True
        try:
            is_stored = await self._lease.finish(written)
        except StateUnavailable:
            # Our own store has it, and as long as the mark is there, no other instance sends the token before it.
            self._unfinished.append(_Unfinished(self._lease, written))
            return
        if not is_stored:
            raise NotNow("another instance has taken over while this one refreshed", hint="try again later")

    def fail(self) -> None:
        """There is no telling whether it was exchanged. If it was not, another attempt is all that is needed."""
        self._has_failed = True

    async def end(self) -> None:
        """Give the turn to others. Without an answer the mark stays."""
        if self._is_over:
            return
        try:
            await self._lease.release(settles=self._has_failed)
        except StateUnavailable:
            if self._has_failed:
                self._unfinished.append(_Unfinished(self._lease, None))


class SharedSignIns:
    """The sign-ins of one store, shared."""

    def __init__(self, state: LastingState, store: TokenStore) -> None:
        self._state = state
        self._store = store
        # What was in the store when it was last looked at, and its stamp then. None before the first time.
        self._known: dict[_Place, list[SignInRecord]] | None = None
        self._stamp: tuple[int, int, int] | None = None
        # What has to be shared, and whether because the user has changed it here.
        self._dirty: dict[_Place, bool] = {}
        # Users who have signed in or out elsewhere.
        self._told: set[str] = set()
        self._unfinished: list[_Unfinished] = []
        self._recovers_until = 0.0
        state.on_told(_CHANGED, lambda body: self._told.add(body.decode(errors="replace")))
        state.on_emptied(self._on_emptied)

    # ── refreshing ──

    @contextlib.asynccontextmanager
    async def refreshing(self, principal: str, server: str, seconds: float) -> AsyncIterator[SharedTurn]:
        """Wait for the turn, and take over what others have stored since. Raises `NotNow`."""
        if time.monotonic() < self._recovers_until:
            raise NotNow("the cluster's state has lost everything and is being filled again", hint="try again later")
        try:
            async with asyncio.timeout(seconds):
                # Polled: the holder may be on any machine, and may have ended.
                while (lease := await self._claim(principal, server)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(LEASE_CHECK_INTERVAL)
        except TimeoutError:
            raise NotNow(f"another instance refreshes this sign-in for {seconds:g} s", hint="try again later") from None
        except StateUnavailable as error:
            raise _away(error) from None
        left = _read(lease.value)
        turn = SharedTurn(lease, left, self._unfinished)
        try:
            if left is not None:
                await self._adopt({(principal, server): left})
            yield turn
        finally:
            await turn.end()

    async def _claim(self, principal: str, server: str) -> StateLease | None:
        return await self._state.claim(SIGN_IN, principal, server, LEASE_SECONDS)

    def known(self, records: Iterable[SignInRecord]) -> None:
        """These are shared already."""
        if self._known is not None:
            self._known.update(_by_place(records))

    # ── following what happens here and elsewhere ──

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except StoreUnusable as error:
                log.debug("sign-ins are not shared now: %s", error.message)
            await asyncio.sleep(SIGN_IN_CHECK_INTERVAL)

    async def look(self) -> None:
        """Share what has changed here, and take over what others have changed. Raises `StoreUnusable`."""
        with contextlib.suppress(StateUnavailable):
            while self._unfinished:
                await self._unfinished[0].finish()
                self._unfinished.pop(0)
        stamp = self._store.stamp()
        if self._known is None or stamp != self._stamp:
            await self._store.unlock()
            found = _by_place(self._store.read().records)
            before, self._known, self._stamp = self._known, found, stamp
            if before is None:
                self._dirty |= dict.fromkeys(found, False)
            else:
                changed = [place for place in {*before, *found} if before.get(place) != found.get(place)]
                self._dirty |= dict.fromkeys(changed, True)
        for place, is_users in list(self._dirty.items()):
            with contextlib.suppress(StateUnavailable):
                if await self._share(place, is_users=is_users):
                    self._dirty.pop(place, None)
        while self._told:
            await self.arrive(self._told.pop())

    async def arrive(self, principal: str) -> None:
        """Take over what other instances have left for a user. Raises `StoreUnusable`."""
        values = await self._state.find_all(SIGN_IN, principal)
        left = {(principal, server): read for server, value in values.items() if (read := _read(value)) is not None}
        await self._adopt(left)

    async def _share(self, place: _Place, *, is_users: bool) -> bool:
        """Whether it is shared now. Raises `StateUnavailable`."""
        lease = await self._claim(*place)
        if lease is None:
            return False
        left, records = _read(lease.value), (self._known or {}).get(place, [])
        if left is not None and not is_users and left.at >= _changed_at(records):
            await lease.release()
            await self._adopt({place: left})
            return True
        if await lease.finish(_written(records, left)):
            self._state.tell(_CHANGED, place[0].encode())
            return True
        return False

    async def _adopt(self, left: dict[_Place, _LeftSignIn]) -> None:
        await self._store.unlock()
        here = _by_place(self._store.read().records)
        newer = {
            place: each.records
            for place, each in left.items()
            # What the user has changed here, and others do not know yet, stays.
            if not self._dirty.get(place)
            and each.at >= _changed_at(here.get(place, []))
            and each.records != here.get(place, [])
        }
        if not newer:
            return

        def change(contents: Contents) -> None:
            contents.records = [each for each in contents.records if _place(each) not in newer or not _is_shared(each)]
            contents.records += [record for records in newer.values() for record in records]
            for place, records in newer.items():
                if any(record.access_token and not record.ended for record in records):
                    contents.satisfy(*place)

        await self._store.change(change)
        if self._known is not None:
            self._known = {place: records for place, records in {**self._known, **newer}.items() if records}

    def _on_emptied(self) -> None:
        self._recovers_until = time.monotonic() + RECOVERY_SECONDS
        self._dirty = {**dict.fromkeys(self._known or {}, False), **self._dirty}


def _is_shared(record: SignInRecord) -> bool:
    # A machine gets a token of its own whenever it needs one.
    return record.grant == "authorization_code"


def _place(record: SignInRecord) -> _Place:
    return record.principal, record.server


def _by_place(records: Iterable[SignInRecord]) -> dict[_Place, list[SignInRecord]]:
    found: dict[_Place, list[SignInRecord]] = {}
    for record in records:
        if _is_shared(record):
            found.setdefault(_place(record), []).append(record)
    return found


def _changed_at(records: Iterable[SignInRecord]) -> float:
    return max((max(each.obtained_at, each.signed_in_at) for each in records), default=0.0)


def _written(records: list[SignInRecord], before: _LeftSignIn | None, *, is_reusable: bool = False) -> bytes:
    at = max(time.time(), 0.0 if before is None else before.at + 0.001)
    return encode(_LeftSignIn([each for each in records if _is_shared(each)], at, is_reusable))


def _read(value: bytes | None) -> _LeftSignIn | None:
    with contextlib.suppress(MsgspecError):
        return None if value is None else _decode(value)
    return None


def _away(error: StateUnavailable) -> NotNow:
    return NotNow(
        f"a sign-in is not refreshed while the cluster's state is away ({error}): another instance may be doing it",
        hint="try again when it is back",
    )
