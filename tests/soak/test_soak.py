"""The long run's own parts: sums that match, a verdict that can fail, and a page for whatever there is of a run."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from soak.accounts import Accounts, repeated
from soak.plot import Panel, draw
from soak.record import Ended, Record, Settings
from soak.report import write
from soak.run import broken
from soak.samples import Reading, Samples

SETTINGS = Settings(minutes=1, clients=10, servers=10, stdio=1, pause=1, kill_pause=1, large_pause=1)
QUIET = Reading(memory=40_000_000, descriptors=50, tasks=5, calls_in_flight=0)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(SETTINGS, Samples(tmp_path / "samples"))


def test_every_call_is_answered_failed_or_cancelled_or_it_is_wrong() -> None:
    accounts = Accounts()
    numbers = [accounts.start() for _ in range(7)]
    accounts.judge(numbers[0], {"result": {"structuredContent": {"n": numbers[0]}}}, 0.5)
    accounts.judge(numbers[1], {"result": {"isError": True, "content": [{"text": "[box/s/t] it was killed\nmore"}]}})
    accounts.judge(numbers[2], {"error": {"message": "nothing is listening at http://127.0.0.1:18001"}})
    accounts.cancel(numbers[3])
    accounts.judge(numbers[4], {"result": {"structuredContent": {"n": numbers[0]}}})
    accounts.judge(numbers[5], {"error": {"message": " "}})
    assert (accounts.answered, accounts.failed, accounts.cancelled, len(accounts.wrong)) == (1, 2, 1, 2)
    assert accounts.under_way == 1
    assert set(accounts.reasons) == {"it was killed", "nothing is listening at its address"}
    assert (accounts.take_latencies(), accounts.take_latencies()) == ([0.5], [])


def test_calls_that_reach_a_server_twice_are_found() -> None:
    assert repeated([3, 1, 2, 3, 1], 5) == [3, 1]


@pytest.fixture
def held(record: Record) -> Record:
    """A run in which something happened, and everything held."""
    for second in range(20):
        record.samples.take(second, QUIET, second, [0.001, 0.002])
    accounts = record.accounts
    accounts.started, accounts.answered, accounts.failed, accounts.cancelled = 13, 10, 2, 1
    record.kills, record.stops = 3, 1
    record.remote_kills, record.remote_restarts, record.remote_stops, record.remote_noted = 2, 2, 1, 4
    record.large[16, "result"] = 1
    record.before, record.after, record.stdio = QUIET, QUIET, [Ended(QUIET, QUIET)]
    record.noted, record.repeated, record.is_over = 10, 0, True
    return record


def test_a_run_in_which_everything_held_has_nothing_to_say(held: Record) -> None:
    assert held.verdict() == []


def test_a_run_in_which_nothing_happened_did_not_hold(record: Record, tmp_path: Path) -> None:
    assert record.verdict() == [], "it may still happen"
    record.is_over = True
    found = "\n".join(record.verdict())
    for words in ("answered", "failed", "cancelled", "killed", "stopped", "large", "reading", "0 of 1 workbenches"):
        assert words in found
    write(record, tmp_path)
    assert "Everything held" not in (tmp_path / "soak.md").read_text()


@pytest.mark.parametrize("name", ["answered", "failed", "cancelled"])
def test_a_run_without_calls_of_each_end_did_not_hold(held: Record, name: str) -> None:
    held.accounts.started -= getattr(held.accounts, name)
    setattr(held.accounts, name, 0)
    assert [name in problem for problem in held.verdict()] == [True]


@pytest.mark.parametrize(
    ("name", "nothing"),
    [
        ("kills", 0),
        ("stops", 0),
        ("remote_kills", 0),
        ("remote_restarts", 0),
        ("remote_stops", 0),
        ("remote_noted", 0),
        ("large", Counter()),
        ("before", None),
        ("after", None),
        ("noted", None),
        ("stdio", []),
    ],
)
def test_a_run_that_lacks_a_part_did_not_hold(held: Record, name: str, nothing: object) -> None:
    setattr(held, name, nothing)
    assert len(held.verdict()) == 1


def test_a_run_too_small_for_servers_at_an_address_lacks_none(held: Record) -> None:
    held.settings = replace(SETTINGS, servers=4)
    held.remote_kills = held.remote_restarts = held.remote_stops = held.remote_noted = 0
    assert held.verdict() == []


def test_a_run_without_readings_did_not_hold(held: Record) -> None:
    held.samples.all.clear()
    assert held.verdict() == ["no reading was taken"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("descriptors", 900, "descriptors: 900 when everybody had gone, 50 before"),
        ("tasks", 6, "tasks: 6"),
        ("calls_in_flight", 1, "calls in flight: 1"),
        ("memory", 80_000_000, "memory grew from 40.0 to 80.0 MB"),
    ],
)
def test_leftovers_of_a_stdio_workbench_are_reported(held: Record, name: str, value: int, words: str) -> None:
    held.stdio = [Ended(QUIET, replace(QUIET, **{name: value}))]
    (problem,) = held.verdict()
    assert problem.startswith(f"stdio 1: {words}")


async def test_clients_that_broke_off_are_reported_and_those_told_to_end_are_not() -> None:
    async def breaks() -> None:
        raise KeyError("status")

    async def ends() -> None:
        pass

    goes_on = asyncio.create_task(asyncio.Event().wait())
    goes_on.cancel()
    tasks = {"the watcher": asyncio.create_task(breaks()), "the sender": asyncio.create_task(ends())}
    assert await broken({**tasks, "the killer": goes_on}) == ["the watcher broke off: KeyError('status')"]


def test_broken_expectations_are_reported(record: Record) -> None:
    for second in range(20):
        grown = Reading(QUIET.memory + second * 2_000_000, 50, 5, 0)
        record.samples.take(second, grown, second, [])
    record.before, record.after = QUIET, Reading(QUIET.memory, 51, 6, 1)
    record.accounts.start()
    record.accounts.answered, record.noted, record.repeated = 2, 1, 1
    record.accounts.wrong.append("call 7 was answered with something else")
    record.seconds, record.is_over = 600.0, True
    found = "\n".join(record.verdict())
    for words in (
        "memory grew",
        "descriptors: 51",
        "tasks: 6",
        "calls in flight: 1",
        "reached a server twice",
        "call 7",
    ):
        assert words in found
    assert "2 calls were answered, but servers saw 1" in found


@pytest.mark.parametrize("readings", [0, 1, 50])
def test_page_and_picture_are_written_from_any_record(record: Record, tmp_path: Path, readings: int) -> None:
    for second in range(readings):
        record.samples.take(second, QUIET, second, [0.001] if second % 2 else [])
    write(record, tmp_path)
    page = (tmp_path / "soak.md").read_text()
    assert "still going on" in page and "(soak.svg)" in page
    assert ElementTree.fromstring((tmp_path / "soak.svg").read_text()).tag.endswith("svg")
    assert not list(tmp_path.glob("*.new"))


def test_a_picture_has_a_line_for_each_series_within_its_panel() -> None:
    panels = [
        Panel("memory", [("memory", [1.0, 5.0, None])]),
        Panel("latency", [("median", [0.5, 700.0, 20.0]), ("slow", [3.0, 3000.0, None])], is_logarithmic=True),
    ]
    root = ElementTree.fromstring(draw([0.0, 1.0, 2.0], panels))
    lines = [element.attrib["points"].split() for element in root.iter() if element.tag.endswith("polyline")]
    assert [len(points) for points in lines] == [2, 3, 2]
    height = float(root.attrib["viewBox"].split()[3])
    assert all(0 <= float(point.split(",")[1]) <= height for points in lines for point in points)
