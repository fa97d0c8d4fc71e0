"""State that instances leave for each other (`LastingState`), on a server that speaks the protocol of Valkey and Redis.

Writing is behind: what is kept is collected, sealed and written in the next round trip, and again when the server is
back. Nobody waits for it. Reading is bounded by `STATE_TIMEOUT`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from mcp_workbench.cluster.lease import LeaseCipher, LeasedPlace, claim
from mcp_workbench.cluster.seal import Expired, OtherVersion, OutOfDate, Seal, SealRefused
from mcp_workbench.cluster.valkey_link import OtherType, StateAway, ValkeyLink
from mcp_workbench.engine.lasting_state import (
    INSTANCE,
    LastingState,
    StateHealth,
    StateKind,
    StateLease,
    StateUnavailable,
)

log = logging.getLogger(__name__)

# Once a second: the heartbeat, and the end of subscriptions that have broken.
BEAT_INTERVAL: Final = 1.0
# While the server is away, users who come from another instance may wait for the heartbeat that finds it again.
PROBE_INTERVAL: Final = 0.25
# What waits to be written while the server is away; beyond this the oldest is dropped.
MAX_PENDING: Final = 20_000
MAX_PENDING_BYTES: Final = 64 * 1024 * 1024
# What goes into one round trip, so that a backlog does not exceed the time of one.
MAX_BATCH: Final = 200
MAX_BATCH_BYTES: Final = 1024 * 1024
# A notice older than this is a replay. More than the clocks of instances differ.
MAX_NOTICE_AGE: Final = 30.0
# How many notices of an instance may be overtaken by a later one. The rest counts as replays.
NOTICE_WINDOW: Final = 64
# All instances write what is common, also at the same time: one that sealed it first may write it last.
MAX_OVERTAKEN: Final = 5.0
# How long it is known which key is used after the last instance has ended.
KEY_MARK_LIFETIME: Final = 60
# How long it is known after the last heartbeat that the server has not lost everything since.
EPOCH_LIFETIME: Final = 24 * 3600
# How often common kinds are read without a change, so that what is about to expire is written again.
RENEWAL_INTERVAL: Final = 3600.0
# Values that are opened before others have a turn: a few milliseconds, however many somebody has left there.
OPENED_AT_ONCE: Final = 500
# SealRefused values that are logged each; further ones are counted.
MAX_REFUSALS_LOGGED: Final = 20

# KEYS: what was found. ARGV: the type that it should have.
_CLEAR: Final = "if redis.call('TYPE', KEYS[1]).ok ~= ARGV[1] then redis.call('DEL', KEYS[1]) end"
_CHANGED_TOPIC: Final = "changed"
_Place = tuple[StateKind, str, str]


class _Notice(Struct, array_like=True):
    instance: str
    number: int
    at: float
    subject: str
    body: bytes


_encode: Final = Encoder().encode
_read_notice: Final = Decoder(_Notice).decode


class ClusterState(LastingState):
    is_shared = True

    def __init__(
        self,
        link: ValkeyLink,
        seal: Seal,
        cluster: str,
        *,
        refuses_when_away: bool = False,
        describe: Callable[[], bytes] = bytes,
    ) -> None:
        """`describe`: what our heartbeat says of us."""
        self.link = link
        self._describe = describe
        self._refuses_when_away = refuses_when_away
        self._seal = seal
        self._prefix = f"mcp-workbench:{{{cluster}}}:"
        self.instance = secrets.token_hex(6)
        # What is left to be written; None removes it.
        self._pending: OrderedDict[_Place, bytes | None] = OrderedDict()
        self._pending_bytes = 0
        self._to_tell: list[tuple[str, bytes]] = []
        self._has_work = asyncio.Event()
        self._heard: dict[str, list[Callable[[bytes], None]]] = {}
        self._keep_again: list[Callable[[], None]] = []
        # Kinds whose copies are read whenever they change; and the count of changes when they were read last.
        self._followers: dict[StateKind, list[Callable[[dict[str, bytes]], None]]] = {}
        self._read_at: dict[StateKind, bytes | None] = {}
        self._renew_at = 0.0
        self._has_changes = asyncio.Event()
        self.on_told(_CHANGED_TOPIC, self._on_changed_elsewhere)
        self._told = 0
        # Of the server's memory, as it was when a heartbeat was last answered.
        self._epoch: bytes | None = None
        self._is_over = False
        # By instance, the highest number of its notices, and which of those before it were heard, one bit each.
        self._last_of: OrderedDict[str, tuple[int, int]] = OrderedDict()
        # Values that were not accepted, and copies that were dropped before they could be written.
        self.refused = 0
        self.lost = 0
        # Whether others use the state under this name with another key.
        self.has_other_key = False
        self._holder_of: Callable[[str], str] = str

    def follow_keys(self, holder_of: Callable[[str], str]) -> None:
        """Let these keys say whom a name stands for. What was kept for an earlier holder of it cannot be found."""
        self._holder_of = holder_of

    def holder_of(self, principal: str) -> str:
        return self._holder_of(principal)

    @property
    def is_blind(self) -> bool:
        return self._refuses_when_away and self.link.is_away

    @property
    def waiting(self) -> int:
        """How many copies wait to be written."""
        return len(self._pending)

    def health(self) -> StateHealth:
        link = self.link
        return StateHealth(
            link.address, link.problem, link.latency, link.outages, len(self._pending), self.lost, self.refused
        )

    # ── writing ──

    def keep(self, kind: StateKind, principal: str, name: str, value: bytes) -> None:
        if len(value) <= kind.max_bytes:
            self._put((kind, self._owner(kind, principal), name), value)

    def drop(self, kind: StateKind, principal: str, name: str) -> None:
        self._put((kind, self._owner(kind, principal), name), None)

    def _owner(self, kind: StateKind, principal: str) -> str:
        return principal if kind.stays_with_name else self.holder_of(principal)

    def _put(self, place: _Place, value: bytes | None) -> None:
        self._take(place)
        self._pending[place] = value
        self._pending_bytes += len(value or b"")
        while len(self._pending) > MAX_PENDING or self._pending_bytes > MAX_PENDING_BYTES:
            self._take(next(iter(self._pending)))
            self.lost += 1
        self._has_work.set()

    def _take(self, place: _Place) -> bytes | None:
        value = self._pending.pop(place, None)
        self._pending_bytes -= len(value or b"")
        return value

    def tell(self, subject: str, body: bytes) -> None:
        self._to_tell.append((subject, body))
        self._has_work.set()

    async def _flush(self) -> None:
        """Write what waits, a batch at a time. Raises `StateAway`; then it still waits."""
        while self._pending or self._to_tell:
            batch: dict[_Place, bytes | None] = {}
            size = 0
            for place, value in self._pending.items():
                if batch and (len(batch) >= MAX_BATCH or size + len(value or b"") > MAX_BATCH_BYTES):
                    break
                batch[place] = value
                size += len(value or b"")
            told, self._to_tell = self._to_tell[:MAX_BATCH], self._to_tell[MAX_BATCH:]
            commands = [each for place, value in batch.items() for each in self._written(place, value)]
            told += [(_CHANGED_TOPIC, name.encode()) for name in {kind.name for kind, *_ in batch if kind.is_common}]
            commands += [("PUBLISH", self._channel, self._notice(subject, body)) for subject, body in told]
            # A notice is not repeated: whoever was away reads what there is when they are back.
            try:
                await self.link.run(commands)
            except OtherType as error:
                await self._clear(error)
            for place, value in batch.items():
                if self._pending.get(place, b"") is value:
                    self._take(place)
                # What was read before it had arrived is not what there is now.
                self._read_at.pop(place[0], None)

    def _written(self, place: _Place, value: bytes | None) -> list[tuple[str | bytes | int, ...]]:
        kind, principal, name = place
        hidden = self._seal.hidden(kind.name, principal, name)
        if kind.is_common:
            counted = self._counter(kind)
            return [*self._listed(place, hidden, value), ("INCR", counted), ("EXPIRE", counted, int(kind.lifetime))]
        if kind.most:
            return self._listed(place, hidden, value)
        key = f"{self._prefix}{kind.name}:{hidden}"
        if value is None:
            return [("DEL", key)]
        return [("SET", key, self._sealed(place, value), "EX", int(kind.lifetime))]

    def _listed(self, place: _Place, hidden: str, value: bytes | None) -> list[tuple[str | bytes | int, ...]]:
        kind, principal, _ = place
        key = self._listed_at(kind, principal)
        if value is None:
            return [("HDEL", key, hidden)]
        return [("HSET", key, hidden, self._sealed(place, value)), ("EXPIRE", key, int(kind.lifetime))]

    def _counter(self, kind: StateKind) -> str:
        """Counts the changes of a kind that is followed, so that a heartbeat notices one whose notice was lost."""
        return f"{self._prefix}changes-{self._seal.format}:{kind.name}"

    def _sealed(self, place: _Place, value: bytes, *, is_certain: bool = True) -> bytes:
        kind, principal, name = place
        return self._seal.close(kind.name, principal, name, value, kind.lifetime, is_certain=is_certain)

    def _listed_at(self, kind: StateKind, principal: str) -> str:
        # Whoever misses a common value writes it again: two versions that cannot read each other's would do so forever.
        apart = (f"format {self._seal.format}",) if kind.is_common else ()
        return f"{self._prefix}{kind.name}:{self._seal.hidden(kind.name, principal, *apart)}"

    # ── reading ──

    async def find(self, kind: StateKind, principal: str, name: str, *, is_patient: bool = False) -> bytes | None:
        principal = self._owner(kind, principal)
        place = (kind, principal, name)
        if place in self._pending:
            return self._pending[place]
        hidden = self._seal.hidden(kind.name, principal, name)
        get = ("GET", f"{self._prefix}{kind.name}:{hidden}")
        try:
            (found,) = await self.link.run([get], is_patient=is_patient)
        except OtherType as error:
            await self._clear(error)
            return None
        if not isinstance(found, bytes):
            return None
        try:
            return self._seal.open(kind.name, principal, hidden, found).value
        except SealRefused as error:
            self._refuse(kind, error)
            return None

    async def find_all(self, kind: StateKind, principal: str, *, is_patient: bool = False) -> dict[str, bytes]:
        principal = self._owner(kind, principal)
        found: object = None
        try:
            (found,) = await self.link.run([("HGETALL", self._listed_at(kind, principal))], is_patient=is_patient)
        except OtherType as error:
            await self._clear(error)
        return await self._opened(kind, principal, found)

    async def _opened(self, kind: StateKind, principal: str, found: Any) -> dict[str, bytes]:
        key = self._listed_at(kind, principal)
        found = dict(zip(found[::2], found[1::2], strict=False)) if isinstance(found, list) else found
        pairs = found.items() if isinstance(found, dict) else ()
        opened = []
        superfluous: list[bytes] = []
        for number, (hidden, sealed) in enumerate(pairs, 1):
            if number % OPENED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not (isinstance(hidden, bytes) and isinstance(sealed, bytes)):
                continue
            # Whoever may write there can leave any bytes as a name, which must not keep us from reading the others.
            name = hidden.decode(errors="replace")
            try:
                opened.append((hidden, self._seal.open(kind.name, principal, name, sealed)))
            except Expired:
                superfluous.append(hidden)
            except SealRefused as error:
                self._refuse(kind, error)
        opened.sort(key=lambda each: each[1].written, reverse=True)
        if kind.is_renewed:
            due = time.time() - kind.lifetime / 2
            for _, each in opened[: kind.most]:
                if each.written / 1e9 < due and (kind, principal, each.name) not in self._pending:
                    self._put((kind, principal, each.name), each.value)
        superfluous += [hidden for hidden, _ in opened[kind.most :]]
        if superfluous:
            with contextlib.suppress(StateAway):
                await self.link.run([("HDEL", key, *superfluous)])
        values = {each.name: each.value for _, each in opened[: kind.most]}
        # What has not been written yet is newer.
        for (of_kind, of_principal, name), value in self._pending.items():
            if of_kind is kind and of_principal == principal:
                if value is None:
                    values.pop(name, None)
                else:
                    values[name] = value
        return values

    async def _clear(self, error: OtherType) -> None:
        """Remove keys of another type that lie where our values belong, and write again what found them there."""
        self.refused += len(error.commands)
        if self.refused <= MAX_REFUSALS_LOGGED:
            log.error("the cluster's state was changed: %s; it is removed", error)
        again = [command for command in error.commands if command[0] in ("HSET", "SET")]
        with contextlib.suppress(StateAway):
            # Another instance may have written there since.
            types = [
                (command[1], "hash" if str(command[0]).startswith("H") else "string") for command in error.commands
            ]
            await self.link.run([*(("EVAL", _CLEAR, 1, key, type) for key, type in types), *again])

    def _refuse(self, kind: StateKind, error: SealRefused) -> None:
        if isinstance(error, OtherVersion):
            log.debug("a value of the kind `%s` is left alone: %s", kind.name, error)
            return
        if isinstance(error, Expired):
            return
        if kind.is_common and isinstance(error, OutOfDate) and error.seconds < MAX_OVERTAKEN:
            log.debug("a value of the kind `%s` was overtaken; it is written again", kind.name)
            return
        self.refused += 1
        if self.refused <= MAX_REFUSALS_LOGGED:
            log.error("a value of the kind `%s` in the cluster's state was refused: %s", kind.name, error)

    async def claim(self, kind: StateKind, principal: str, name: str, seconds: float) -> StateLease | None:
        principal = self._owner(kind, principal)
        hidden = self._seal.hidden(kind.name, principal, name)
        place = LeasedPlace(
            f"{self._prefix}lease:{kind.name}:{hidden}",
            f"{self._prefix}mark:{kind.name}:{hidden}",
            self._listed_at(kind, principal),
            hidden,
            int(kind.lifetime),
        )
        holder = f"{self.instance} {secrets.token_hex(8)}"
        cipher = LeaseCipher(
            lambda value: self._sealed((kind, principal, name), value, is_certain=False),
            lambda sealed: self._note_stored(kind, principal, hidden, sealed),
        )
        lease, epoch = await claim(self.link, place, holder, seconds, cipher, ("GET", self._epoch_at))
        if lease is None:
            return None
        if self._epoch not in (None, epoch):
            # Whoever has to keep things again learns of it before the lease is used, not with the next heartbeat.
            await self.beat()
        if lease.sealed is not None:
            try:
                lease.value = self._seal.open(kind.name, principal, hidden, lease.sealed).value
            except SealRefused as error:
                self._refuse(kind, error)
                if isinstance(error, OtherVersion):
                    await lease.release()
                    raise StateUnavailable("another version of the workbench wrote it") from None
        return lease

    def _note_stored(self, kind: StateKind, principal: str, hidden: str, sealed: bytes) -> None:
        """Only now, what is older is out of date: a holder that is late stores nothing."""
        with contextlib.suppress(SealRefused):
            self._seal.open(kind.name, principal, hidden, sealed)

    # ── following ──

    def follow(self, kind: StateKind, changed: Callable[[dict[str, bytes]], None]) -> None:
        self._followers.setdefault(kind, []).append(changed)
        self._read_at.pop(kind, None)
        self._has_changes.set()

    def _on_changed_elsewhere(self, body: bytes) -> None:
        for kind in self._followers:
            if kind.name.encode() == body:
                self._read_at.pop(kind, None)
                self._has_changes.set()

    def _note_counts(self, kinds: list[StateKind], counts: list[bytes | None]) -> None:
        for kind, count in zip(kinds, counts, strict=True):
            if kind not in self._read_at or self._read_at[kind] != count:
                self._read_at.pop(kind, None)
                self._has_changes.set()
        if (now := time.monotonic()) >= self._renew_at:
            self._renew_at = now + RENEWAL_INTERVAL
            self._read_at.clear()
            self._has_changes.set()

    async def _follow(self) -> None:
        while not self._is_over:
            await self._has_changes.wait()
            self._has_changes.clear()
            for kind in [kind for kind in self._followers if kind not in self._read_at]:
                # The next heartbeat that succeeds sets the event again.
                await self._survive(self._read_followed(kind), "changed state could not be read")

    async def _read_followed(self, kind: StateKind) -> None:
        # The count first: of a change in between, the next heartbeat finds a higher one.
        try:
            count, found = await self.link.run([("GET", self._counter(kind)), ("HGETALL", self._listed_at(kind, ""))])
        except OtherType as error:
            await self._clear(error)
            raise
        # At once: whatever happens from now on takes it away again, so that the kind is read anew.
        self._read_at[kind] = count
        try:
            values = await self._opened(kind, "", found)
            for changed in self._followers[kind]:
                changed(values)
        except Exception:
            self._read_at.pop(kind, None)
            raise

    # ── notices ──

    def on_told(self, subject: str, heard: Callable[[bytes], None]) -> None:
        self._heard.setdefault(subject, []).append(heard)

    def on_emptied(self, keep_again: Callable[[], None]) -> None:
        self._keep_again.append(keep_again)

    @property
    def _channel(self) -> str:
        return f"{self._prefix}notices"

    def _notice(self, subject: str, body: bytes) -> bytes:
        self._told += 1
        return self._seal.close_notice(_encode(_Notice(self.instance, self._told, time.time(), subject, body)))

    def _hear(self, sealed: bytes) -> None:
        try:
            notice = _read_notice(self._seal.open_notice(sealed))
        except (SealRefused, MsgspecError):
            return
        if notice.instance == self.instance or abs(time.time() - notice.at) > MAX_NOTICE_AGE:
            return
        if self._is_replay(notice.instance, notice.number):
            return
        for heard in self._heard.get(notice.subject, ()):
            heard(notice.body)

    def _is_replay(self, instance: str, number: int) -> bool:
        """Whether this notice was heard before. One that another has overtaken was not: an instance publishes on
        several connections."""
        highest, heard = self._last_of.get(instance, (0, 0))
        if number > highest:
            heard = (heard << min(number - highest, NOTICE_WINDOW) | 1) & (1 << NOTICE_WINDOW) - 1
            highest = number
        else:
            bit = 1 << highest - number
            if highest - number >= NOTICE_WINDOW or heard & bit:
                return True
            heard |= bit
        self._last_of[instance] = highest, heard
        self._last_of.move_to_end(instance)
        if len(self._last_of) > INSTANCE.most:
            self._last_of.popitem(last=False)
        return False

    # ── its life ──

    async def prime(self) -> None:
        """Read what every instance knows, before the first client is served."""
        with contextlib.suppress(StateAway):
            await self.beat()
            for kind in list(self._followers):
                await self._read_followed(kind)

    async def run(self) -> None:
        """Write, listen and beat until cancelled."""
        beside = [asyncio.create_task(each) for each in (self._write(), self._listen(), self._follow())]
        try:
            await self._beat()
        finally:
            self._is_over = True
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self.link.close()

    async def _write(self) -> None:
        while not self._is_over:
            await self._has_work.wait()
            self._has_work.clear()
            # The heartbeat notices when it is back, and sets the event again.
            await self._survive(self._flush(), "state could not be written")

    async def _listen(self) -> None:
        while not self._is_over:
            if not self.link.is_away:
                await self._survive(self._hear_all(), "notices could not be heard")
            if not self._is_over:
                await asyncio.sleep(BEAT_INTERVAL)

    async def _hear_all(self) -> None:
        async for sealed in self.link.messages(self._channel):
            self._hear(sealed)

    async def _beat(self) -> None:
        while not self._is_over:
            await self._survive(self.beat(), "the heartbeat failed")
            await asyncio.sleep(PROBE_INTERVAL if self.link.is_away else BEAT_INTERVAL)

    async def _survive(self, step: Coroutine[Any, Any, None], failed: str) -> None:
        """Each step is made again; nobody would notice that there are no more of them."""
        try:
            await step
        except StateAway:
            pass
        except Exception:
            log.exception("%s; please report this", failed)

    async def beat(self) -> None:
        """Say that we are there, and find out whether the server is, and still has what was left there. Raises
        `StateAway`."""
        was_away, place = self.link.is_away, (INSTANCE, "", self.instance)
        # The first to come to an empty server begins an epoch. Nothing that is asked here changes it once more, so a
        # loss is noticed also if the answer to the first heartbeat after it came too late.
        commands: list[tuple[str | bytes | int, ...]] = [
            ("SET", self._epoch_at, secrets.token_hex(8), "NX"),
            ("EXPIRE", self._epoch_at, EPOCH_LIFETIME),
            ("GET", self._epoch_at),
        ]
        commands += [*self._written(place, self._describe()), ("PUBLISH", self._channel, self._notice("beat", b""))]
        # The first to come says which key is used: names are hidden with it, so with a wrong one nothing is found.
        commands += [("SET", self.key_mark_at, self._seal.key_mark, "NX", "EX", KEY_MARK_LIFETIME)]
        commands += [("GET", self.key_mark_at)]
        followed = list(self._followers)
        commands += [("MGET", *map(self._counter, followed))] if followed else []
        try:
            _, _, epoch, *replies = await self.link.run(commands, is_probe=True)
        except OtherType as error:
            await self._clear(error)
            raise
        key_mark, counts = replies[-2:] if followed else (replies[-1], None)
        if not isinstance(epoch, bytes) or (
            followed and not (isinstance(counts, list) and len(counts) == len(followed))
        ):
            raise self.link.away()
        has_lost_all = self._epoch not in (None, epoch)
        self._epoch = epoch
        self._note_key(key_mark)
        if counts is not None:
            self._note_counts(followed, counts)
        if has_lost_all or was_away:
            # Whoever begins anew also counts anew, and may have got as far as the one before.
            self._read_at.clear()
            self._has_changes.set()
        if has_lost_all:
            for keep_again in self._keep_again:
                keep_again()
        if was_away or self._pending:
            self._has_work.set()

    @property
    def _epoch_at(self) -> str:
        return f"{self._prefix}epoch"

    @property
    def key_mark_at(self) -> str:
        return f"{self._prefix}key"

    def is_own_key(self, mark: bytes | None) -> bool:
        """Whether this mark is that of our key. None: nobody has left one."""
        return mark in (None, self._seal.key_mark)

    def _note_key(self, mark: bytes | None) -> None:
        had_other, self.has_other_key = self.has_other_key, not self.is_own_key(mark)
        if self.has_other_key and not had_other:
            log.error(
                "other instances use the cluster's state at %s with another key; give all of them the same, or this "
                "cluster another `name`",
                self.link.address,
            )

    async def leave(self) -> None:
        """Write the rest, and say that we are gone."""
        self.drop(INSTANCE, "", self.instance)
        with contextlib.suppress(StateAway):
            await self._flush()
