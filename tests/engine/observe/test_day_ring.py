"""The day fits into a fixed number of bytes, and quiet hours take none."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.observe.day_ring import HOURS, MAX_RING_BYTES, Bucket, DayRing, OutlineStep

S = ("box", "s")
HOUR = 360
FULL = tuple((index, 100_000) for index in range(18))

buckets = st.builds(
    Bucket,
    number=st.integers(0, HOUR - 1),
    calls=st.integers(0, 2**40),
    errors=st.integers(0, 2**20),
    counts=st.dictionaries(st.integers(0, 17), st.integers(1, 2**40)).map(lambda each: tuple(sorted(each.items()))),
    memory=st.integers(0, 2**40),
)


@given(st.lists(buckets, max_size=20, unique_by=lambda each: each.number))
def test_appended_lines_are_read(added: list[Bucket]) -> None:
    ring = DayRing()
    for each in added:
        ring.add(S, each)
    assert ring.read(S) == sorted(added)


def test_values_in_one_bucket_are_added_up() -> None:
    ring = DayRing()
    ring.add(S, Bucket(5, 1, 1, ((3, 1),)))
    ring.add(("box", "other"), Bucket(5, 7))
    ring.add(S, Bucket(5, 2, 0, ((2, 1), (3, 1)), memory=9))
    assert ring.read(S) == [Bucket(5, 3, 1, ((2, 1), (3, 2)), 9)]
    assert ring.labels() == [S, ("box", "other")]


def test_an_outline_has_the_sums_of_quarters_of_hours_that_had_calls() -> None:
    ring = DayRing()
    for number in (3, 89, 90, HOUR + 359):
        ring.add(S, Bucket(number, calls=2, errors=number == 89))
    ring.add(S, Bucket(HOUR + 200, memory=9))
    ring.add(("box", "other"), Bucket(HOUR + 200, calls=1))
    assert ring.outline(S) == [OutlineStep(0, 4, 1), OutlineStep(1, 2, 0), OutlineStep(7, 2, 0)]
    assert ring.outline(("box", "nobody")) == []
    ring.add(S, Bucket((HOURS + 1) * HOUR, calls=1))
    assert [step.number for step in ring.outline(S)] == [7, (HOURS + 1) * 4], "more than a day is forgotten"


def test_an_outline_keeps_its_detail_when_buckets_lose_theirs() -> None:
    ring = DayRing(max_bytes=50_000)
    for number in range(3 * HOUR):
        ring.add(S, Bucket(number, calls=1, counts=FULL))
    assert len(ring.read(S)) < 2 * HOUR and [step.calls for step in ring.outline(S)] == [90] * 12


def test_more_than_a_day_is_forgotten() -> None:
    ring = DayRing()
    for hour in range(HOURS + 3):
        ring.add(S, Bucket(hour * HOUR, 1))
    assert [each.number // HOUR for each in ring.read(S)] == list(range(2, HOURS + 3))
    ring.add(S, Bucket(1000 * HOUR, 1))
    assert len(ring.read(S)) == 1, "days passed without a call"


def test_a_clock_that_was_put_back_loses_nothing() -> None:
    ring = DayRing()
    ring.add(S, Bucket(10 * HOUR + 5, 1))
    ring.add(S, Bucket(3, 2))
    assert [(each.number, each.calls) for each in ring.read(S)] == [(10 * HOUR, 2), (10 * HOUR + 5, 1)]


def test_a_server_that_is_called_all_day_takes_less_than_200_kib() -> None:
    ring = DayRing()
    for number in range(24 * HOUR):
        ring.add(S, Bucket(number, 5000, 3, ((0, 4000), (1, 900), (2, 97), (9, 3)), 123_456))
    assert len(ring.read(S)) == 24 * HOUR
    assert ring.size < 200 * 1024


def test_if_there_is_too_much_the_oldest_hours_lose_detail_but_no_calls() -> None:
    ring = DayRing(50_000)
    for number in range(12 * HOUR):
        ring.add(S, Bucket(number, 5000, 3, ((0, 4000), (1, 900), (2, 97), (9, 3))))
    found = ring.read(S)
    assert ring.size <= 50_000
    assert (found[0].number, found[0].calls, found[1].number) == (0, 30_000, 6)
    assert found[-1] == Bucket(12 * HOUR - 1, 5000, 3, ((0, 4000), (1, 900), (2, 97), (9, 3)))
    assert sum(each.calls for each in found) == 12 * HOUR * 5000


def test_no_number_of_names_and_calls_takes_more_than_the_bound() -> None:
    tracemalloc.start()
    try:
        ring = DayRing()
        before = tracemalloc.get_traced_memory()[0]
        # More than fits even if it is coarse; the names are those of clients.
        for number in range(0, 24 * HOUR, 30):
            for name in range(200):
                ring.add((f"box {name}", f"server {number % 7} of {name}"), Bucket(number, 1, 1, FULL))
                assert ring.size <= MAX_RING_BYTES
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < MAX_RING_BYTES * 5 // 4, "the count of bytes is about what Python takes"
    assert ring.labels(), "the latest are kept"


def test_more_names_in_an_hour_than_fit_are_dropped() -> None:
    ring = DayRing(10_000)
    for name in range(100):
        ring.add(("box", str(name)), Bucket(1, 1))
        assert ring.size <= 10_000
    ring.add(S, Bucket(2, 1))
    assert ring.read(S) == [Bucket(2, 1)]
