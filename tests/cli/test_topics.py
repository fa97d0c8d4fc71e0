"""`mcp-workbench help TOPIC` shows the documents, in the terminal and in a pipe."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from mcp_workbench.cli.topics import for_terminal, topics
from tests.cli.in_process import command

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
ROOT = Path(__file__).resolve().parents[2]


def test_every_document_for_users_is_a_topic_of_its_own_name() -> None:
    documents = [path for kind in ("start", "guides", "reference") for path in (ROOT / "docs" / kind).glob("*.md")]
    assert sorted(path.stem for path in topics().values()) == sorted(path.stem for path in documents)
    assert topics()["secrets"] == ROOT / "docs" / "guides" / "secrets.md"


@pytest.mark.parametrize("name", ["sandbox", "policy", "lock", "audit", "auth", "team"])
def test_a_guide_with_the_name_of_a_command_comes_after_its_usage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "guides" / f"{name}.md").read_text("utf-8")
    status, shown, _ = command(monkeypatch, "help", name)
    assert status == 0 and shown.startswith("Usage: mcp-workbench ") and shown.endswith(guide)
    assert command(monkeypatch, "help", f"guides/{name}").stdout == guide
    assert guide not in command(monkeypatch, name, "--help").stdout


def test_a_terminal_shows_usage_and_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "cat")
    shown = command(monkeypatch, "help", "lock", width=80).stdout
    assert shown.startswith("Usage: mcp-workbench team lock") and "The lock file" in shown and "](" not in shown
    assert "The lock file" not in command(monkeypatch, "help", "team", "lock", width=80).stdout


def test_a_pipe_gets_the_document_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    status, shown, complaints = command(monkeypatch, "help", "sharing")
    assert (status, complaints) == (0, "") and shown == (ROOT / "docs" / "guides" / "sharing.md").read_text("utf-8")


def test_a_terminal_gets_no_markup_and_no_path_that_an_installed_user_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "cat")
    status, shown, _ = command(monkeypatch, "help", "secrets", width=80)
    assert status == 0 and "Secrets" in shown
    assert not re.search(r"\]\(|\.md", shown)


def test_a_link_to_another_document_names_its_topic() -> None:
    text = "See [faces](../guides/faces.md#auto), [auth.md](auth.md), [SDK](https://a.test/b) and [c](x.py).\n"
    shown = "See faces (`help faces`), `help auth`, [SDK](https://a.test/b) and c.\n"
    assert for_terminal(f"<!-- x -->\n![p](../images/p.svg)\n\n{text}", topics()) == shown


def test_the_wheel_carries_every_folder_of_topics() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    carried = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert carried == {f"docs/{kind}": f"mcp_workbench/documents/{kind}" for kind in ("start", "guides", "reference")}


def test_no_message_points_to_a_file_of_the_repository() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for literal in ast.walk(ast.parse(path.read_text("utf-8"))):
            said = literal.value if isinstance(literal, ast.Constant) and isinstance(literal.value, str) else ""
            assert not re.search(r"docs/[a-z]+/\S+\.md", said) or said in _documentation(path), path


def _documentation(path: Path) -> list[str]:
    owners = [each for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, _WITH_DOCSTRING)]
    return [ast.get_docstring(each, clean=False) or "" for each in owners]
