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
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, encode

from mcp_workbench.engine.lasting_state import SIGN_IN, LastingState, StateLease, StateUnavailable
from mcp_workbench.signin.flow_io import NotNow
from mcp_workbench.signin.flow_runner import TOKEN_REQUEST_TIMEOUT
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore
from mcp_workbench.signin.store_location import StoreUnusable

log = logging.getLogger(__name__)

# For a refresh: the request, and storing the answer. A holder that takes longer has ended, or is too late.
REFRESH_LEASE_LIFETIME: Final = 2 * TOKEN_REQUEST_TIMEOUT
# How often the lease is asked for while another instance has it.
LEASE_CHECK_INTERVAL: Final = 0.05
# How often the store is looked at for sign-ins that commands have changed, at the cost of a stat.
SIGN_IN_CHECK_INTERVAL: Final = 1.0
# After the state has lost everything: time for all instances to leave again what they know. Whoever refreshed before
# that might send a token that another one has exchanged.
STATE_RECOVERY_DELAY: Final = 3.0
# For the lease on a sign-in that the state has lost while it was refreshed. Others hold it for two round trips.
STORE_AGAIN_TIMEOUT: Final = 2.0
# Sign-ins that the state is known to have, those that have ended included.
MAX_LEFT: Final = 100_000
_SIGN_IN_TOPIC: Final = "sign-in"

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


