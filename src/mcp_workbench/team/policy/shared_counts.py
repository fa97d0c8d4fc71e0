"""What other instances have counted, so that a limit is one limit for all of them.

Each instance tells the others what it has counted within the last minute: right after a call, and then once a second
as long as that is not zero. No call waits for it; calls within the same moment on several instances may exceed a limit
by a few. Owns what others have told; what we count ourselves is `limit_step`'s.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from mcp_workbench.engine.lasting_state import LastingState

# Right after a call, together with those that follow at once.
TELL_DELAY: Final = 0.01
EXCHANGE_INTERVAL: Final = 1.0
# What an instance that has ended had counted goes on to count for the rest of the minute; its calls have ended.
ENDED_INSTANCE_COUNT_LIFETIME: Final = 60.0
ENDED_INSTANCE_IN_FLIGHT_LIFETIME: Final = 5.0
MAX_COUNTED_ELSEWHERE: Final = 20_000
_LIMITS_TOPIC: Final = "limits"

# Calls and bytes within the last minute, and calls in flight.
Counted = tuple[int, int, int]
NO_COUNTS_YET: Final[Counted] = (0, 0, 0)


class CountedUsage(Protocol):
    def advance(self, now: float) -> None: ...

    def counted(self) -> Counted: ...


class _Told(Struct, array_like=True):
    instance: str
    counted: dict[str, Counted]


_encode: Final = Encoder().encode
_decode: Final = Decoder(_Told).decode


class SharedCounts:
    def __init__(self, state: LastingState, now: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._now = now
        self._instance = secrets.token_hex(6)
        # What we have counted and others have to know.
        self._own: dict[str, CountedUsage] = {}
        # By key and instance, with when it was told.
        self._elsewhere: OrderedDict[str, dict[str, tuple[Counted, float]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._is_soon = False
        state.on_told(_LIMITS_TOPIC, self._on_told)

    @property
    def is_blind(self) -> bool:
        """Whether limited calls are to be refused, because others cannot be asked."""
        return self._state.is_blind

    def note(self, key: Hashable, used: CountedUsage) -> None:
        """We have counted something."""
        self._own[str(key)] = used
        if not self._is_soon:
            self._is_soon = True
            self._start_timer(TELL_DELAY)

    def elsewhere(self, key: Hashable) -> Counted:
        """What all other instances have counted."""
        told = self._elsewhere.get(str(key))
        if told is None:
            return NO_COUNTS_YET
        now = self._now()
        calls = size = in_flight = 0
        for instance, (counted, at) in list(told.items()):
            if now - at > ENDED_INSTANCE_COUNT_LIFETIME:
                del told[instance]
                continue
            calls, size = calls + counted[0], size + counted[1]
            in_flight += counted[2] if now - at <= ENDED_INSTANCE_IN_FLIGHT_LIFETIME else 0
        return calls, size, in_flight

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self, delay: float) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(delay, self.exchange)

    def exchange(self) -> None:
        """Tell the others what we have counted."""
        self.close()
        self._is_soon = False
        now = self._now()
        counted = {}
        for key, used in list(self._own.items()):
            used.advance(now)
            counted[key] = used.counted()
            if counted[key] == NO_COUNTS_YET:
                del self._own[key]
        self._state.tell(_LIMITS_TOPIC, _encode(_Told(self._instance, counted)))
        if self._own:
            self._start_timer(EXCHANGE_INTERVAL)

    def _on_told(self, body: bytes) -> None:
        try:
            told = _decode(body)
        except MsgspecError:
            return
        now = self._now()
        for key, counted in told.counted.items():
            self._elsewhere.setdefault(key, {})[told.instance] = counted, now
            self._elsewhere.move_to_end(key)
        while len(self._elsewhere) > MAX_COUNTED_ELSEWHERE:
            self._elsewhere.popitem(last=False)
