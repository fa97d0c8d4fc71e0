"""A launch that fails half-way leaves no descriptor, whatever has failed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox import bwrap_backend, container_backend, machine, server_sandbox
from mcp_workbench.engine.sandbox.container_engine import ContainerEngine
from mcp_workbench.engine.sandbox.sandbox import Capabilities, Sandbox
from mcp_workbench.engine.sandbox.server_sandbox import enforce
from mcp_workbench.errors import DownstreamError
from tests.support.processes import open_descriptors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="backends of Linux")
IN_IMAGE = Sandbox("contained", limits_files=True, image="x", backend="podman", environment={"GOFLAGS": "1"})
WITH_HOSTS = Sandbox("contained", limits_files=True, backend="bwrap", network=("example.org",))


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Capabilities(7, True, why_no_bwrap=lambda: None, engine=lambda name: ContainerEngine(name, "/bin/true"))
    for module in (machine, server_sandbox):
        monkeypatch.setattr(module, "capabilities", lambda: found)
    monkeypatch.setattr(bwrap_backend, "_binds_descriptors", lambda: True)


def failing(*args: object, **named: object) -> None:
    raise OSError(errno.EACCES, "Permission denied", "/some/file")


@pytest.mark.parametrize("part", ["Popen", "run_words"])
def test_a_container_that_cannot_be_launched_leaves_no_descriptor(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if part == "Popen":
        monkeypatch.setattr(subprocess, "Popen", failing)
    else:
        monkeypatch.setattr(container_backend, "run_words", failing)
    before = open_descriptors()
    with pytest.raises(DownstreamError, match=r"sandbox: it cannot be set up: Permission denied \(`/some/file`\)"):
        enforce(IN_IMAGE)
    assert open_descriptors() == before


@pytest.mark.parametrize("part", ["files_of", "interpreter_files", "_program", "limiting"])
def test_bubblewrap_that_cannot_be_launched_leaves_no_descriptor(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_backend, part, failing)
    before = open_descriptors()
    with pytest.raises(DownstreamError, match="cannot be set up"):
        enforce(WITH_HOSTS)
    assert open_descriptors() == before


def test_a_file_in_memory_that_cannot_be_written_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", failing)
    before = open_descriptors()
    with pytest.raises(OSError, match="Permission denied"):
        bwrap_backend.memory_file(b"x")
    assert open_descriptors() == before


def test_a_lack_of_descriptors_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*args: object, **named: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", exhausted)
    with pytest.raises(OSError, match="Too many"):
        enforce(IN_IMAGE)


def test_a_private_home_that_cannot_be_created_names_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sandbox = Sandbox("contained", home=str(tmp_path / "file" / "home"))
    with pytest.raises(DownstreamError, match="file/home"):
        enforce(sandbox)
