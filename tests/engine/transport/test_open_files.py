"""The limit on open files: raised for us, and not for the servers that we start."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mcp_workbench.engine.transport import open_files
from mcp_workbench.engine.transport.open_files import MAX_OPEN_FILES, give_back, raise_limit

FEW = 300
SHOWN = "import resource; input(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"


@pytest.fixture(autouse=True)
def _few_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(open_files, "_given", None)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def child_limit() -> int:
    process = subprocess.Popen([sys.executable, "-c", SHOWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    give_back(process.pid)
    return int(process.communicate(b"\n")[0])


def test_servers_keep_the_limit_that_we_were_given() -> None:
    assert child_limit() == FEW
    raise_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == (MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)) > FEW
    if sys.platform == "linux":
        assert child_limit() == FEW


def test_a_limit_that_is_higher_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "MAX_OPEN_FILES", FEW - 1)
    raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == FEW
