"""A package that was recorded is compared before anything of it runs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.errors import DownstreamError
from mcp_workbench.team.lock.lock_file import LOCK_FORMAT_VERSION, LockedServer, LockFile, written
from mcp_workbench.team.lock.verified_packages import recorded, verify

NPM = ServerConfig(name="s", command="npx", args=("-y", "@a/b@1.2.3", "--flag"))
UVX = ServerConfig(name="s", command="uvx", args=("--", "time@1.2"))
LOCKED = LockedServer(package="npm:@a/b@1.2.3", integrity=["sha512-good"])
LOCKED_PYPI = LockedServer(package="pypi:time==1.2", integrity=["sha256:good", "sha256:sdist"])


USUAL = {"b": "run.js"}


class Runner:
    """npm and uv: `content` is what the registry has."""

    def __init__(self, home: Path, content: str = "sha512-good", has_script: bool = False) -> None:
        self.home = home
        self.content = content
        self.has_script = has_script
        self.calls: list[list[str]] = []
        self.status = 0
        programs = home / "bin"
        programs.mkdir()
        for name in ("npm", "uv"):
            (programs / name).write_text("#!/bin/sh\n")
            (programs / name).chmod(0o755)
        self.environment = {"HOME": str(home), "PATH": str(programs), "TMPDIR": str(home)}

    def __call__(self, words: Sequence[str], given: bytes) -> tuple[int, str]:
        self.calls.append([Path(words[0]).name, *words[1:]])
        if "exec" in words and not self.status:
            install(self.home, self.content, self.has_script)
        if "pip" in words and self.content not in given.decode():
            return 1, f"Hash mismatch for `time==1.2`\n\nExpected:\n  x\n\nComputed:\n  {self.content}"
        if "rebuild" in words[2]:
            return subprocess.run(words).returncode, ""
        return self.status, "npm error network"

    def done(self) -> list[str]:
        """What npm was told to do."""
        return ["exec" if "exec" in call else "rebuild" for call in self.calls]


def install(home: Path, content: str, has_script: bool = False, bin: dict[str, str] = USUAL) -> Path:
    folder = home / ".npm" / "_npx" / hashlib.sha512(b"@a/b@1.2.3").hexdigest()[:16]
    (folder / "node_modules").mkdir(parents=True, exist_ok=True)
    package = {"version": "1.2.3", "integrity": content, "hasInstallScript": has_script, "bin": bin}
    tree = {"packages": {"node_modules/@a/b": package}}
    (folder / "node_modules" / ".package-lock.json").write_text(json.dumps(tree))
    return folder


def refusal(locked: LockedServer, config: ServerConfig, runner: Runner) -> DownstreamError:
    with pytest.raises(DownstreamError) as caught:
        verify(locked, config, "box/s", runner.environment, runner)
    assert "withheld" in caught.value.message
    return caught.value


def test_recorded_installation_starts_without_running_anything(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    folder = install(tmp_path, "sha512-good")
    found = verify(LOCKED, NPM, "box/s", runner.environment, runner)
    assert runner.calls == []
    assert found == (str(folder / "node_modules/@a/b/run.js"), ("--flag",)), "not what npx would find elsewhere"


@pytest.mark.parametrize(
    ("programs", "started"),
    [
        ({"other": "bin/x.js"}, "bin/x.js"),
        ({"one": "x.js", "two": "x.js"}, "x.js"),
        ({"b": "b.js", "c": "c.js"}, "b.js"),
        ({"c": "c.js", "d": "d.js"}, None),
        ({"b": "../../../../evil"}, None),
        ({}, None),
    ],
)
def test_started_program_is_the_one_that_npx_would_choose(
    programs: dict[str, str], started: str | None, tmp_path: Path
) -> None:
    runner = Runner(tmp_path)
    folder = install(tmp_path, "sha512-good", bin=programs)
    if started is None:
        assert "has no program that npx would start" in refusal(LOCKED, NPM, runner).message
        return
    found = verify(LOCKED, NPM, "box/s", runner.environment, runner)
    assert found is not None and found.path == str(folder / "node_modules/@a/b" / started)


def test_missing_package_is_installed_without_its_scripts(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    verify(LOCKED, NPM, "box/s", runner.environment, runner)
    ((*words,),) = runner.calls
    at = words.index("exec")
    assert words[at : at + 3] == ["exec", "--yes", "--ignore-scripts"] and "--package=@a/b@1.2.3" in words


def test_other_content_is_withheld_before_anything_of_it_runs(tmp_path: Path) -> None:
    runner = Runner(tmp_path, "sha512-evil", has_script=False)
    error = refusal(LOCKED, NPM, runner)
    assert "sha512-evil" in error.message and "mcp-workbench team lock accept box/s" in (error.hint or "")
    assert runner.done() == ["exec"]


@pytest.mark.processes
def test_scripts_run_after_the_content_was_compared_and_once(tmp_path: Path) -> None:
    runner = Runner(tmp_path, has_script=True)
    for _ in range(2):
        verify(LOCKED, NPM, "box/s", runner.environment, runner)
    assert runner.done() == ["exec", "rebuild"]
    other = tmp_path / "other"
    other.mkdir()
    evil = Runner(other, "sha512-evil", has_script=True)
    refusal(LOCKED, NPM, evil)
    assert evil.done() == ["exec"], "its scripts did not run"


def test_nothing_is_written_through_a_link_that_the_server_has_left(tmp_path: Path) -> None:
    """It is its sandbox that may write there, and not we."""
    runner = Runner(tmp_path, has_script=True)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = install(tmp_path, "sha512-good", has_script=True)
    (folder / ".mcp-workbench-built").symlink_to(precious)

    def sandboxed(words: Sequence[str], given: bytes) -> tuple[int, str]:
        assert precious.read_text() == "mine"
        runner.calls.append(list(words))
        return 0, ""

    verify(LOCKED, NPM, "box/s", runner.environment, sandboxed)
    assert runner.done() == ["rebuild"] and precious.read_text() == "mine"


@pytest.mark.parametrize("name", ["node_modules/.package-lock.json", ".mcp-workbench-built"])
def test_pipes_that_the_server_has_left_block_nothing(name: str, tmp_path: Path) -> None:
    runner = Runner(tmp_path, has_script=True)
    pipe = install(tmp_path, "sha512-good", has_script=True) / name
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    runner.status = 1

    def sandboxed(words: Sequence[str], given: bytes) -> tuple[int, str]:
        return 1, "npm error"

    with pytest.raises(DownstreamError, match="withheld"):
        verify(LOCKED, NPM, "box/s", runner.environment, sandboxed)


def test_package_that_cannot_be_fetched_is_not_verified(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.status = 1
    assert "npm error network" in refusal(LOCKED, NPM, runner).message


@pytest.mark.parametrize(
    "config",
    [
        ServerConfig(name="s", command="npx", args=("-y", "@a/b@1.2.4")),
        ServerConfig(name="s", command="npx", args=("-y", "@a/b")),
        ServerConfig(name="s", command="npx", args=("--registry=http://x", "@a/b@1.2.3")),
        ServerConfig(name="s", command="bunx", args=("@a/b@1.2.3",)),
        ServerConfig(name="s", command="npx", args=("-y", "--", "other", "@a/b@1.2.3")),
    ],
)
def test_another_version_or_another_way_to_start_it_is_withheld(tmp_path: Path, config: ServerConfig) -> None:
    runner = Runner(tmp_path)
    install(tmp_path, "sha512-good")
    refusal(LOCKED, config, runner)
    assert runner.calls == []


def test_uv_compares_the_hashes(tmp_path: Path) -> None:
    runner = Runner(tmp_path, "sha256:good")
    verify(LOCKED_PYPI, UVX, "box/s", runner.environment, runner)
    assert "--require-hashes" in runner.calls[0]
    runner.content = "sha256:evil"
    assert "sha256:evil" in refusal(LOCKED_PYPI, UVX, runner).message
    elsewhere = ServerConfig(name="s", command="uvx", args=("--index-url", "http://x", "time@1.2"))
    refusal(LOCKED_PYPI, elsewhere, runner)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bin"], "nothing is left"


def test_a_record_belongs_to_its_configuration_and_server(tmp_path: Path) -> None:
    path = tmp_path / "workbench.lock"
    assert recorded(str(path), "c.json", "box", "s") is None
    path.write_bytes(written(LockFile(LOCK_FORMAT_VERSION, "c.json", {"box": {"s": LOCKED, "t": LockedServer()}})))
    assert recorded(str(path), "c.json", "box", "s") == LOCKED
    assert recorded(str(path), "c.json", "box", "t") is None and recorded(str(path), "d.json", "box", "s") is None
    path.write_text("<<<<<<< HEAD")
    with pytest.raises(DownstreamError, match="cannot be read"):
        recorded(str(path), "c.json", "box", "s")
