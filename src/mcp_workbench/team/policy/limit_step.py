"""How much each principal and each server may use: calls in flight, calls and bytes per minute, the duration of a call.

Owns the counting. A limit with `who` counts for each principal separately, one with `servers` for each server, one with
both for each pair.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from mcp_workbench.engine.config.policy_settings import LimitRule
from mcp_workbench.engine.steps import Denial, GuardedRequest, Outcome, Pass
from mcp_workbench.team.identity.identities import Identities, identity_in
from mcp_workbench.team.policy.globs import PathGlob
from mcp_workbench.team.policy.policy import Who
from mcp_workbench.team.policy.shared_counts import NO_COUNTS_YET, Counted, SharedCounts

# Differs from `FORBIDDEN`: what is refused now may be allowed in a moment.
LIMIT_REACHED: Final = -32011
# Principals and servers that are counted. An entry without usage in the last minute, and with nothing in flight, is
# replaced by a new one; if there is none, the new one has to wait: an entry that is dropped would restart from zero.
MAX_LIMIT_COUNTERS: Final = 20_000
# How many entries are checked for that at a time.
_MAX_COUNTERS_EXAMINED: Final = 50
LIMIT_WINDOW: Final = 60

# A limit, a principal, and a toolbox with a server; empty where the limit does not count by them.
_Key = tuple[int, str, str, str]


class LastMinute:
    """A sum over the last sixty seconds, in steps of one second."""

    __slots__ = ("_second", "_steps", "total")

    def __init__(self) -> None:
        self.total = 0
        self._steps = [0] * LIMIT_WINDOW
        self._second = 0

    def advance(self, now: float) -> None:
        second = int(now)
        for passed in range(self._second + 1, min(second, self._second + LIMIT_WINDOW) + 1):
            self.total -= self._steps[passed % LIMIT_WINDOW]
            self._steps[passed % LIMIT_WINDOW] = 0
        self._second = second

    def add(self, amount: int) -> None:
        self._steps[self._second % LIMIT_WINDOW] += amount
        self.total += amount

    def free_in(self) -> int:
        """Seconds until the oldest part expires."""
        for ahead in range(1, LIMIT_WINDOW + 1):
            if self._steps[(self._second + ahead) % LIMIT_WINDOW]:
                return ahead
        return 1


class _Usage:
    __slots__ = ("bytes", "calls", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self.calls = LastMinute()
        self.bytes = LastMinute()

    def advance(self, now: float) -> None:
        self.calls.advance(now)
        self.bytes.advance(now)

    def counted(self) -> Counted:
        return self.calls.total, self.bytes.total, self.in_flight


class _Limit:
    """A limit of the configuration, compiled."""

    __slots__ = ("number", "servers", "who", "written")

    def __init__(self, number: int, written: LimitRule) -> None:
        self.number = number
        self.written = written
        self.who = None if written.who is None else Who(written.who)
        self.servers = None if written.servers is None else tuple(map(PathGlob.read, written.servers))

    def key(self, request: GuardedRequest, identities: Identities) -> _Key | None:
        """The key under which it counts this request; None if it does not apply."""
        if self.who is not None and not self.who.concerns(identity_in(request, identities)):
            return None
        if self.servers is not None and not any(each.reaches(request.toolbox, request.server) for each in self.servers):
            return None
        principal = "" if self.who is None else request.principal
        return (self.number, principal, *(("", "") if self.servers is None else (request.toolbox, request.server)))


class LimitStep:
    """Refuses requests beyond a limit (`Step`)."""

    def __init__(
        self,
        limits: Iterable[LimitRule],
        identities: Identities,
        now: Callable[[], float] = time.monotonic,
        shared: SharedCounts | None = None,
    ) -> None:
        """`shared`: what other instances count; None if there are none."""
        self._shared = shared
        self._limits = [_Limit(number, written) for number, written in enumerate(limits)]
        self._identities = identities
        self._now = now
        self._used: OrderedDict[_Key, _Usage] = OrderedDict()
        # Requests in progress, and the usage that they count towards.
        self._under_way: dict[int, list[_Usage]] = {}

    def check(self, request: GuardedRequest) -> Pass | Denial | None:
        if not request.toolbox:
            return None
        counted = self._counted(request, self._limits, len(request.body), is_sent=True)
        if isinstance(counted, Denial):
            return counted
        for _, _, used in counted:
            used.in_flight += 1
        if counted:
            # By identity: two equal requests are still two calls.
            self._under_way[id(request)] = [used for _, _, used in counted]
        bounds = [seconds for limit, _, _ in counted if (seconds := limit.written.call_seconds) is not None]
        if not bounds:
            return None
        longest = min(bounds)
        return Pass(
            within=longest, late=Denial(LIMIT_REACHED, f"the call was stopped after {longest:g} s, the longest allowed")
        )

    def count(self, request: GuardedRequest, size: int) -> Denial | None:
        """Count a request that reaches no server (`CountingStep`). It is answered at once, so it is never in flight."""
        limits = (limit for limit in self._limits if limit.servers is None)
        counted = self._counted(request, limits, size, is_sent=False)
        return counted if isinstance(counted, Denial) else None

    def _counted(
        self, request: GuardedRequest, limits: Iterable[_Limit], size: int, *, is_sent: bool
    ) -> Denial | list[tuple[_Limit, _Key, _Usage]]:
        """Count a request of this size towards the limits that concern it, unless one of them refuses it."""
        counted = []
        now, shared = self._now(), self._shared
        for limit in limits:
            key = limit.key(request, self._identities)
            if key is None:
                continue
            used = self._usage(key, now)
            if used is None:
                return _too_many(limit)
            if shared is not None and shared.is_blind:
                return _blind(limit)
            elsewhere = NO_COUNTS_YET if shared is None else shared.elsewhere(key)
            reached = _reached(limit.written, used, size, elsewhere, is_sent=is_sent)
            if reached is not None:
                return _denial(limit, *reached)
            counted.append((limit, key, used))
        # Only now, after all limits: a refused request uses nothing.
        for _, key, used in counted:
            used.calls.add(1)
            used.bytes.add(size)
            if shared is not None:
                shared.note(key, used)
        return counted

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        for used in self._under_way.pop(id(request), ()):
            used.in_flight -= 1
            used.bytes.advance(self._now())
            # The size of an answer is known only at the end, so a call may exceed the limit; later ones are refused.
            used.bytes.add(outcome.size)

    def _usage(self, key: _Key, now: float) -> _Usage | None:
        used = self._used.get(key)
        if used is None:
            if len(self._used) >= MAX_LIMIT_COUNTERS and not self._make_room(now):
                return None
            used = self._used[key] = _Usage()
        self._used.move_to_end(key)
        used.advance(now)
        return used

    def _make_room(self, now: float) -> bool:
        for key in list(islice(self._used, _MAX_COUNTERS_EXAMINED)):
            used = self._used[key]
            used.advance(now)
            if not (used.in_flight or used.calls.total or used.bytes.total):
                del self._used[key]
                return True
            # Check others next time.
            self._used.move_to_end(key)
        return False


def calls_at_once(limits: Iterable[LimitRule], toolbox: str, server: str) -> int:
    """The fewest calls in flight that a limit on this server allows; without one, that a limit on users allows,
    whoever they are."""
    allowed = [
        each.calls_in_flight
        for each in limits
        if each.calls_in_flight is not None
        and (
            (each.servers is None and not server)
            or any(PathGlob.read(glob).reaches(toolbox, server) for glob in each.servers or () if server)
        )
    ]
    return min(allowed, default=sys.maxsize)


def _too_many(limit: _Limit) -> Denial:
    text = "too many users and servers are being counted; try again in a minute"
    return Denial(LIMIT_REACHED, text, {"retryAfterSeconds": LIMIT_WINDOW}, rule=f"limits[{limit.number}]")


def _blind(limit: _Limit) -> Denial:
    text = "the cluster's state is away, so limited calls cannot be counted; try again later"
    return Denial(LIMIT_REACHED, text, {"retryAfterSeconds": 1}, rule=f"limits[{limit.number}]")


def _denial(limit: _Limit, text: str, seconds: int) -> Denial:
    rule = f"limits[{limit.number}]"
    data = {"rule": rule, "retryAfterSeconds": seconds}
    return Denial(LIMIT_REACHED, f"{text} ({rule}); try again later", data, rule=rule)


def _reached(
    limit: LimitRule, used: _Usage, size: int, elsewhere: Counted = NO_COUNTS_YET, *, is_sent: bool = True
) -> tuple[str, int] | None:
    """The limit that is reached, and after how many seconds another attempt makes sense. `elsewhere`: what other
    instances have counted."""
    calls, transferred, in_flight = elsewhere
    if is_sent and limit.calls_in_flight is not None and used.in_flight + in_flight >= limit.calls_in_flight:
        return f"{limit.calls_in_flight} calls are in flight already, the most allowed", 1
    if limit.calls_per_minute is not None and used.calls.total + calls >= limit.calls_per_minute:
        return f"{limit.calls_per_minute} calls have been made within a minute, the most allowed", used.calls.free_in()
    if limit.bytes_per_minute is not None and used.bytes.total + transferred + size > limit.bytes_per_minute:
        return (
            f"{limit.bytes_per_minute} bytes have been transferred within a minute, the most allowed",
            used.bytes.free_in(),
        )
    return None
