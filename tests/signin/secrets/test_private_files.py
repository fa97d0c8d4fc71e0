"""Secrets where there is no keychain: files that only the user can read, encrypted if there is a key."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest

from mcp_workbench.signin.secrets import private_files
from mcp_workbench.signin.secrets.private_files import KEY_FILE_VARIABLE, PrivateFileUnusable


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def files() -> list[Path]:
    return sorted(Path(private_files.folder()).iterdir())


def test_each_value_has_a_file_that_only_the_user_can_read() -> None:
    assert private_files.put("svc", "one", "first", {}) is False
    assert private_files.put("svc", "two/../..", "second\nline é", {}) is False
    assert private_files.get("svc", "one", {}) == "first"
    assert private_files.get("svc", "two/../..", {}) == "second\nline é"
    assert private_files.get("other", "one", {}) is None
    assert {stat.S_IMODE(path.stat().st_mode) for path in files()} == {0o600}
    assert stat.S_IMODE(os.stat(private_files.folder()).st_mode) == 0o700
    assert private_files.delete("svc", "one") and not private_files.delete("svc", "one")
    assert private_files.get("svc", "one", {}) is None and len(files()) == 1


def test_with_a_key_values_are_encrypted_and_bound_to_their_names(data_folder: Path) -> None:
    key = data_folder / "key"
    key.write_bytes(base64.b64encode(bytes(range(32))) + b"\n")
    environ = {KEY_FILE_VARIABLE: str(key)}
    assert private_files.put("svc", "one", "hunter2", environ) and private_files.put("svc", "two", "other", environ)
    assert not any(b"hunter2" in path.read_bytes() for path in files())
    assert private_files.get("svc", "one", environ) == "hunter2"
    with pytest.raises(PrivateFileUnusable, match="is encrypted, and WORKBENCH_SECRET_KEY_FILE is not set"):
        private_files.get("svc", "one", {})
    first, second = files()
    first.write_bytes(second.read_bytes())
    second.write_bytes(second.read_bytes()[:-1] + b"x")
    for name in ("one", "two"):
        with pytest.raises(PrivateFileUnusable, match="encrypted with another key, or was changed"):
            private_files.get("svc", name, environ)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "No such file"), (b"!!", "it is not base64"), (base64.b64encode(b"short"), "holds no key of 32 bytes")],
)
def test_a_key_that_cannot_be_used_stores_nothing(content: bytes | None, complaint: str, data_folder: Path) -> None:
    key = data_folder / "key"
    if content is not None:
        key.write_bytes(content)
    with pytest.raises(PrivateFileUnusable, match=complaint):
        private_files.put("svc", "one", "hunter2", {KEY_FILE_VARIABLE: str(key)})
    assert not Path(private_files.folder()).exists()


def test_a_failed_write_leaves_the_value_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    private_files.put("svc", "one", "first", {})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PrivateFileUnusable, match="No space left on device"):
        private_files.put("svc", "one", "second", {})
    assert private_files.get("svc", "one", {}) == "first" and len(files()) == 1


def test_a_file_that_is_not_ours_is_not_taken_for_a_secret() -> None:
    private_files.put("svc", "one", "first", {})
    (path,) = files()
    path.write_bytes(b"something else")
    with pytest.raises(PrivateFileUnusable, match="was not written by the workbench"):
        private_files.get("svc", "one", {})
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(PrivateFileUnusable, match="cannot be read"):
        private_files.get("svc", "one", {})
