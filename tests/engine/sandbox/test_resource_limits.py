"""The program that sets a sandbox's limits."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox import resource_limits
from mcp_workbench.engine.sandbox.resource_limits import limiting
from mcp_workbench.engine.sandbox.sandbox import Sandbox

PROCESSES = 64


@pytest.mark.processes
@pytest.mark.skipif(not os.path.exists("/bin/ps"), reason="needs /bin/ps")
def test_where_there_is_no_proc_the_processes_of_the_user_are_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_limits, "_PROC", str(tmp_path / "missing"))
    found = re.search(r"ulimit -u (\d+) ", limiting(Sandbox("sealed", processes=PROCESSES))[2])
    # This process at least.
    assert found is not None and int(found[1]) > PROCESSES
