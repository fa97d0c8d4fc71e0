"""The checks around every test, tried with tests that fail them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest

pytest_plugins = ["pytester"]


CONFTEST = """
from tests import conftest
from tests.conftest import *
from tests.conftest import _no_descriptor_left_behind, _no_process_left_behind
from tests.conftest import _orphans_come_to_us, _pipe_of_the_process

conftest.GOODBYE_TIMEOUT = 0.2
"""

MARKED = """
import asyncio, subprocess
import pytest

pytestmark = pytest.mark.processes

def test_process(): subprocess.Popen(['sleep', '60'])

def test_daemon(): subprocess.run(['sh', '-c', 'setsid sleep 61 >/dev/null 2>&1 &'])

async def test_task():
    global task
    task = asyncio.create_task(asyncio.sleep(60))

async def test_good(tmp_path): pass

async def test_bad(): assert False
"""

WHICH_WORKER = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test_which(number):
    with open("workers.txt", "a") as file:
        file.write(f"{pathlib.Path(__file__).parent.name} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""

UNMARKED = """
import asyncio, os, subprocess

def test_unmarked(): subprocess.run(['true'])

def test_descriptor(): os.open("/dev/null", os.O_RDONLY)

async def test_timer(): asyncio.get_running_loop().call_later(60, print)
"""


def test_leftovers_fail_a_test_and_unmarked_tests_cannot_start_processes(
    pytester: pytest.Pytester,
) -> None:
    # All in one run: most of what it takes is the start of pytest.
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_marked=MARKED, test_unmarked=UNMARKED)
    pytester._monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v")
    result.assert_outcomes(passed=4, failed=4, errors=3)
    assert {
        tuple(line.split("::")[1].split()[:2]) for line in result.outlines if ".py::test_" in line and "%]" in line
    } == {
        ("test_process", "PASSED"),
        ("test_process", "ERROR"),
        ("test_daemon", "PASSED"),
        ("test_daemon", "ERROR"),
        ("test_task", "FAILED"),
        ("test_good", "PASSED"),
        ("test_bad", "FAILED"),
        ("test_unmarked", "FAILED"),
        ("test_descriptor", "PASSED"),
        ("test_descriptor", "ERROR"),
        ("test_timer", "FAILED"),
    }
    result.stdout.fnmatch_lines_random(
        [
            "*processes left behind*",
            "*sleep 60*",
            "*sleep 61*",
            "*tasks left behind*",
            "*timers left behind*",
            "*descriptors left behind*/dev/null*",
            "*`subprocess.Popen` in a test without `pytest.mark.processes`*",
        ]
    )


@pytest.mark.parametrize("expression", ["not processes", "not processes and not node", ""])
def test_files_of_which_no_test_is_asked_for_are_not_imported(expression: str) -> None:
    tests = Path(__file__).parents[1]
    config = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
    left_out = [
        path
        for path in (
            tests / "cli",
            tests / "engine" / "catalog",
            tests / "bridge" / "test_sdk.py",
            tests / "engine" / "test_nearest.py",
        )
        if conftest.pytest_ignore_collect(path, config)  # type: ignore[arg-type]
    ]
    expected = [tests / "cli", tests / "bridge" / "test_sdk.py"] if expression == "not processes" else []
    assert left_out == expected


def test_tests_that_share_a_slow_fixture_run_on_one_worker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import pytest_xdist_make_scheduler")
    for path in ("conformance/test_a", "conformance/test_b", "cli/test_c", "cli/test_d", "cli/test_e"):
        file = pytester.path / "tests" / f"{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(WHICH_WORKER)
    pytester._monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    lean = [word for name in ("cacheprovider", "hypothesispytest", "pytest_cov") for word in ("-p", f"no:{name}")]
    result = pytester.runpytest_subprocess(*lean, "-n", "2", "--import-mode=importlib")
    result.assert_outcomes(passed=20)
    ran = [line.split() for line in (pytester.path / "workers.txt").read_text().splitlines()]
    assert len({worker for folder, worker in ran if folder == "conformance"}) == 1
    assert len({worker for _, worker in ran}) == 2