class SharedTurn:
    """The turn of this instance to refresh the sign-in of one principal to one server."""

    def __init__(self, shared: SharedSignIns, place: _Place, lease: StateLease, left: _LeftSignIn | None) -> None:
        self._shared = shared
        self.place = place
        self._lease = lease
        self._left = left
        # The time of what is refreshed: whatever is newer was stored by somebody else meanwhile.
        self.began_at = shared.left_at(place) if left is None else left.at
        # What is to be stored; None: nothing but that the turn is over.
        self.new: _LeftSignIn | None = None
        # Says that the refresh token was sent, and by whom.
        self.mark = secrets.token_hex(8)
        self._has_failed = False
        self._is_over = False

    @property
    def is_lost(self) -> bool:
        """Whether an instance has sent the refresh token, and ended before it had stored the answer."""
        return bool(self._lease.left_mark) and not (self._left is not None and self._left.is_reusable)

    async def send(self) -> None:
        """The refresh token is about to be sent. Raises `NotNow`; then it must not be."""
        try:
            is_ours = await self._lease.mark(self.mark)
        except StateUnavailable as error:
            raise _away(error) from None
        if not is_ours:
            raise NotNow("another instance is refreshing this sign-in", hint="try again later")

    async def store(self, records: list[SignInRecord], *, is_reusable: bool = False) -> None:
        """Raises `NotNow` if another instance has taken over: what that has stored counts."""
        self.new = _newer(records, self.began_at, is_reusable=is_reusable)
        self._is_over = True
        try:
            is_stored = await self.finish() or await self._shared.store_again(self)
        except StateUnavailable:
            # Our own store has it, and as long as the mark is there, no other instance sends the token before it.
            self._shared.unfinished.append(self)
            is_stored = True
        if not is_stored:
            raise NotNow("another instance took over while this one was refreshing", hint="try again later")
        self._shared.note(self.place, self.new.at)

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
                self._shared.unfinished.append(self)

    async def finish(self) -> bool:
        """Write what is to be written at the end. False: the lease is gone. Raises `StateUnavailable`."""
        if self.new is None:
            return await self._lease.release(settles=True)
        return await self._lease.finish(encode(self.new))


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
        # Turns whose end could not be written.
        self.unfinished: list[SharedTurn] = []
        # When that was changed which the state has, as far as we know; also of those who have signed out.
        self._left_at: OrderedDict[_Place, float] = OrderedDict()
        self._recovers_until = 0.0
        self._times_emptied = 0
        state.on_told(_SIGN_IN_TOPIC, lambda body: self._told.add(body.decode(errors="replace")))
        state.on_emptied(self._on_emptied)

    # ── refreshing ──

    @contextlib.asynccontextmanager
    async def refreshing(self, principal: str, server: str, seconds: float) -> AsyncIterator[SharedTurn]:
        """Wait for the turn, and take over what others have stored since. Raises `NotNow`."""
        self._raise_if_recovering()
        place = principal, server
        try:
            lease = await self._wait_for_lease(place, seconds)
        except StateUnavailable as error:
            raise _away(error) from None
        if lease is None:
            raise NotNow(f"another instance has been refreshing this sign-in for {seconds:g} s", hint="try again later")
        left = _read(lease.value)
        if left is None and place in self._left_at:
            # Lost alone, or before our heartbeat could notice it.
            self._on_emptied()
        turn = SharedTurn(self, place, lease, left)
        try:
            self._raise_if_recovering()
            if left is not None:
                await self._adopt({place: left})
            yield turn
        finally:
            await turn.end()

    def _raise_if_recovering(self) -> None:
        if time.monotonic() < self._recovers_until:
            raise NotNow("the cluster's state was lost and is being restored", hint="try again later")

    async def _wait_for_lease(self, place: _Place, seconds: float) -> StateLease | None:
        """None if others have it all the time. Raises `StateUnavailable`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Polled: the holder may be on any machine, and may have ended.
                while (lease := await self._claim(*place)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(LEASE_CHECK_INTERVAL)
                return lease
        return None

    async def store_again(self, turn: SharedTurn) -> bool:
        """The lease on what was refreshed is gone. If the state has only lost it, and nobody has stored anything newer
        since, this counts. Raises `StateUnavailable`."""
        assert turn.new is not None
        lease = await self._wait_for_lease(turn.place, STORE_AGAIN_TIMEOUT)
        if lease is None:
            return False
        left = _read(lease.value)
        if lease.left_mark not in ("", turn.mark) or (left is not None and left.at > turn.began_at):
            await lease.release()
            return False
        return await lease.finish(encode(turn.new))

    async def _claim(self, principal: str, server: str) -> StateLease | None:
        return await self._state.claim(SIGN_IN, principal, server, REFRESH_LEASE_LIFETIME)

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
            while self.unfinished:
                turn = self.unfinished[0]
                if not await turn.finish() and turn.new is not None:
                    await self.store_again(turn)
                self.unfinished.remove(turn)
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
        for principal in list(self._told):
            with contextlib.suppress(StateUnavailable):
                await self.arrive(principal)
        for place, is_users in list(self._dirty.items()):
            times_emptied = self._times_emptied
            with contextlib.suppress(StateUnavailable):
                # What was shared may be lost again already.
                if await self._share(place, is_users=is_users) and times_emptied == self._times_emptied:
                    self._dirty.pop(place, None)

    async def arrive(self, principal: str) -> None:
        """Take over what other instances have left for a user; if that fails, `look` does it. Raises `StoreUnusable`
        and `StateUnavailable`."""
        self._told.discard(principal)
        try:
            values = await self._state.find_all(SIGN_IN, principal)
            left = {(principal, server): read for server, value in values.items() if (read := _read(value)) is not None}
            await self._adopt(left)
        except (StateUnavailable, StoreUnusable):
            self._told.add(principal)
            raise

    async def _share(self, place: _Place, *, is_users: bool) -> bool:
        """Whether it is shared now. Raises `StateUnavailable`."""
        lease = await self._claim(*place)
        if lease is None:
            return False
        left, records = _read(lease.value), (self._known or {}).get(place, [])
        at = max(self.left_at(place), _changed_at(records))
        if left is not None and not is_users and left.at >= at:
            await lease.release()
            await self._adopt({place: left})
            return True
        # What is only left again keeps its time: another instance may know something newer.
        new = _newer(records, at if left is None else left.at) if is_users else _LeftSignIn(_shared(records), at)
        if await lease.finish(encode(new)):
            self.note(place, new.at)
            self._state.tell(_SIGN_IN_TOPIC, place[0].encode())
            return True
        return False

    def left_at(self, place: _Place) -> float:
        return self._left_at.get(place, 0.0)

    def note(self, place: _Place, at: float) -> None:
        """The state has what was changed at this time."""
        self._left_at[place] = max(at, self._left_at.pop(place, 0.0))
        if len(self._left_at) > MAX_LEFT:
            self._left_at.popitem(last=False)

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
        if newer:
            await self._take_over(newer)
        # Only now: what the state has, and this machine has not, counts as signed out.
        for place, each in left.items():
            if each.at < self.left_at(place):
                # It was lost, and left again by one who had missed the last change.
                self._dirty.setdefault(place, False)
            elif not self._dirty.get(place):
                self.note(place, each.at)

    async def _take_over(self, newer: dict[_Place, list[SignInRecord]]) -> None:
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
        self._recovers_until = time.monotonic() + STATE_RECOVERY_DELAY
        self._times_emptied += 1
        # Those who have signed out, too: a machine that was off would sign them in again.
        self._dirty = {**dict.fromkeys([*self._left_at, *(self._known or ())], False), **self._dirty}


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


def _shared(records: Iterable[SignInRecord]) -> list[SignInRecord]:
    return [each for each in records if _is_shared(each)]


def _newer(records: Iterable[SignInRecord], before: float, *, is_reusable: bool = False) -> _LeftSignIn:
    """`before`: the time of what they replace."""
    return _LeftSignIn(_shared(records), max(time.time(), before + 0.001), is_reusable)


def _read(value: bytes | None) -> _LeftSignIn | None:
    with contextlib.suppress(MsgspecError):
        return None if value is None else _decode(value)
    return None


def _away(error: StateUnavailable) -> NotNow:
    return NotNow(
        f"a sign-in is not refreshed while the cluster's state is away ({error}): another instance may be doing it",
        hint="try again when it is back",
    )
