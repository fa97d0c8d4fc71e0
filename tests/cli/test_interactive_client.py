"""What is shown while something is under way, and what `call` makes of what comes back."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from mcp_workbench.cli.engine import Progress
from mcp_workbench.cli.flags import UsageError
from mcp_workbench.cli.interactive_client import LiveProgress
from tests.cli.in_process import carried_out
from tests.support.workbench import scripted_entry, write_config


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_moves_on_a_terminal_and_stands_still_while_somebody_types(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stderr", shown)
        patched.setenv("TERM", "xterm-256color")
        with LiveProgress("box/server/tool") as live:
            live.show(Progress(1, 4, "half \x1b[2J way"))
            with live.paused():
                written = shown.getvalue()
                live.show(Progress(2, 4))
                assert shown.getvalue() == written
    assert "box/server/tool" in shown.getvalue() and "\x1b[2J" not in shown.getvalue()


def test_ctrl_c_at_a_question_leaves_the_cursor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stderr", shown)
        patched.setenv("TERM", "xterm-256color")
        with pytest.raises(KeyboardInterrupt), LiveProgress("box/server/tool") as live, live.paused():
            raise KeyboardInterrupt
    text = shown.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1


def test_progress_is_not_shown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress("x") as live, live.paused():
        live.show(Progress(1, 2, "half"))
    assert capsys.readouterr().err == ""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    clock = {"command": sys.executable, "args": ["-m", "mcp_workbench.cli.demo.clock", "--with-crash"]}
    return write_config(tmp_path, {"lab": {"clock": clock, "odd": scripted_entry("--era", "legacy")}})


def call(config: Path, *words: object) -> int:
    return carried_out("call", "--config", config, *words)


def test_a_call_prints_its_result(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(config, "lab/clock/wait", "seconds=0") == 0
    assert capsys.readouterr().out == "Waited 0 s.\n"
    assert call(config, "lab", "clock", "wait", "--json", '{"seconds": 0}') == 0
    assert capsys.readouterr().out == "Waited 0 s.\n"
    assert call(config, "lab/clock/now", "--raw") == 0
    assert json.loads(capsys.readouterr().out)["content"]
    assert call(config, "lab/odd/all_content", "--output", tmp_path / "all.png") == 0
    assert (tmp_path / "all.png").read_bytes() == b"image"


def test_a_call_that_fails_says_why(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(config, "lab/clock/crash") == 1
    assert "[lab/clock/crash] the server exited with status 70" in capsys.readouterr().err
    assert call(config, "lab/odd/tool_error") == 1
    assert "error: [lab/odd/tool_error]" in capsys.readouterr().err
    assert call(config, "lab/odd/notify", "method=notifications/message", 'params:={"level":"error","data":"oh"}') == 0
    assert "the server says: oh" in capsys.readouterr().err


def test_a_call_that_cannot_be_is_refused(config: Path) -> None:
    for words, complaint in (
        (["lab/clock/wiat"], "did you mean `wait`"),
        (["lab/clock/wait"], "missing: `seconds`"),
        (["lab/clock/wait", "x=1", "--json", "{}"], "were both given"),
        (["lab"], "`server` and `tool` are missing"),
        (["wait", "seconds=0"], "`toolbox` and `server` are missing; it can be `lab/clock/wait`"),
        (["no_such_tool_at_all"], "`toolbox` and `server` are missing; what can be meant is not known"),
    ):
        with pytest.raises(UsageError, match=complaint):
            call(config, *words)
