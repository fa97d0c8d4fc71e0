"""Two work trees side by side: taken in turn, and compared by what a figure means."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench.against import ALLOWED, comparison, side_by_side
from bench.calls import Effort
from bench.client import BenchError
from bench.findings import Finding, Unit, Value, Verdict
from bench.subjects import HERE

VERDICT = Verdict("", 1, 2, at_least=False, form="×")


def finding(name: str, unit: Unit, *values: tuple[str, float]) -> Finding:
    return Finding(name, name, tuple(Value(subject, unit, (number,)) for subject, number in values), VERDICT)


def test_trees_alternate_and_noisy_measurements_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "of the user")
    turns: list[tuple[str, str]] = []

    def measure(name: str) -> Finding:
        tree = "here" if os.environ["PYTHONPATH"] == str(HERE.parent / "src") else "there"
        turns.append((name, tree))
        return finding(name, "s", ("workbench", len(turns)))

    compared = side_by_side(["varies", "counted"], measure, tmp_path, lambda name: name == "varies")
    assert turns == [
        ("varies", "there"), ("varies", "here"), ("varies", "here"), ("varies", "there"),
        ("counted", "there"), ("counted", "here"),
    ]  # fmt: skip
    assert [(each.there.samples, each.here.samples) for each in compared] == [((1, 4), (2, 3)), ((5,), (6,))]
    assert os.environ["PYTHONPATH"] == "of the user"


@pytest.mark.parametrize(
    ("unit", "subject", "there", "here", "mark"),
    [
        ("s", "workbench", 100, 106, "WORSE"),
        ("s", "workbench", 100, 104, ""),
        ("s", "workbench", 100, 50, ""),
        ("calls/s", "workbench", 100, 94, "WORSE"),
        ("calls/s", "workbench", 100, 200, ""),
        ("instructions", "forwarder before a workbench", 100, 106, "WORSE"),
        ("instructions", "forwarder, legacy client", 100, 106, "yardstick"),
        ("s", 'python -c "import asyncio"', 100, 200, "yardstick"),
    ],
)
def test_worse_is_slower_or_larger_by_more_than_is_allowed(
    tmp_path: Path, unit: Unit, subject: str, there: float, here: float, mark: str
) -> None:
    numbers = iter((there, here))
    (compared,) = side_by_side(
        ["row"], lambda name: finding(name, unit, (subject, next(numbers))), tmp_path, lambda _: False
    )
    assert ALLOWED == 0.05
    line = comparison([compared]).splitlines()[-1]
    assert line.startswith("row") and f"{here / there - 1:+.1%}" in line
    assert line.endswith(mark or "%")


def test_rows_unknown_to_the_other_tree_are_omitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(name: str) -> Finding:
        if name == "new":
            raise BenchError("unknown setting `metrics`")
        return finding(name, "s", ("workbench", 1))

    compared = side_by_side(["new", "old"], measure, tmp_path, lambda _: False)
    assert [each.name for each in compared] == ["old"]
    assert "new is left out: unknown setting" in capsys.readouterr().err


def test_a_path_without_a_workbench_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parse(["--against", str(tmp_path)])
    assert "no work tree of the workbench" in capsys.readouterr().err


@pytest.mark.processes
def test_measurements_run_the_code_of_the_other_tree(tmp_path: Path) -> None:
    package = tmp_path / "src" / "mcp_workbench"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    seen: list[str] = []

    def measure(name: str) -> Finding:
        command = [sys.executable, "-c", "import mcp_workbench; print(mcp_workbench.__file__)"]
        seen.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        return finding(name, "s", ("workbench", 1))

    side_by_side(["row"], measure, tmp_path, lambda _: False)
    assert seen == [str(package / "__init__.py"), str(HERE.parent / "src" / "mcp_workbench" / "__init__.py")]


def test_every_name_has_a_measurement(tmp_path: Path) -> None:
    assert bench._measurements(bench.parse([]), tmp_path, Effort()).keys() == set(bench.NAMES)


def test_counts_and_timings_cover_every_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "_why_left_out", lambda name: None)
    counted, timed = (bench._names(bench.parse([option])) for option in ("--instructions", "--timed"))
    assert counted == list(bench.COUNTED_NAMES) and sorted(counted + timed) == sorted(bench.NAMES)
    bench.parse(["--timed", "--write", str(tmp_path / "performance.md")])
    with pytest.raises(SystemExit):
        bench.parse(["--instructions", "--write", str(tmp_path / "performance.md")])
