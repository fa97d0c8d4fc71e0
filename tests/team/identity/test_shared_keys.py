"""Named keys of a cluster: each machine has a folder of its own, and all of them the same keys."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.json import encode

from mcp_workbench.engine.lasting_state import NAMED_KEY, REVOKED_KEY
from mcp_workbench.team.identity.named_keys import KeyFolder, KeyRecord, KeysInForce, digest
from mcp_workbench.team.identity.shared_keys import SharedKeys
from tests.support.shared_state import SharedServer


class Machine:
    def __init__(self, folder: Path, server: SharedServer) -> None:
        self.folder = KeyFolder(str(folder))
        self.server = server
        self.revoked: list[str] = []
        self.start()

    def start(self) -> None:
        """A workbench, which has read nothing of the state yet."""
        elsewhere = SharedKeys(self.server.instance(), self.folder, lambda: self.keys.reload())
        self.keys = KeysInForce(self.folder, elsewhere=elsewhere)
        self.keys.on_revoked.append(lambda names: self.revoked.extend(names))

    def accepts(self, token: str) -> bool:
        return self.keys.find(token) is not None

    def create(self, name: str) -> str:
        token = self.folder.create(name)
        self.look()
        return token

    def look(self) -> None:
        """The folder has changed."""
        self.keys.reload()
        self.server.settle()

    def revoke(self, name: str) -> None:
        assert self.folder.revoke(name)
        self.look()


@pytest.fixture
def server() -> SharedServer:
    return SharedServer()


@pytest.fixture
def here(tmp_path: Path, server: SharedServer) -> Machine:
    return Machine(tmp_path / "here", server)


@pytest.fixture
def there(tmp_path: Path, server: SharedServer, here: Machine) -> Machine:
    return Machine(tmp_path / "there", server)


def test_key_created_on_one_machine_is_valid_on_all(here: Machine, there: Machine) -> None:
    token = here.create("ann")
    assert there.accepts(token)
    assert [each.name for each in there.folder.records()] == ["ann"], "listed there as well"
    assert token.encode() not in b"".join(here.server.values.values()), "nothing but its hash is shared"


def test_revoked_key_is_refused_on_all_and_can_be_made_again(here: Machine, there: Machine) -> None:
    old = here.create("ann")
    there.revoke("ann")
    assert not here.accepts(old) and not there.accepts(old)
    assert here.revoked == ["ann"], "its sessions end there"
    new = here.create("ann")
    for machine in (here, there):
        assert machine.accepts(new)
        assert not machine.accepts(old)


def test_file_that_was_deleted_is_revoked_on_all(here: Machine, there: Machine) -> None:
    token = here.create("ann")
    os.unlink(Path(there.folder.path, "ann.json"))
    there.look()
    assert not here.accepts(token)


def test_folder_that_is_gone_revokes_nothing(here: Machine, there: Machine) -> None:
    token = here.create("ann")
    shutil.rmtree(there.folder.path)
    there.look()
    assert here.accepts(token)
    assert there.accepts(token), "known by the others"


def test_known_keys_stay_valid_while_the_state_is_away(here: Machine, there: Machine) -> None:
    known, kept = here.create("known"), here.create("kept")
    here.server.is_away = True
    new = here.create("new")
    here.revoke("known")
    assert not here.accepts(known) and here.accepts(new)
    assert there.accepts(known) and not there.accepts(new), "not told yet"
    here.server.come_back()
    for machine in (here, there):
        assert not machine.accepts(known)
        assert machine.accepts(new)
        assert machine.accepts(kept)


def test_state_that_lost_everything_is_filled_again(here: Machine, there: Machine, tmp_path: Path) -> None:
    kept, gone = here.create("kept"), here.create("gone")
    there.revoke("gone")
    here.server.come_back(is_empty=True)
    third = Machine(tmp_path / "third", here.server)
    here.server.settle()
    assert third.accepts(kept) and not third.accepts(gone)


def test_machine_that_was_off_does_not_bring_a_revoked_key_back(here: Machine, there: Machine, tmp_path: Path) -> None:
    token = here.create("ann")
    backup = tmp_path / "backup"
    shutil.copytree(there.folder.path, backup)
    here.revoke("ann")
    third = Machine(backup, here.server)
    here.server.settle()
    assert not any(machine.accepts(token) for machine in (here, there, third))


def test_revocation_while_no_workbench_ran_counts_when_one_starts(here: Machine, there: Machine) -> None:
    token = here.create("ann")
    here.server.instances.pop(0)
    # By the command, which knows nothing of clusters.
    assert here.folder.revoke("ann")
    assert there.accepts(token)
    here.start()
    here.server.settle()
    assert not there.accepts(token)
    assert not here.accepts(token)


def test_record_put_back_by_the_state_server_makes_no_revoked_key_valid(here: Machine, there: Machine) -> None:
    token = here.create("ann")
    before = dict(here.server.values)
    here.revoke("ann")
    # As it was before: the record is there, the revocation is not.
    here.server.values = before
    here.server.settle()
    assert not here.accepts(token) and not there.accepts(token)
    assert (REVOKED_KEY, "", digest(token)) in here.server.values, "and those who know of it say so again"


def test_of_two_keys_with_one_name_the_last_is_valid_everywhere(here: Machine, there: Machine) -> None:
    here.server.is_away = True
    first, last = here.create("ann"), there.create("ann")
    here.server.come_back()
    for machine in (here, there):
        assert not machine.accepts(first)
        assert machine.accepts(last)
        assert [each.sha256 for each in machine.folder.records()] == [digest(last)]


@pytest.mark.parametrize("name", ["local", "../ann", "ann"])
def test_record_that_cannot_be_a_key_is_ignored(here: Machine, name: str) -> None:
    sha256 = digest("wbk_token") if name != "ann" else digest("another")
    record = KeyRecord(name=name, sha256=digest("wbk_token"), created=1.0)
    here.server.values[NAMED_KEY, "", sha256] = encode(record)
    here.server.settle()
    assert not here.accepts("wbk_token")
    assert not here.folder.records()


def test_folder_that_cannot_be_written_hides_no_key_and_no_revocation(
    here: Machine, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*of: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("_write", "note_revoked", "remove"):
        monkeypatch.setattr(there.folder, name, fail)
    token = here.create("ann")
    assert there.accepts(token)
    here.revoke("ann")
    assert not there.accepts(token)
