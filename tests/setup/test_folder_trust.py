"""Folders in which a client starts no servers, because its user has not trusted them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_workbench.setup.clients.table import find
from mcp_workbench.setup.folder_trust import trust_in, untrusted_note


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".qwen").mkdir()
    return tmp_path


def trusts(home: Path, listed: object) -> None:
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps(listed))


def test_a_client_without_such_a_list_starts_servers_anywhere(home: Path) -> None:
    assert trust_in(find("cursor"), str(home)) == "any"
    assert untrusted_note(find("cursor"), str(home)) is None


def test_the_innermost_folder_counts(home: Path) -> None:
    work = home / "work"
    trusts(home, {str(work): "TRUST_FOLDER", str(work / "bad"): "DO_NOT_TRUST", str(home / "a" / "b"): "TRUST_PARENT"})
    gemini = find("gemini")
    seen = {at: trust_in(gemini, str(home / at)) for at in ("work", "work/x", "work/bad/y", "worker", "a/c", "a")}
    assert seen == {
        "work": "trusted",
        "work/x": "trusted",
        "work/bad/y": "refused",
        "worker": "unknown",
        "a/c": "trusted",
        "a": "trusted",
    }


def test_settings_decide_whether_folders_are_asked_about(home: Path) -> None:
    gemini, qwen = find("gemini"), find("qwen-code")
    assert (trust_in(gemini, str(home)), trust_in(qwen, str(home))) == ("unknown", "any")
    (home / ".gemini" / "settings.json").write_text('{"security": {"folderTrust": {"enabled": false}}} // off')
    (home / ".qwen" / "settings.json").write_text('{"security": {"folderTrust": {"enabled": true}}}')
    assert (trust_in(gemini, str(home)), trust_in(qwen, str(home))) == ("any", "unknown")


@pytest.mark.parametrize("damaged", ["[]", "{", '{"a": 1}'])
def test_a_list_that_cannot_be_read_says_nothing_of_a_folder(home: Path, damaged: str) -> None:
    (home / ".gemini" / "trustedFolders.json").write_text(damaged)
    assert trust_in(find("gemini"), str(home)) == ("unknown" if "a" in damaged else "any")


def test_untrusted_folder_is_reported(home: Path) -> None:
    gemini = find("gemini")
    assert "only in folders you trust" in (untrusted_note(gemini, str(home)) or "")
    trusts(home, {str(home): "DO_NOT_TRUST"})
    assert f"not to trust `{home}`" in (untrusted_note(gemini, str(home)) or "")
    trusts(home, {str(home): "TRUST_FOLDER"})
    assert untrusted_note(gemini, str(home)) is None
