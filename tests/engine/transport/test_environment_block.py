"""Secrets in the environment that the system shows of us."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.processes import available

pytestmark = pytest.mark.skipif(not available(), reason="asks /proc about processes")

PROGRAM = """
import ctypes, os
from mcp_workbench.engine.transport.environment_block import erase
erase({"TOKEN", "MISSING"})
shown = open("/proc/self/environ", "rb").read()
assert b"hunter2" not in shown, shown
assert b"TOKENS=kept" in shown and b"OTHER=kept too" in shown, shown
assert os.environ["TOKEN"] == "hunter2-\\u00e9"
erase([])
"""


def test_erased_values_are_hidden_from_others_and_known_to_us() -> None:
    environment = {**os.environ, "TOKEN": "hunter2-é", "TOKENS": "kept", "OTHER": "kept too"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
