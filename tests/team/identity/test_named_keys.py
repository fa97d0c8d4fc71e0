"""Named keys at rest and in force."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from mcp_workbench.team.identity import named_keys as module
from mcp_workbench.team.identity.named_keys import KeyFolder, KeyProblem, KeysInForce, digest


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(str(tmp_path / "state" / "keys"))


@pytest.mark.requirement("team.keys")
def test_of_a_key_the_hash_is_kept_in_a_file_that_only_its_owner_can_read(folder: KeyFolder) -> None:
    token = folder.create("alice", toolboxes=("dev*",), expires=2e9)

    (file,) = Path(folder.path).iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert Path(folder.path).stat().st_mode & 0o777 == 0o700
    assert token not in file.read_text() and digest(token) in file.read_text()
    (record,) = folder.records()
    assert (record.name, record.toolboxes, record.expires) == ("alice", ("dev*",), 2e9)


def test_each_token_is_another(folder: KeyFolder) -> None:
    tokens = {folder.create(f"key{number}") for number in range(5)}
    assert len(tokens) == 5 and all(token.startswith("wbk_") and len(token) > 40 for token in tokens)


@pytest.mark.parametrize("name", ["", "a b", "../x", "default", "Anonymous", "local", "x#y", "-x", "a" * 64, "ü", ".x"])
def test_a_name_that_could_be_taken_for_something_else_is_refused(folder: KeyFolder, name: str) -> None:
    with pytest.raises(KeyProblem, match="cannot be the name of a key"):
        folder.create(name)
    assert not folder.revoke(name)


@pytest.mark.parametrize("name", ["../elsewhere", "below/elsewhere", "./alice", ""])
def test_a_name_that_is_none_revokes_nothing(folder: KeyFolder, name: str) -> None:
    folder.create("alice")
    alice = Path(folder._file("alice"))
    others = [Path(folder.path, f"{each}{alice.suffix}") for each in ("../elsewhere", "below/elsewhere", "")]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(b"{}")
    assert not folder.revoke(name)
    assert [each.name for each in (alice, *others) if not each.exists()] == []


def test_a_folder_in_the_place_of_a_key_is_none(folder: KeyFolder, caplog: pytest.LogCaptureFixture) -> None:
    token = folder.create("alice")
    Path(folder._file("bob")).mkdir()
    assert [record.name for record in folder.records()] == ["alice"]
    assert KeysInForce(folder).find(token) is not None
    assert "Is a directory" in caplog.text


def test_a_name_is_given_once(folder: KeyFolder) -> None:
    token = folder.create("alice")
    with pytest.raises(KeyProblem, match="already"):
        folder.create("alice")
    assert KeysInForce(folder).find(token) is not None, "and the first one is as good as before"


def test_there_is_a_bound_on_keys(folder: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMED_KEYS", 2)
    folder.create("one")
    folder.create("two")
    with pytest.raises(KeyProblem, match="there are 2 keys already"):
        folder.create("three")


@pytest.mark.requirement("team.keys")
def test_a_key_that_was_just_made_is_good_at_once_and_a_revoked_one_after_a_look(folder: KeyFolder) -> None:
    keys = KeysInForce(folder)
    gone: list[frozenset[str]] = []
    keys.on_revoked.append(gone.append)
    token = folder.create("alice")
    found = keys.find(token)
    assert found is not None and found.name == "alice"
    assert keys.find(token + "x") is None and keys.find("") is None

    assert folder.revoke("alice") and not folder.revoke("alice")
    keys.reload()

    assert keys.find(token) is None and gone == [frozenset({"alice"})]


def test_a_key_that_was_made_again_under_its_name_is_another(folder: KeyFolder) -> None:
    first = folder.create("alice")
    keys = KeysInForce(folder)
    gone: list[frozenset[str]] = []
    keys.on_revoked.append(gone.append)
    folder.revoke("alice")
    second = folder.create("alice")
    keys.reload()

    assert keys.find(first) is None and keys.find(second) is not None
    assert gone == [frozenset({"alice"})], "what the first one has open ends"


class Files:
    """Opening files fails while `error` is set, for those whose path ends so; listing a folder, for the empty end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error = 0
        self.end = ""
        self._open, self._listdir = os.open, os.listdir
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "listdir", self.listdir)

    def open(self, path: str, *rest: int) -> int:
        if self.error and str(path).endswith(self.end):
            raise OSError(self.error, os.strerror(self.error))
        return self._open(path, *rest)

    def listdir(self, path: str) -> list[str]:
        if self.error and not self.end:
            raise OSError(self.error, os.strerror(self.error))
        return self._listdir(path)


