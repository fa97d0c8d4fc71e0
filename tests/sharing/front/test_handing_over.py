"""A client is handed to a fresh process, with all that is known about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench.engine.process_context import CLIENT_VARIABLE
from mcp_workbench.sharing.front.handing_over import Handover, hand_over, handed_over

SCRIPT = """
import os, sys
from mcp_workbench.sharing.front.handing_over import Handover, hand_over, handed_over
if "MCP_WORKBENCH_CLIENT" not in os.environ:
    hand_over(Handover(b'{"a":"\\xc3\\xa9"}', b"x" * 3_000_000 + b"\\n", b""))
    sys.exit("not handed over")
client = handed_over()
print(os.getpid(), client.resume, len(client.unread), client.unread[-2:], client.unsent, client.is_begun)
print(handed_over())
"""


def test_the_same_process_has_everything_afterwards() -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    said = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    resume = b'{"a":"\xc3\xa9"}'
    ends_with = b"x\n"
    assert said[0] == f"{process.pid} {resume!r} 3000001 {ends_with!r} b'' True"
    assert said[1] == "None", "once"


def test_without_an_interpreter_this_process_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    hand_over(Handover(b"{}", b"unread"))
    assert CLIENT_VARIABLE not in os.environ
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


@pytest.mark.parametrize("given", ["", "x", "-1", "99999"])
def test_an_invalid_handover_variable_hands_over_nothing(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(CLIENT_VARIABLE, given)
    assert handed_over() is None
    assert CLIENT_VARIABLE not in os.environ, "servers never see it"
