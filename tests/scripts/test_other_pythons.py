"""Which other interpreters the quick tests run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import other_pythons
from scripts.other_pythons import SYSTEM_PYTHON, Interpreter, candidates, copy_checkout, find, run, version_of


def found(versions: dict[str, str | None], own: str = "3.11.7") -> tuple[list[Interpreter], list[str]]:
    return find([path for path in versions if path != SYSTEM_PYTHON], own, versions.get)


def test_each_other_version_is_tested_once_and_missing_ones_are_named() -> None:
    versions: dict[str, str | None] = {"/a/3.11": "3.11.9", "/shim": None, "/a/3.13": "3.13.0", "/b/3.13": "3.13.2"}
    assert found(versions) == ([Interpreter("/a/3.13", "3.13.0")], ["3.12", "3.14"])


def test_the_systems_python_is_tested_besides_its_version() -> None:
    system = Interpreter(SYSTEM_PYTHON, "3.11.2", is_system=True)
    assert found({"/a": "3.12.1", SYSTEM_PYTHON: "3.11.2"}) == (
        [Interpreter("/a", "3.12.1"), system],
        ["3.13", "3.14"],
    )
    # One that is found under both names is tested once, as the system's.
    assert found({"/a": "3.12.1", SYSTEM_PYTHON: "3.12.1"})[0] == [Interpreter(SYSTEM_PYTHON, "3.12.1", is_system=True)]
    assert found({"/a": "3.12.1", SYSTEM_PYTHON: "3.9.2"})[0] == [Interpreter("/a", "3.12.1")]


def test_interpreters_are_looked_for_on_the_path_and_at_pyenvs(tmp_path: Path) -> None:
    for path in (tmp_path / "bin" / "python3.13", tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python"):
        path.parent.mkdir(parents=True)
        path.symlink_to(sys.executable)
    environ = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert [Path(path).relative_to(tmp_path).parts[0] for path in candidates(environ)] == ["bin", "pyenv"]


def test_an_interpreter_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho no such version >&2\nexit 127\n")
    shim.chmod(0o755)
    assert version_of(str(shim)) is None and version_of(str(tmp_path / "none")) is None
    assert version_of(sys.executable) == ".".join(map(str, sys.version_info[:3]))


def test_a_run_that_takes_too_long_is_stopped_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_pythons, "RUN_TIMEOUT", 0.2)
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    script = f"sleep 1000 1>&{write_end} & wait"
    process = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **named: process(*given, **named, pass_fds=[write_end]))
    assert run(["bash", "-c", script], tmp_path, os.environ) == 124
    os.close(write_end)
    # End of file: nobody has the other end any more.
    assert os.read(read_end, 1) == b""
    os.close(read_end)


def test_checkout_is_copied_without_ignored_files(tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    assert (tmp_path / "scripts" / "other_pythons.py").read_bytes() == Path(other_pythons.__file__).read_bytes()
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("others", "systems", "exit_status"),
    [(0, None, 1), (None, 0, 0), (None, None, 1), (None, 1, 1), (2, 0, 1), (0, 0, 0)],
)
def test_only_the_systems_python_has_to_be_there_in_working_order(
    monkeypatch: pytest.MonkeyPatch, others: int | None, systems: int | None, exit_status: int
) -> None:
    """The status of its tests; None if it cannot be set up."""
    interpreters = [Interpreter("/a", "3.13.0"), Interpreter(SYSTEM_PYTHON, "3.11.2", is_system=True)]
    monkeypatch.setattr(other_pythons, "find", lambda *_: (interpreters, []))
    monkeypatch.setattr(other_pythons, "run_tests", lambda each: systems if each.is_system else others)
    assert other_pythons.main() == exit_status
