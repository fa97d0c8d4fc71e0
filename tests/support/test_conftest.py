"""The nets under every test, tried with tests that fall."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


CONFTEST = """
from tests import conftest
from tests.conftest import *
from tests.conftest import _no_process_left_behind, _orphans_come_to_us

conftest.GOODBYE_TIMEOUT = 0.2
"""


MARKED = "import pytest\npytestmark = pytest.mark.processes\n"


def _outcome(pytester: pytest.Pytester, body: str, marked: str = MARKED) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(marked + body)
    pytester._monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider")


def test_a_test_that_leaves_a_process_behind_fails(pytester: pytest.Pytester) -> None:
    result = _outcome(pytester, "import subprocess\ndef test_it(): subprocess.Popen(['sleep', '60'])\n")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*processes left behind*", "*sleep 60*"])


def test_a_test_without_the_mark_cannot_start_a_process(pytester: pytest.Pytester) -> None:
    result = _outcome(pytester, "import subprocess\ndef test_it(): subprocess.run(['true'])\n", marked="")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*`subprocess.Popen` in a test without `pytest.mark.processes`*"])


def test_a_test_that_leaves_a_daemon_behind_fails(pytester: pytest.Pytester) -> None:
    body = "import subprocess\ndef test_it(): subprocess.run(['sh', '-c', 'setsid sleep 60 >/dev/null 2>&1 &'])\n"
    result = _outcome(pytester, body)
    result.assert_outcomes(passed=1, errors=1)


def test_a_test_that_leaves_a_task_behind_fails(pytester: pytest.Pytester) -> None:
    body = "import asyncio\nasync def test_it():\n    global task\n    task = asyncio.create_task(asyncio.sleep(60))\n"
    result = _outcome(pytester, body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tasks left behind*"])


def test_an_async_test_can_fail_and_pass(pytester: pytest.Pytester) -> None:
    result = _outcome(pytester, "async def test_good(tmp_path): pass\nasync def test_bad(): assert False\n")
    result.assert_outcomes(passed=1, failed=1)
