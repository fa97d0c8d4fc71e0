"""A test that fails beside others is looked at once more, and nothing else is forgiven."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import second_try

ROOT = Path(second_try.__file__).parents[1]
# Fails the first time it runs in a folder.
UNSTABLE = """
    import pathlib, pytest
    @pytest.mark.parametrize("x", ["a b"])
    def test_unstable(x):
        seen = pathlib.Path("seen")
        was_there = seen.exists()
        seen.touch()
        assert was_there
"""
FAILING = "    def test_failing(): assert False\n"
PASSING = "    def test_passing(): pass\n"


def run(folder: Path, tests: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text("\n".join(line.removeprefix("    ") for line in tests.splitlines()))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in [name for name in environment if name.startswith(("PYTEST_", "COV_"))]:
        del environment[name]
    command = [sys.executable, "-m", "scripts.second_try", "-m", "pytest", "-p", "no:randomly", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


def test_one_that_passes_the_second_time_is_named(tmp_path: Path) -> None:
    status, output = run(tmp_path, UNSTABLE + PASSING)
    assert status == 0, output
    assert output.rstrip().endswith(
        "UNSTABLE: 1 failed beside others and passed alone:\n  test_it.py::test_unstable[a b]"
    )


def test_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, UNSTABLE + FAILING)
    assert status == 1
    assert "1 failed, 1 passed" in output
    assert "UNSTABLE" not in output


def test_a_run_without_failures_is_one_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, PASSING)
    assert (status, output.count("test session starts")) == (0, 1)


@pytest.mark.parametrize(
    ("tests", "arguments", "expected"),
    [
        (UNSTABLE.replace('["a b"]', "range(6)").replace('Path("seen")', 'Path(f"seen{x}")'), (), 1),
        (UNSTABLE + "    def test_interrupted(): raise KeyboardInterrupt\n", (), 2),
        (PASSING, ("--no-such-option",), 4),
        (PASSING, ("-k", "none_of_them"), 5),
    ],
    ids=["too many", "interrupted", "wrong usage", "no tests"],
)
def test_nothing_else_gets_a_second_try(tmp_path: Path, tests: str, arguments: tuple[str, ...], expected: int) -> None:
    status, output = run(tmp_path, tests, *arguments)
    assert status == expected, output
    assert output.count("test session starts") <= 1
