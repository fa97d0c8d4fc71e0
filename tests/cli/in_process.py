"""Running a command in this process, where what it covers is counted: exit status, stdout and stderr."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_workbench.__main__ import main
from mcp_workbench.cli import dispatch
from mcp_workbench.cli.usage import COMMANDS
from tests.cli import shell
from tests.cli.shell import Done, environment


class Stream(io.TextIOWrapper):
    """A pipe that remembers; or a terminal, as far as a command can tell."""

    def __init__(self, text: str = "", *, is_terminal: bool = False) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8", newline="", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def text(self) -> str:
        self.flush()
        held = self.buffer
        assert isinstance(held, io.BytesIO)
        return held.getvalue().decode()


def carried_out(name: str, *words: object) -> int:
    """The exit status of a command whose errors come out as they are."""
    declared = COMMANDS[name]
    return dispatch.carry_out(declared, declared.parse([str(word) for word in words]))


def command(
    patch: pytest.MonkeyPatch,
    *arguments: object,
    typed: str | None = None,
    width: int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Done:
    """Run it. `typed` are lines that somebody types at a terminal; without, stdin is an empty pipe. With a `width`,
    stdout and stderr are a terminal that is so many columns wide."""
    stdin = Stream(typed or "", is_terminal=typed is not None)
    stdout, stderr = Stream(is_terminal=width is not None), Stream(is_terminal=width is not None)
    with patch.context() as patched:
        if width is not None:
            patched.setenv("COLUMNS", str(width))
        for name, value in (env or {}).items():
            patched.setenv(name, value)
        if cwd is not None:
            patched.chdir(cwd)
        patched.setattr(sys, "stdin", stdin)
        patched.setattr(sys, "stdout", stdout)
        patched.setattr(sys, "stderr", stderr)
        status = dispatch.run([str(each) for each in arguments])
    return Done(status, stdout.text(), stderr.text())


def run(
    *arguments: object,
    stdin: str = "",
    typed: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
) -> Done:
    """`shell.run` without its process, which takes four times as long: for tests of what a command says and does.
    `typed` are lines that somebody types at a terminal.

    Tests of the process (signals, encodings, terminals, what is left running) take `shell.run`, and so do async tests,
    whose event loop is in the way."""
    if arguments[:1] == ("serve",) or arguments[0] not in ("help", *COMMANDS):
        # `serve` takes over signals and streams, and what is no command may be its configuration.
        return shell.run(*arguments, stdin=stdin, env=env, cwd=cwd)
    streams = Stream(typed or stdin, is_terminal=typed is not None), Stream(), Stream()
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment(env).keys():
            patch.delenv(name)
        for name, value in environment(env).items():
            patch.setenv(name, value)
        patch.chdir(cwd or Path.cwd())
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        status = main([str(each) for each in arguments])
    _, stdout, stderr = streams
    return Done(status, stdout.text(), stderr.text())


def live_in(patch: pytest.MonkeyPatch, home: Path, environ: dict[str, str]) -> None:
    """As a user whose home and current folder is this one."""
    for name, value in environ.items():
        patch.setenv(name, value)
    patch.chdir(home)
