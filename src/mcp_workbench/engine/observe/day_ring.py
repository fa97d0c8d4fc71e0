"""What happened during the last day, in buckets of ten seconds, within a fixed number of bytes.

A bucket in which nothing happened takes no room, and one with a few calls a dozen bytes: numbers are written with as
many bytes as they need, and empty parts of a histogram are left out. If there is too much, the oldest hours lose detail
first, and are dropped when all of them have lost it. Knows nothing about calls, clocks and servers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

BUCKET_SECONDS: Final = 10
_BUCKETS_PER_HOUR: Final = 3600 // BUCKET_SECONDS
# Besides the current one.
HOURS: Final = 24
# Of all entries, with what Python needs to hold them. A server that is called all the time takes 100 to 200 KiB a day.
MAX_RING_BYTES: Final = 4 << 20
# An hour that has lost detail has buckets of a minute.
COARSE_BUCKETS: Final = 6
# An outline of the day has a step for each quarter of an hour.
OUTLINE_STEP_SECONDS: Final = 900
_BUCKETS_PER_STEP: Final = OUTLINE_STEP_SECONDS // BUCKET_SECONDS
# A name, its two parts, its entries and its outline in an hour, apart from what is written.
_NAME_BYTES: Final = 800

Label = tuple[str, str]


class Bucket(NamedTuple):
    """What happened to one thing during ten seconds."""

    # The number of the bucket: its beginning in seconds, divided by `BUCKET_SECONDS`.
    number: int
    calls: int = 0
    errors: int = 0
    # A histogram, as sparse as it is: (index, count).
    counts: tuple[tuple[int, int], ...] = ()
    # In KiB; 0 if it was not measured.
    memory: int = 0


class OutlineStep(NamedTuple):
    """What happened to one thing during a quarter of an hour."""

    # Its beginning in seconds, divided by `OUTLINE_STEP_SECONDS`.
    number: int
    calls: int
    errors: int


class _Hour:
    __slots__ = ("entries", "is_coarse", "number", "outlines", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[Label, bytearray] = {}
        # Calls and errors of each quarter: read every second by `top`, for which entries would take too long.
        self.outlines: dict[Label, list[int]] = {}
        self.is_coarse = False
        self.size = 0


class DayRing:
    """Buckets by name and time, oldest first."""

    def __init__(self, max_bytes: int = MAX_RING_BYTES) -> None:
        self._max_bytes = max_bytes
        self._hours: deque[_Hour] = deque()
        self.size = 0

    def add(self, label: Label, bucket: Bucket) -> None:
        """Add to what a bucket has. One that is older than the newest hour counts as that hour's first."""
        number = bucket.number // _BUCKETS_PER_HOUR
        if not self._hours or self._hours[-1].number < number:
            self._hours.append(_Hour(number))
            while self._hours[0].number < number - HOURS:
                self._drop_oldest()
        hour = self._hours[-1]
        entries = hour.entries.get(label)
        if entries is None:
            entries = hour.entries[label] = bytearray()
            hour.outlines[label] = [0] * (2 * _BUCKETS_PER_HOUR // _BUCKETS_PER_STEP)
            self._grow(hour, _NAME_BYTES + len(label[0]) + len(label[1]))
        before = len(entries)
        within = max(0, bucket.number - hour.number * _BUCKETS_PER_HOUR)
        _write(entries, bucket._replace(number=within))
        outline = hour.outlines[label]
        outline[within // _BUCKETS_PER_STEP * 2] += bucket.calls
        outline[within // _BUCKETS_PER_STEP * 2 + 1] += bucket.errors
        self._grow(hour, len(entries) - before)
        while self.size > self._max_bytes:
            self._shrink()

    def _grow(self, hour: _Hour, size: int) -> None:
        hour.size += size
        self.size += size

    def _drop_oldest(self) -> None:
        self.size -= self._hours.popleft().size

    def _shrink(self) -> None:
        """Make room: coarsen the oldest hour that can be, or else drop the oldest."""
        current = self._hours[-1]
        hour = next((each for each in self._hours if not each.is_coarse), current)
        if hour is not current:
            hour.is_coarse = True
            for label, entries in hour.entries.items():
                coarse = hour.entries[label] = bytearray()
                for bucket in _merged(_read(entries, 0), COARSE_BUCKETS):
                    _write(coarse, bucket)
                self._grow(hour, len(coarse) - len(entries))
        else:
            # If the current hour alone is too much, it has more names than anybody configures.
            self._drop_oldest()

    def read(self, label: Label) -> list[Bucket]:
        """The buckets in which something happened to it, oldest first."""
        found: list[Bucket] = []
        for hour in self._hours:
            entries = hour.entries.get(label)
            if entries is not None:
                found += _merged(_read(entries, hour.number * _BUCKETS_PER_HOUR), 1)
        return found

    def outline(self, label: Label) -> list[OutlineStep]:
        """The quarters of hours in which something was called, oldest first."""
        return [
            OutlineStep(
                hour.number * (_BUCKETS_PER_HOUR // _BUCKETS_PER_STEP) + step, outline[2 * step], outline[2 * step + 1]
            )
            for hour in self._hours
            if (outline := hour.outlines.get(label)) is not None
            for step in range(_BUCKETS_PER_HOUR // _BUCKETS_PER_STEP)
            if outline[2 * step]
        ]

    def labels(self) -> list[Label]:
        return list(dict.fromkeys(label for hour in self._hours for label in hour.entries))


def _write(to: bytearray, bucket: Bucket) -> None:
    numbers = [bucket.number, bucket.calls, bucket.errors, bucket.memory, len(bucket.counts)]
    for index, count in bucket.counts:
        numbers += (index, count)
    for number in numbers:
        # LEB128: seven bits a byte, the highest bit says that more follow.
        while number > 0x7F:
            to.append(number & 0x7F | 0x80)
            number >>= 7
        to.append(number)


def _read(entries: bytearray, first: int) -> Iterator[Bucket]:
    numbers = _numbers(entries)
    for number in numbers:
        calls, errors, memory, length = (next(numbers) for _ in range(4))
        counts = tuple((next(numbers), next(numbers)) for _ in range(length))
        yield Bucket(first + number, calls, errors, counts, memory)


def _numbers(data: bytearray) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def _merged(buckets: Iterator[Bucket], width: int) -> list[Bucket]:
    """Each `width` buckets as one, which has the number of the first."""
    found: dict[int, Bucket] = {}
    for bucket in buckets:
        number = bucket.number // width * width
        before = found.get(number)
        if before is None:
            found[number] = bucket._replace(number=number)
            continue
        counts = dict(before.counts)
        for index, count in bucket.counts:
            counts[index] = counts.get(index, 0) + count
        found[number] = Bucket(
            number,
            before.calls + bucket.calls,
            before.errors + bucket.errors,
            tuple(sorted(counts.items())),
            bucket.memory or before.memory,
        )
    return [found[number] for number in sorted(found)]