@pytest.mark.requirement("team.keys")
@pytest.mark.parametrize("end", ["", ".json"])
def test_a_revocation_that_cannot_be_read_at_once_is_read_later(
    folder: KeyFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    alice, bob = folder.create("alice"), folder.create("bob")
    age = 0.0
    keys = KeysInForce(folder, age=lambda: age)
    gone: list[frozenset[str]] = []
    keys.on_revoked.append(gone.append)
    folder.revoke("alice")
    files = Files(monkeypatch)
    files.error, files.end = errno.EMFILE, end
    for _ in range(3):
        keys.reload()
    assert keys.find(bob) is not None, "a lack of files revokes nobody"
    assert caplog.text.count("keys cannot be read again") == 1
    files.error = 0
    assert keys.find(bob) is not None
    age += module.KEYS_RETRY_INTERVAL
    assert keys.find(alice) is None and keys.find(bob) is not None, "without another change of the folder"
    assert gone == [frozenset({"alice"})]


def test_a_key_that_was_revoked_and_made_again_is_not_the_one_before_though_it_cannot_be_read(
    folder: KeyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, bob = folder.create("alice"), folder.create("bob")
    age = 0.0
    keys = KeysInForce(folder, age=lambda: age)
    gone: list[frozenset[str]] = []
    keys.on_revoked.append(gone.append)
    folder.revoke("alice")
    after = folder.create("alice")
    files = Files(monkeypatch)
    files.error, files.end = errno.EMFILE, ".json"
    keys.reload()
    assert keys.find(before) is None and keys.find(bob) is not None and gone == [frozenset({"alice"})]
    files.error = 0
    age = module.KEYS_RETRY_INTERVAL
    assert keys.find(after) is not None and keys.find(before) is None


@pytest.mark.requirement("team.keys")
def test_a_key_that_stays_unreadable_holds_up_no_revocation(folder: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob, carol = (folder.create(name) for name in ("alice", "bob", "carol"))
    keys = KeysInForce(folder)
    files = Files(monkeypatch)
    files.error, files.end = errno.EIO, "bob.json"
    folder.revoke("alice")
    keys.reload()
    assert keys.find(alice) is None and keys.find(bob) is not None and keys.find(carol) is not None
    folder.revoke("bob")
    keys.reload()
    assert keys.find(bob) is None


def test_keys_that_could_not_be_read_at_the_start_are_read_later(
    folder: KeyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, age = folder.create("alice"), 0.0
    files = Files(monkeypatch)
    files.error = errno.EMFILE
    keys = KeysInForce(folder, age=lambda: age)
    files.error = 0
    assert len(keys) == 0 and keys.find(token) is None, "strangers do not have the folder read each time"
    age += module.KEYS_RETRY_INTERVAL
    assert keys.find(token) is not None


def test_a_key_ends_at_its_time(folder: KeyFolder) -> None:
    token = folder.create("alice", expires=1000.0)
    now = 999.0
    keys = KeysInForce(folder, lambda: now)
    assert keys.find(token) is not None
    now = 1000.0
    assert keys.find(token) is None


def test_a_key_file_that_others_can_access_is_refused(folder: KeyFolder, caplog: pytest.LogCaptureFixture) -> None:
    token = folder.create("alice")
    file = Path(folder.path) / "alice.json"
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert KeysInForce(folder).find(token) is None
    assert "others may have read or written it" in caplog.text

    file.chmod(0o600)
    keys = KeysInForce(folder)
    Path(folder.path).chmod(0o777)
    with pytest.raises(KeyProblem, match="others may have written to it"):
        folder.records()
    keys.reload()
    assert keys.find(token) is not None, "what was in force stays so"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": "bob", "sha256": "", "created": 1}', b"\xff" * 100])
def test_a_damaged_key_does_not_keep_the_others_out(folder: KeyFolder, content: bytes) -> None:
    token = folder.create("alice")
    (Path(folder.path) / "broken.json").write_bytes(content)
    (Path(folder.path) / "broken.json").chmod(0o600)
    (Path(folder.path) / "link.json").symlink_to("alice.json")
    assert [record.name for record in folder.records()] == ["alice"]
    assert KeysInForce(folder).find(token) is not None


def test_without_a_folder_there_are_no_keys(folder: KeyFolder) -> None:
    assert folder.records() == [] and folder.fingerprint() is None
    assert len(KeysInForce(folder)) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(KeyProblem, match="cannot be written"):
        KeyFolder(str(tmp_path / "keys")).create("alice")


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    with pytest.raises(KeyProblem):
        KeyFolder(str(tmp_path / "keys")).create("alice")


@pytest.mark.parametrize("whose", ["folder", "file"])
def test_keys_that_belong_to_somebody_else_are_refused(
    folder: KeyFolder, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [folder.create(name) for name in ("alice", "bob")]
    own, asked = os.geteuid(), 0

    def somebody() -> int:
        """Who owns the folder, but not the file that is looked at last."""
        nonlocal asked
        asked += 1
        return own + 1 if whose == "folder" or asked == 3 else own

    monkeypatch.setattr(os, "geteuid", somebody)
    if whose == "folder":
        with pytest.raises(KeyProblem, match="others may have written to it"):
            folder.records()
        return
    keys = KeysInForce(folder)
    assert [keys.find(token) is not None for token in tokens] == [True, False]


def test_a_pipe_in_the_place_of_a_key_is_none(folder: KeyFolder) -> None:
    """Who opens it to read waits for somebody who writes."""
    os.mkfifo(Path(folder.path).parent.parent / "pipe", 0o600)
    token = folder.create("bob")
    os.rename(Path(folder.path).parent.parent / "pipe", folder._file("alice"))
    assert [record.name for record in folder.records()] == ["bob"]
    assert KeysInForce(folder).find(token) is not None


def test_invalid_key_file_does_not_hide_the_next_ones(folder: KeyFolder) -> None:
    token = folder.create("bob")
    Path(folder.path, "alice.txt").write_text("notes")
    assert [record.name for record in folder.records()] == ["bob"]
    assert KeysInForce(folder).find(token) is not None


def test_a_key_stands_until_keys_are_read_again_cannot_be_read_or_it_ends(folder: KeyFolder) -> None:
    now = 999.0
    tokens = [folder.create("alice"), folder.create("bob", expires=1000.0)]
    keys = KeysInForce(folder, lambda: now)
    records = [keys.find(token) for token in tokens]
    stands = [keys.standing(record) for record in records if record is not None]
    assert [each() for each in stands] == [True, True]
    now = 1000.0
    assert [each() for each in stands] == [True, False]
    Path(folder.path).chmod(0o777)
    keys.reload()
    uncertain = [keys.standing(record) for record in records if record is not None]
    assert [each() for each in (*stands, *uncertain)] == [False] * 4
    Path(folder.path).chmod(0o700)
    now = 999.0
    keys.reload()
    assert [each() for each in (*stands, *uncertain)] == [False] * 4, "what was found before is looked up again"
    assert all(keys.standing(record)() for record in records if record is not None)
