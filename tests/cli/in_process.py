"""Running a command in this process, where what it covers is counted: exit status, stdout and stderr."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_workbench.cli.commands import run
from tests.cli.shell import Done


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
        status = run([str(each) for each in arguments])
    return Done(status, stdout.text(), stderr.text())


def live_in(patch: pytest.MonkeyPatch, home: Path, environ: dict[str, str]) -> None:
    """As a user whose home and current folder is this one."""
    for name, value in environ.items():
        patch.setenv(name, value)
    patch.chdir(home)
