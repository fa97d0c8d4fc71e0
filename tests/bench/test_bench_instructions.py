"""Instructions are counted by running a process twice: what every run costs cancels out, whatever it is."""

from __future__ import annotations

import http.client
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench import instructions, seeing
from bench.__main__ import COUNTED_NAMES, NAMES, parse, run
from bench.calls import Effort
from bench.client import BenchError, Call
from bench.findings import GUARDED, WORKBENCH
from bench.instructions import Counted, Ready, count, use_tool

START = 5_000_000
FORKED = 40_000
EVERY_SECOND = 77


class Scripted:
    """Stands for a process under valgrind that costs the same to start, and the same for each call."""

    def __init__(self, each: int) -> None:
        self._each = each
        self.calls: list[int] = []

    def __call__(self, prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        self.calls.append(calls)
        if not prefix:
            return 0
        seconds = max(calls, least_seconds)
        assert prefix[0] == "valgrind"
        pattern = next(word.partition("=")[2] for word in prefix if word.startswith("--cachegrind-out-file="))
        for pid, total in ((17, FORKED), (18, START + calls * self._each + int(seconds) * EVERY_SECOND)):
            written = Path(pattern.replace("%p", str(pid)))
            assert written.parent == folder
            written.write_text(f"desc: I1 cache\nevents: Ir\nfn=main\n1 {total}\nsummary: {total}\n")
        return calls


def test_start_up_forked_processes_and_work_done_every_second_do_not_count(tmp_path: Path) -> None:
    process = Scripted(each=1234)
    assert count("ours", process, tmp_path) == Counted("ours", 1234)
    # The first run compiles what the counted ones load.
    assert process.calls == [1, instructions.MANY_CALLS, instructions.FEW_CALLS]


def test_a_run_that_fails_is_repeated_from_the_beginning(tmp_path: Path) -> None:
    process = Scripted(each=1234)
    folders: list[Path] = []

    def failing_once(prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        folders.append(folder)
        lasted = process(prefix, folder, calls, least_seconds)
        if len(folders) == 2:
            raise BenchError("the first answer came as a stream")
        return lasted

    assert count("ours", failing_once, tmp_path).each == 1234
    assert len(set(folders)) == 4


def test_a_run_that_counts_nothing_ends_the_bench(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="counted nothing"):
        count("ours", lambda prefix, folder, calls, least_seconds: 0.0, tmp_path)


def test_the_guarded_call_is_judged_against_the_same_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        instructions, "http_workbench", lambda in_flight, *, is_guarded=False: Scripted(each=300 if is_guarded else 200)
    )
    finding = instructions.guarded_instructions(tmp_path)
    assert [(value.subject, value.median) for value in finding.values] == [(WORKBENCH, 200), (GUARDED, 300)]
    assert finding.verdict.measured == 1.5
    assert finding.verdict.passed


def test_without_valgrind_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    only = [word for name in COUNTED_NAMES for word in ("--only", name)]
    assert run(parse(only), tmp_path) == []
    assert re.findall(r"(\S+) is left out: valgrind is not installed", capsys.readouterr().err) == list(COUNTED_NAMES)
    assert set(COUNTED_NAMES) < set(NAMES)


@pytest.mark.processes
@pytest.mark.parametrize("is_counting", [True, False])
def test_calls_over_http_are_counted_unless_the_bench_forbids_it(tmp_path: Path, is_counting: bool) -> None:
    calls = 0.0

    @contextmanager
    def counted(url: str, token: str) -> Iterator[Callable[[], None]]:
        nonlocal calls
        yield lambda: None
        link = http.client.HTTPConnection(urlsplit(url).netloc)
        link.request("GET", "/metrics", headers={"authorization": f"Bearer {token}"})
        lines = link.getresponse().read().decode().splitlines()
        link.close()
        found = [line for line in lines if line.startswith("mcp_server_operation_duration_seconds_count")]
        calls = sum(float(line.rpartition(" ")[2]) for line in found)

    seeing._watched(counted, is_counting=is_counting)((), tmp_path, 3, 0)
    assert calls == (instructions.WARM_UP_CALLS + 3 if is_counting else 0)


@pytest.mark.processes
def test_top_sees_the_calls_that_it_is_measured_with(tmp_path: Path) -> None:
    # Raises if it saw none.
    instructions.stdio_workbench(looker=seeing._top)((), tmp_path, 3, 0)


def test_number_of_calls_equals_the_divisor_under_any_interleaving() -> None:
    made: list[int] = []
    between: list[str] = []

    class Counting:
        def latencies(self, call: Call, count: int) -> list[float]:
            made.append(count)
            return []

    caller: Any = Counting()
    for calls, times in ((300, 0), (1300, 1)):
        made.clear()
        instructions.make_calls(caller, os.getpid(), use_tool(), calls, 0, (1000, lambda: between.append("")))
        assert sum(made) == calls + instructions.WARM_UP_CALLS and len(between) == times


@pytest.mark.processes
def test_the_guarded_workbench_serves_the_key_alone_and_writes_its_audit(tmp_path: Path) -> None:
    instructions.http_workbench(is_guarded=True)((), tmp_path, 3, 0)
    lines = [line for line in (tmp_path / "audit.jsonl").read_text().splitlines() if '"kind":"call"' in line]
    # Those that warm it up, too.
    assert len(lines) == instructions.WARM_UP_CALLS + 3
    assert all('"principal":"alice"' in line and '"rule":"policy[2]"' in line for line in lines)


def test_cpu_time_is_that_of_the_quickest_round_of_each_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every second round of one of the two meets a busy machine, and each pair is slower than the one before.
    spent = 0.0

    class Spending:
        def __init__(self, seconds: float, *, is_disturbed: bool) -> None:
            self._seconds = seconds
            self._slower = itertools.cycle((1, 3) if is_disturbed else (1,))

        def latencies(self, call: Call, count: int) -> list[float]:
            nonlocal spent
            spent += self._seconds * count * next(self._slower)
            return []

    @contextmanager
    def opened(folder: Path, seconds: float) -> Iterator[Ready]:
        pair = int(folder.name.split("-")[1])
        caller: Any = Spending(seconds * (1 + pair / 10), is_disturbed=seconds > 0.001)
        yield Ready(caller, os.getpid(), use_tool(), None)

    monkeypatch.setattr(seeing, "processor_seconds", lambda pid: spent)
    openings = {
        "off": partial(opened, seconds=0.001),
        "on": partial(opened, seconds=0.00104),
    }
    effort = Effort(rounds=5, sequential=5)
    finding = seeing._timed("busy", "CPU time", openings, 1.05, tmp_path, effort)
    assert finding.verdict.measured == pytest.approx(1.04) and finding.verdict.passed
    assert [len(value.samples) for value in finding.values] == [3 * seeing.ROUNDS_OF_A_PAIR] * 2
    assert max(finding.values[1].samples) > 2 * min(finding.values[1].samples)


@pytest.mark.processes
def test_everything_is_shown_while_its_cpu_time_is_measured(tmp_path: Path) -> None:
    effort = Effort(rounds=1, sequential=20)
    # Raises if no event came to the page.
    finding = seeing.everything_cpu(tmp_path, effort)
    assert all(sample > 0 for value in finding.values for sample in value.samples)
