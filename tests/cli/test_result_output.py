"""Where each part of a result goes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.cli.result_content import ResultContent
from mcp_workbench.cli.result_output import MAX_TABLE_COLUMNS, show, table_of

ROWS = [{"name": "a", "size": 1}, {"name": "b", "size": None, "new": True}]


def reading(**result: object) -> ResultContent:
    return ResultContent(json.dumps(result).encode())


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, **environ: str) -> Iterator[io.BytesIO]:
    """A terminal in place of stdout. Within the test: pytest has its own streams in place before."""
    written = io.BytesIO()
    # Kept: it closes what it writes to when it goes.
    stream = Terminal(written, encoding="utf-8", write_through=True)
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", stream)
        for name in ("TMUX", "STY", "KITTY_WINDOW_ID", "TERM_PROGRAM"):
            patched.delenv(name, raising=False)
        for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", **environ}.items():
            patched.setenv(name, value)
        yield written
    stream.detach()


def test_structured_content_is_a_table_where_it_looks_like_one() -> None:
    assert table_of(ROWS) == (["name", "size", "new"], [["a", "1", ""], ["b", "", "true"]])
    assert table_of({"result": ROWS}) == table_of(ROWS)
    assert table_of({"a": 1, "b": "x"}) == (["", ""], [["a", "1"], ["b", "x"]])


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        "text",
        None,
        [1, 2],
        [{"a": [1]}],
        {"a": {"b": 1}},
        [{"text": "two\nlines"}],
        [{f"column {number}": 1 for number in range(MAX_TABLE_COLUMNS + 1)}],
    ],
)
def test_values_that_are_not_tabular_make_no_table(value: object) -> None:
    assert table_of(value) is None


def test_in_a_pipe_structured_content_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(reading(structuredContent={"result": ROWS}), None)
    assert json.loads(capsys.readouterr().out) == {"result": ROWS}
    # The bytes of the server, where it wrote the same as text.
    show(reading(content=[{"type": "text", "text": '{"a":1}'}], structuredContent={"a": 1}), None)
    assert capsys.readouterr().out == '{"a":1}\n'


def on_terminal(monkeypatch: pytest.MonkeyPatch, result: ResultContent, **environ: str) -> str:
    with terminal(monkeypatch, **environ) as written:
        show(result, None)
    return written.getvalue().decode()


def test_on_a_terminal_structured_content_is_a_table_if_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch, reading(structuredContent=ROWS))
    assert "name" in shown and "{" not in shown
    assert '"long"' in on_terminal(monkeypatch, reading(structuredContent=[{"long": "x" * 200}]))


def test_links_are_links(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"type": "resource_link", "uri": "https://example.test/a", "name": "a", "title": "The page"}
    other = {"type": "resource_link", "uri": "notes:///1", "name": "n"}
    shown = on_terminal(monkeypatch, reading(content=[link, other]))
    assert "\x1b]8;;https://example.test/a\x1b\\https://example.test/a\x1b]8;;\x1b\\" in shown
    assert "The page" in shown and "notes:///1\n" in shown and "]8;;notes" not in shown


def test_a_link_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"type": "resource_link", "uri": "https://x/\x1b]0;owned\x07", "name": ""}
    shown = on_terminal(monkeypatch, reading(content=[link]))
    assert "owned" in shown and "\x1b" not in shown and "\x07" not in shown


IMAGE = {"type": "image", "data": "aW1hZ2U=", "mimeType": "image/png"}


def test_an_image_is_shown_inline_where_the_terminal_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "aW1hZ2U=" in on_terminal(monkeypatch, reading(content=[IMAGE]), TERM_PROGRAM="iTerm.app")


@pytest.mark.parametrize("kind", ["image", "../../etc/passwd"])
def test_files_are_named_by_us(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    blob = {"uri": kind, "blob": "aW1hZ2U=", "mimeType": "x/../y"}
    show(reading(content=[IMAGE, {"type": "resource", "resource": blob}]), None)
    paths = [Path(line.rpartition(" as ")[2]) for line in capsys.readouterr().err.splitlines()]
    assert [path.name for path in paths] == ["image-1.png", "image-2.bin" if kind == "image" else "data-2.bin"]
    assert {path.parent for path in paths} == {paths[0].parent}
    assert paths[0].parent.stat().st_mode & 0o077 == 0
    assert all(path.read_bytes() == b"image" for path in paths)


def test_text_goes_to_a_file_where_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(reading(content=[], structuredContent={"a": 1}), tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}
    assert capsys.readouterr().out == ""
