"""The long run's own parts: sums that match, a verdict that can fail, and a page for whatever there is of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from soak.accounts import Accounts, repeated
from soak.plot import Panel, draw
from soak.record import Record, Settings
from soak.report import write
from soak.samples import Reading, Samples

SETTINGS = Settings(minutes=1, clients=10, servers=2, stdio=1, pause=1, kill_pause=1, large_pause=1)
QUIET = Reading(memory=40_000_000, descriptors=50, tasks=5, calls_in_flight=0)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(SETTINGS, Samples(tmp_path / "samples"))


def test_every_call_is_answered_failed_or_cancelled_or_it_is_wrong() -> None:
    accounts = Accounts()
    numbers = [accounts.start() for _ in range(7)]
    accounts.judge(numbers[0], {"result": {"structuredContent": {"n": numbers[0]}}}, 0.5)
    accounts.judge(numbers[1], {"result": {"isError": True, "content": [{"text": "[box/s/t] it was killed\nmore"}]}})
    accounts.judge(numbers[2], {"error": {"message": "the workbench is shutting down"}})
    accounts.cancel(numbers[3])
    accounts.judge(numbers[4], {"result": {"structuredContent": {"n": numbers[0]}}})
    accounts.judge(numbers[5], {"error": {"message": " "}})
    assert (accounts.answered, accounts.failed, accounts.cancelled, len(accounts.wrong)) == (1, 2, 1, 2)
    assert accounts.under_way == 1
    assert set(accounts.reasons) == {"it was killed", "the workbench is shutting down"}
    assert (accounts.take_latencies(), accounts.take_latencies()) == ([0.5], [])


def test_calls_that_reach_a_server_twice_are_found() -> None:
    assert repeated([3, 1, 2, 3, 1], 5) == [3, 1]


def test_a_run_in_which_everything_held_has_nothing_to_say(record: Record) -> None:
    for second in range(20):
        record.samples.take(second, QUIET, second, [0.001, 0.002])
    record.before, record.after, record.noted, record.repeated, record.is_over = QUIET, QUIET, 0, 0, True
    assert record.verdict() == []


def test_whatever_did_not_hold_is_said(record: Record) -> None:
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
def test_a_page_and_a_picture_come_of_whatever_there_is(record: Record, tmp_path: Path, readings: int) -> None:
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
