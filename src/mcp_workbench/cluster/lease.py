"""Leases on the state server: one instance at a time changes a value, and one that comes back late changes nothing.

Each lease has a number that is higher than that of every lease before (a fencing token). What its holder writes counts
only while nobody else has had a lease since, however long the holder was frozen. The number does not begin anew on a
server that has lost everything: it is at least the server's clock. Knows nothing about what the values mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mcp_workbench.cluster.valkey_link import ValkeyLink

# KEYS: the lease, the mark, the values. ARGV: holder, milliseconds, field, seconds that the mark is kept.
_CLAIM: Final = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local now = redis.call('TIME')
local last = tonumber(redis.call('HGET', KEYS[2], 'number') or '0')
local number = string.format('%.0f', math.max(last + 1, now[1] * 1000 + math.floor(now[2] / 1000)))
redis.call('HSET', KEYS[2], 'number', number)
redis.call('EXPIRE', KEYS[2], ARGV[4])
return {number, redis.call('HGET', KEYS[2], 'mark') or '', redis.call('HGET', KEYS[3], ARGV[3])}
"""
# ARGV: holder, number, milliseconds, mark.
_MARK_SCRIPT: Final = """
if redis.call('HGET', KEYS[2], 'number') ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('HSET', KEYS[2], 'mark', ARGV[4])
return 1
"""
# ARGV: holder, number, whether the mark goes, field, value or nothing, seconds that it is kept.
_FINISH: Final = """
if redis.call('HGET', KEYS[2], 'number') ~= ARGV[2] then return 0 end
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[3], ARGV[4], ARGV[5])
  redis.call('EXPIRE', KEYS[3], ARGV[6])
end
if ARGV[3] == '1' then redis.call('HDEL', KEYS[2], 'mark') end
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""


class LeasedPlace(NamedTuple):
    lease: str
    mark: str
    values: str
    field: str
    # Seconds that a value is kept.
    lifetime: int

    @property
    def keys(self) -> tuple[str, str, str]:
        return self.lease, self.mark, self.values


class LeaseCipher(NamedTuple):
    seal: Callable[[bytes], bytes]
    # Called with what was sealed and stored.
    on_stored: Callable[[bytes], object]


class Lease:
    """`engine.lasting_state.StateLease`."""

    def __init__(
        self,
        link: ValkeyLink,
        place: LeasedPlace,
        holder: str,
        milliseconds: int,
        cipher: LeaseCipher,
        found: list[bytes],
    ) -> None:
        self._link = link
        self._place = place
        self._holder = holder
        self._milliseconds = milliseconds
        number, mark, sealed = found
        self._number = number
        self.left_mark = mark.decode(errors="replace")
        self.sealed: bytes | None = sealed
        self.value: bytes | None = None
        self._cipher = cipher

    async def mark(self, mark: str) -> bool:
        return await self._run(_MARK_SCRIPT, self._milliseconds, mark)

    async def finish(self, value: bytes) -> bool:
        sealed = self._cipher.seal(value)
        is_stored = await self._run(_FINISH, 1, self._place.field, sealed, self._place.lifetime)
        if is_stored:
            self._cipher.on_stored(sealed)
        return is_stored

    async def release(self, *, settles: bool = False) -> bool:
        return await self._run(_FINISH, int(settles), self._place.field, b"", self._place.lifetime)

    async def _run(self, script: str, *arguments: str | bytes | int) -> bool:
        command = ("EVAL", script, 3, *self._place.keys, self._holder, self._number, *arguments)
        (done,) = await self._link.run([command])
        return bool(done)


async def claim(
    link: ValkeyLink, place: LeasedPlace, holder: str, seconds: float, cipher: LeaseCipher, then: tuple[str, ...]
) -> tuple[Lease | None, Any]:
    """None: another one has it. With the reply to a command that is run after it. Raises `StateAway`."""
    milliseconds = int(seconds * 1000)
    command = ("EVAL", _CLAIM, 3, *place.keys, holder, milliseconds, place.field, place.lifetime)
    found, reply = await link.run([command, then])
    if not found:
        return None, reply
    match found:
        case [bytes(), bytes(), bytes() | None]:
            return Lease(link, place, holder, milliseconds, cipher, found), reply
    raise link.away()
