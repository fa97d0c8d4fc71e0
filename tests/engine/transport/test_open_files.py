"""Open files: the limit is raised for us and not for the servers that we start, which have room for many."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mcp_workbench.engine.transport import open_files
from mcp_workbench.engine.transport.open_files import (
    HIGH_DESCRIPTOR,
    MAX_OPEN_FILES,
    give_back,
    raise_limit,
    room_for_many,
)
from tests.support.processes import open_descriptors

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


# Its parent may have passed many descriptors on, so it starts one more that has inherited nothing.
ROOM = """
import subprocess
from mcp_workbench.engine.transport.confinement import GUARDED, UNCONFINED, start_confined
shown = ["grep", "FDSize", "/proc/self/status"]
for each in (GUARDED, UNCONFINED):
    print(start_confined(each, lambda: subprocess.check_output(shown, text=True)), end="")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="on Linux only")
@pytest.mark.processes
def test_a_server_has_room_for_more_descriptors_than_the_usual_64() -> None:
    """Node opens as many while it has threads, and each time that the table grows then takes 5 to 15 ms."""
    done = subprocess.run([sys.executable, "-c", ROOM], capture_output=True, text=True)
    assert done.stdout.split() == ["FDSize:", "256"] * 2, done.stderr


def test_room_for_many_leaves_no_descriptor_and_does_without_where_the_limit_is_lower() -> None:
    before = open_descriptors()
    with room_for_many():
        assert len(open_descriptors()) == len(before) + (sys.platform == "linux")
    assert open_descriptors() == before
    resource.setrlimit(resource.RLIMIT_NOFILE, (HIGH_DESCRIPTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with room_for_many():
        assert open_descriptors() == before
