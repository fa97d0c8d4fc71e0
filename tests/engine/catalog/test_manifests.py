"""What is remembered of servers: whole or not at all, whoever writes and whatever lies on the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.catalog import manifests
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import FORMAT, ManifestStore, default_folder, identity_of, manifest_key
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.auth_settings import ForwardedIdentityConfig, TokenExchangeConfig
from mcp_workbench.engine.config.model import ServerConfig, ServerContext
from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.engine.protocol.revisions import Era, SpokenEras

SERVER = ServerConfig(name="server", command="npx", args=("-y", "thing"), env={"A": "1", "B": "2"}, cwd="/tmp")
KEY = manifest_key(SERVER)
TOOL = Raw(b'{"name":"read","inputSchema":{"type":"object","x":1.10},"x-unknown":[1, null]}')
OFFER = Offer(
    ServerProfile("legacy", "2025-11-25", Raw(b'{"tools":{}}'), Raw(b'{"name":"s"}'), "Be kind."),
    {"tools": {"read": TOOL, "écrire": Raw('{"name":"écrire"}'.encode())}, "prompts": {}},
)
PROFILE = {"era": "legacy", "version": "2025-11-25"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "manifests"


@pytest.fixture
def store(folder: Path) -> ManifestStore:
    return ManifestStore(lambda: str(folder))


def remembered(store: ManifestStore) -> dict[str, Any] | None:
    offer = store.load(KEY)
    return None if offer is None else {kind: dict(items) for kind, items in offer.lists.items()}


def test_asking_servers_are_remembered_with_any_offer(store: ManifestStore, folder: Path) -> None:
    entry = ServerEntry("box", SERVER, store)
    entry.learn(OFFER)
    assert not entry.asks
    entry.note_asking()
    # Somebody who does not know it yet says what the server offers now.
    store.save(KEY, OFFER)
    for first in ("load", "learn"):
        again = ServerEntry("box", SERVER, ManifestStore(lambda: str(folder)))
        assert again.load_manifest() if first == "load" else again.learn(OFFER)
        assert again.asks
    other = ServerEntry("box", replace(SERVER, args=("another",)), store)
    other.learn(OFFER)
    assert not other.asks
    forgetful = ServerEntry("box", SERVER, ManifestStore(lambda: None))
    forgetful.note_asking()
    assert forgetful.asks and forgetful.load_manifest() is None


def test_an_offer_comes_back_byte_for_byte(store: ManifestStore) -> None:
    assert store.load(KEY) is None
    store.save(KEY, OFFER)
    found = store.load(KEY)
    assert found is not None
    assert found.profile == OFFER.profile
    assert [(name, bytes(tool)) for name, tool in found.tools.items()] == [
        (name, bytes(tool)) for name, tool in OFFER.tools.items()
    ]


def test_manifest_is_readable_by_another_process(store: ManifestStore, folder: Path) -> None:
    store.save(KEY, OFFER)
    assert ManifestStore(lambda: str(folder)).load(KEY) == store.load(KEY)


def test_manifests_are_readable_by_their_user_only(store: ManifestStore, folder: Path) -> None:
    store.save(KEY, OFFER)
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0
    assert b'"2"' not in file.read_bytes(), "values of the environment are in the hash only"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"garbage",
        b'{"format":1}',
        b"[" * 100_000,
        json.dumps({"format": FORMAT, "key": KEY}).encode(),
        json.dumps(
            {"format": FORMAT, "key": KEY, "profile": {"era": "stone age", "version": "1"}, "lists": {}}
        ).encode(),
        json.dumps({"format": FORMAT, "key": KEY, "profile": 5, "lists": {}}).encode(),
        json.dumps({"format": FORMAT, "key": KEY, "profile": {**PROFILE, "capabilities": []}, "lists": {}}).encode(),
    ],
)
def test_a_corrupt_manifest_is_none_and_is_rewritten(store: ManifestStore, folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True)
    path = folder / f"{KEY}.json"
    path.write_bytes(content)
    assert store.load(KEY) is None
    store.save(KEY, OFFER)
    assert store.load(KEY) is not None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_file_of_our_own_is_a_manifest(store: ManifestStore, folder: Path, kind: str) -> None:
    store.save(KEY, OFFER)
    store.save_blob("index", b"data")
    for path in (folder / f"{KEY}.json", folder / "index.bin"):
        path.rename(path.with_suffix(".kept"))
        match kind:
            case "link":
                path.symlink_to(path.with_suffix(".kept"))
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
    assert store.load(KEY) is None and store.load_blob("index") is None
    assert (folder / "index.kept").read_bytes() == b"data"


@pytest.mark.parametrize("change", [{"format": FORMAT + 1}, {"format": 0}, {"key": "another server's"}])
def test_a_foreign_manifest_is_none(store: ManifestStore, folder: Path, change: dict[str, Any]) -> None:
    store.save(KEY, OFFER)
    path = folder / f"{KEY}.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    assert store.load(KEY) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_damaged_manifest_is_read_as_something_or_as_none(
    store: ManifestStore, folder: Path, data: st.DataObject
) -> None:
    store.save(KEY, OFFER)
    path = folder / f"{KEY}.json"
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    offer = store.load(KEY)
    assert offer is None or offer.profile.era in ("legacy", "modern")


def test_entries_without_a_usable_name_are_left_out(store: ManifestStore, folder: Path) -> None:
    store.save(KEY, OFFER)
    path = folder / f"{KEY}.json"
    content = json.loads(path.read_bytes())
    content["lists"]["tools"] += [{}, {"name": 5}, {"name": ""}, None, {"name": "read", "second": True}]
    path.write_text(json.dumps(content))
    found = store.load(KEY)
    assert found is not None and list(found.tools) == ["read", "écrire"]
    assert b"second" not in bytes(found.tools["read"])


@pytest.mark.parametrize("obstacle", ["a file where the folder should be", "a folder where the file should be"])
def test_a_disk_that_cannot_be_written_is_no_reason_to_fail(store: ManifestStore, folder: Path, obstacle: str) -> None:
    if obstacle.startswith("a file"):
        folder.parent.mkdir(parents=True)
        folder.write_text("in the way")
    else:
        (folder / f"{KEY}.json").mkdir(parents=True)
    store.save(KEY, OFFER)
    assert store.load(KEY) is None
    if folder.is_dir():
        assert [entry.name for entry in folder.iterdir()] == [f"{KEY}.json"], "no draft is left"


def test_full_disk_keeps_the_previous_file_and_leaves_no_draft(
    store: ManifestStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(KEY, OFFER)
    before = remembered(store)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store.save(KEY, Offer(OFFER.profile, {"tools": {}}))
    assert remembered(store) == before
    assert len(list(folder.iterdir())) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_the_same_as_none(store: ManifestStore, folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    try:
        store.save(KEY, OFFER)
        assert store.load(KEY) is None
    finally:
        folder.chmod(0o700)


def test_a_list_that_is_too_large_is_not_remembered(store: ManifestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MAX_MANIFEST_BYTES", 1000)
    huge = Offer(OFFER.profile, {"tools": {"t": Raw(b'{"name":"t","x":"' + b"y" * 2000 + b'"}')}})
    store.save(KEY, huge)
    assert store.load(KEY) is None


def test_without_a_folder_nothing_is_remembered_and_nothing_fails() -> None:
    store = ManifestStore(lambda: None)
    assert store.save(KEY, OFFER) == store.state(KEY) == ""
    store.save_asks(KEY)
    store.save_has_skills(KEY)
    store.note_listed(KEY)
    store.drop_users()
    assert store.load(KEY) is None and not store.load_asks(KEY) and not store.has_skills(KEY)
    assert store.age(KEY) == float("inf") and store.is_empty is True


def test_state_differs_between_offers(store: ManifestStore) -> None:
    states = {store.state(KEY)}
    for instructions in ("Be kind.", "Be brief."):
        states.add(store.save(KEY, replace(OFFER, profile=replace(OFFER.profile, instructions=instructions))))
        assert store.state(KEY) in states
    assert len(states) == 3 and "" in states


def test_store_is_empty_until_something_is_saved(store: ManifestStore, folder: Path) -> None:
    assert store.is_empty
    folder.mkdir(parents=True)
    assert store.is_empty
    store.save_blob("index", b"x")
    assert not store.is_empty


def test_what_is_recorded_of_one_server_is_not_of_another(store: ManifestStore) -> None:
    kinds = (
        (ManifestStore.save_asks, ManifestStore.load_asks),
        (ManifestStore.save_has_skills, ManifestStore.has_skills),
        (ManifestStore.save_depends_on_folder, ManifestStore.depends_on_folder),
    )
    for number, (save, _) in enumerate(kinds):
        save(store, f"server-{number}")
    for number in range(3):
        assert [load(store, f"server-{number}") for _, load in kinds] == [each == number for each in range(3)]


def test_that_a_server_has_skills_is_written_once(store: ManifestStore, folder: Path) -> None:
    store.save_has_skills(KEY)
    (name,) = names_in(folder)
    first = (folder / name).stat().st_ino
    store.save_has_skills(KEY)
    assert (folder / name).stat().st_ino == first


def test_age_of_an_offer_begins_when_it_is_listed(store: ManifestStore, folder: Path) -> None:
    assert store.age(KEY) == float("inf")
    store.note_listed(KEY)
    assert store.age(KEY) < 3600 and store.age("another") == float("inf")
    (name,) = names_in(folder)
    left_alone(folder / name, 2)
    assert 2 * 86400 <= store.age(KEY) < 2 * 86400 + 3600
    # A clock that was set back.
    left_alone(folder / name, -2)
    assert store.age(KEY) == 0.0


# What nobody uses


def left_alone(path: Path, days: float) -> Path:
    """A file that nobody has touched for so many days."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(b"{}")
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("saves", ["a manifest", "a blob"])
def test_saving_drops_manifests_unused_for_long(store: ManifestStore, folder: Path, saves: str) -> None:
    for name in ("old.json", "old.bin", "old.json.7-ab.new", "a note of the user's.txt"):
        left_alone(folder / name, 91)
    left_alone(folder / "resting.json", 89)
    if saves == "a blob":
        store.save_blob("index", b"x")
    else:
        store.save(KEY, OFFER)
    saved = "index.bin" if saves == "a blob" else f"{KEY}.json"
    assert names_in(folder) == sorted([saved, "a note of the user's.txt", "resting.json"])


def test_reading_a_manifest_counts_as_use(store: ManifestStore, folder: Path) -> None:
    store.save(KEY, OFFER)
    store.save_blob("index", b"x")
    for name in names_in(folder):
        left_alone(folder / name, 200)
    assert store.load(KEY) is not None and store.load_blob("index") == b"x"
    ManifestStore(lambda: str(folder)).save("another", OFFER)
    assert names_in(folder) == sorted([f"{KEY}.json", "another.json", "index.bin"])


@pytest.mark.parametrize("use", [ManifestStore.state, ManifestStore.load])
def test_a_use_that_is_noted_does_not_change_the_state(
    store: ManifestStore, folder: Path, use: Callable[[ManifestStore, str], object]
) -> None:
    written = store.save(KEY, OFFER)
    assert written and store.state(KEY) == written
    path = left_alone(folder / f"{KEY}.json", 2)
    changed = path.stat().st_mtime_ns
    use(store, KEY)
    assert (path.stat().st_mtime_ns, path.stat().st_atime > time.time() - 3600) == (changed, True)


def test_reading_writes_to_the_disk_only_once_in_a_while(
    store: ManifestStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(KEY, OFFER)
    left_alone(folder / f"{KEY}.json", 2)
    noted: list[object] = []
    utime = os.utime

    def counted(descriptor: int, ns: tuple[int, int]) -> None:
        noted.append(descriptor)
        utime(descriptor, ns=ns)

    monkeypatch.setattr(os, "utime", counted)
    for _ in range(3):
        assert store.load(KEY) is not None
    assert len(noted) == 1


def test_unused_manifests_are_looked_for_once_a_day(store: ManifestStore, folder: Path) -> None:
    store.save(KEY, OFFER)
    left_alone(folder / "old.json", 91)
    store.save(KEY, OFFER)
    assert (folder / "old.json").exists()
    assert store._looked_at is not None
    store._looked_at -= manifests.LOOKED_AFTER + 1
    store.save(KEY, OFFER)
    assert not (folder / "old.json").exists()


def test_a_full_folder_is_emptied_in_small_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MAX_EXAMINED_MANIFESTS", 10)
    monkeypatch.setattr(manifests, "MAX_DROPPED_MANIFESTS", 4)
    # Wherever a step begins, it meets some of the old.
    for number in range(50):
        left_alone(folder / f"{number}.json", 91)
    left = 50
    while left:
        ManifestStore(lambda: str(folder)).save_blob("new", b"x")
        now_left = len(names_in(folder)) - 1
        assert left - manifests.MAX_DROPPED_MANIFESTS <= now_left < left
        left = now_left


# What belongs to other users


def saved_for_users(store: ManifestStore, folder: Path, *days: float) -> list[str]:
    """An offer for each of these users, unused for so many days."""
    keys = [manifest_key(SERVER, principal=f"user {number}") for number in range(len(days))]
    for key, unused in zip(keys, days, strict=True):
        store.save(key, OFFER)
        left_alone(folder / f"{key}.json", unused)
    return keys


def test_offers_to_users_are_bounded_and_the_least_used_go_first(
    store: ManifestStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(KEY, OFFER)
    left_alone(folder / f"{KEY}.json", 80)
    keys = saved_for_users(store, folder, 3, 9, 1, 5)
    monkeypatch.setattr(manifests, "MAX_USER_MANIFESTS", 3)
    monkeypatch.setattr(manifests, "COUNTED_AFTER", 2)
    kept = {f"{KEY}.json", *(f"{key}.json" for key in keys)}
    # Counted with every second one that is saved, and the one that is saved is the fifth.
    assert store._saved_of_users == 4
    store.save("user-new", OFFER)
    kept = (kept | {"user-new.json"}) - {f"{keys[1]}.json", f"{keys[3]}.json"}
    assert set(names_in(folder)) == kept
    store.save("user-newer", OFFER)
    store.save("an owner's", OFFER)
    assert set(names_in(folder)) == kept | {"user-newer.json", "an owner's.json"}
    store.save("user-newest", OFFER)
    kept = {f"{KEY}.json", "an owner's.json", "user-new.json", "user-newer.json", "user-newest.json"}
    assert set(names_in(folder)) == kept


def test_all_that_users_were_offered_can_be_dropped(store: ManifestStore, folder: Path) -> None:
    store.save(KEY, OFFER)
    keys = saved_for_users(store, folder, 1, 2)
    store.save_asks(keys[1])
    store.drop_users()
    assert names_in(folder) == [f"{KEY}.json"]


def test_a_manifest_that_cannot_be_deleted_is_skipped(store: ManifestStore, folder: Path) -> None:
    left_alone(folder / "folder.json" / "inside", 91)
    left_alone(folder / "folder.json", 91)
    left_alone(folder / "old.json", 91)
    store.save(KEY, OFFER)
    assert names_in(folder) == sorted([f"{KEY}.json", "folder.json"])


# Writes the same two keys again and again, with contents by which every reader can tell whether they are whole.
WRITER = """
import sys
from msgspec import Raw
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.protocol.handshake import ServerProfile
folder, own, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = ManifestStore(lambda: folder)
written = b'{"name":"tool_%d","writer":"%b","x":"%b"}'
tools = {f"tool_{n}": Raw(written % (n, own.encode(), b"y" * 500)) for n in range(200)}
offer = Offer(ServerProfile("legacy", "2025-11-25", instructions=own), {"tools": tools})
for _ in range(rounds):
    store.save("shared", offer)
    found = store.load("shared")
    assert found is not None and len(found.tools) == 200
    writers = {bytes(tool).split(b'"writer":"')[1][:1].decode() for tool in found.tools.values()}
    assert writers == {found.profile.instructions}, writers
    store.save(own, offer)
"""


@pytest.mark.requirement("manifests.safe")
@pytest.mark.processes
def test_processes_that_write_at_once_lose_nothing(folder: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), own, "150"], stderr=subprocess.PIPE)
        for own in ("a", "b", "c")
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (0, b"")
    assert sorted(entry.name for entry in folder.iterdir()) == ["a.json", "b.json", "c.json", "shared.json"]


# Keys


@pytest.mark.parametrize(
    "change",
    [
        {"command": "uvx"},
        {"args": ("-y", "other")},
        {"args": ("-y thing",)},
        {"env": {"A": "1", "B": "3"}},
        {"env": {"A": "1"}},
        {"cwd": "/"},
        {"protocol": "legacy"},
        {"transport": "http", "command": None, "url": "https://example.test"},
        {"forward_identity": ForwardedIdentityConfig()},
        {"token_exchange": TokenExchangeConfig(audience="a")},
    ],
)
def test_another_server_has_another_key(change: dict[str, Any]) -> None:
    assert manifest_key(replace(SERVER, **change)) != KEY


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"env": {"B": "2", "A": "1"}},
        {"tool_filters": ("x",)},
        {"timeout": 1.0},
        {"startup_timeout": 1.0},
        {"idle_timeout": None},
    ],
)
def test_settings_that_do_not_affect_the_offer_do_not_change_the_key(change: dict[str, Any]) -> None:
    assert manifest_key(replace(SERVER, **change)) == KEY


def test_a_key_is_a_file_name_that_tells_nothing() -> None:
    secret = manifest_key(replace(SERVER, env={"TOKEN": "../../secret"}))
    assert secret.isalnum() and len(secret) == 64


# Where


def test_a_path_that_is_not_unicode_counts_as_any_other() -> None:
    keys = {manifest_key(replace(SERVER, args=(f"/srv/{name}",))) for name in ("\udc80", "\udc81", "a")}
    assert len(keys) == 3 and all(len(key) == 64 for key in keys)


def test_of_a_sign_in_only_the_account_counts() -> None:
    settings = [None, OAuthConfig(client_id="app"), OAuthConfig(account="work"), OAuthConfig(account="home")]
    keys = [manifest_key(replace(SERVER, oauth=oauth)) for oauth in settings]
    assert keys[0] == keys[1] and len(set(keys)) == 3


def test_the_folder_is_the_users_cache(cache_folder: Path) -> None:
    assert default_folder() == str(cache_folder / "mcp-workbench" / "manifests")


@pytest.mark.parametrize("cache", [None, "", "relative"])
def test_without_a_cache_of_its_own_the_folder_is_in_the_home(
    cache: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if cache is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert default_folder() == str(tmp_path / ".cache" / "mcp-workbench" / "manifests")


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_without_a_home_nothing_is_written_into_the_working_directory(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
    # As for a user id that is in no user database.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    folder = default_folder()
    assert folder is None or os.path.isabs(folder)
    ManifestStore(default_folder).save(KEY, OFFER)
    assert list(tmp_path.iterdir()) == []


def test_a_program_is_another_one_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = ServerConfig(name="local", command="./server")
    keys = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        keys.add(manifest_key(local))
        # With a folder of its own it is the same everywhere, and so is an address.
        assert manifest_key(SERVER) == KEY
    assert len(keys) == 2


def entry_in(folder: str, store: ManifestStore) -> ServerEntry:
    return ServerEntry("box", ServerConfig(name="tasks", command="tasks"), store, ServerContext(folder=folder))


def test_a_server_that_offers_something_else_in_another_folder_has_a_manifest_for_each(store: ManifestStore) -> None:
    other = replace(OFFER, lists={"tools": {"build": Raw(b'{"name":"build"}')}})
    for folder, offer in (("/one", OFFER), ("/two", other), ("/one", OFFER)):
        entry = entry_in(folder, store)
        entry.load_manifest()
        entry.learn(offer)
    found = {folder: entry_in(folder, store).load_manifest() for folder in ("/one", "/two", "/three")}
    assert {folder: None if offer is None else list(offer.tools) for folder, offer in found.items()} == {
        "/one": ["read", "écrire"],
        "/two": ["build"],
        "/three": None,
    }


@pytest.mark.parametrize("is_upgrade", [True, False], ids=["upgrade", "same-folder"])
def test_other_changes_of_an_offer_do_not_separate_folders(store: ManifestStore, is_upgrade: bool) -> None:
    entry_in("/one", store).learn(OFFER)
    profile = replace(OFFER.profile, server_info=Raw(b'{"name":"s","version":"2"}')) if is_upgrade else OFFER.profile
    entry = entry_in("/two" if is_upgrade else "/one", store)
    entry.load_manifest()
    entry.learn(replace(OFFER, profile=profile, lists={"tools": {"build": Raw(b'{"name":"build"}')}}))
    offer = entry_in("/three", store).load_manifest()
    assert offer is not None and list(offer.tools) == ["build"]


def test_definitions_written_in_another_order_do_not_separate_folders(store: ManifestStore) -> None:
    for folder, written in (
        ("/one", {"read": '{"name":"read","title":"Read"}', "add": '{"name":"add"}'}),
        ("/two", {"add": '{"name": "add"}', "read": '{"title":"Read","name":"read"}'}),
    ):
        entry = entry_in(folder, store)
        entry.load_manifest()
        entry.learn(replace(OFFER, lists={"tools": {name: Raw(text.encode()) for name, text in written.items()}}))
    offer = entry_in("/three", store).load_manifest()
    assert offer is not None and offer.tools.keys() == {"add", "read"}


def test_an_address_is_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = ServerConfig(name="remote", url="https://a.b/mcp", transport="auto")
    before = manifest_key(remote)
    monkeypatch.chdir(tmp_path)
    assert manifest_key(remote) == before
    assert identity_of(remote, "/one") == identity_of(remote, "/two")


def test_a_folder_that_is_gone_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert manifest_key(ServerConfig(name="local", command="./server"))


# ── the eras of a server ──


def entry_of(store: ManifestStore) -> ServerEntry:
    return ServerEntry("box", SERVER, store)


def listed(entry: ServerEntry, era: Era, eras: SpokenEras, version: str = "1", **capabilities: dict[str, Any]) -> None:
    """The handshake is done, and the server has listed what it offers."""
    info = Raw(json.dumps({"name": "s", "version": version}).encode())
    revision = "2025-11-25" if era == "legacy" else "2026-07-28"
    profile = ServerProfile(era, revision, Raw(json.dumps(capabilities).encode()), info, eras=eras)
    entry.on_handshake(profile)
    entry.learn(Offer(profile, OFFER.lists))


def test_that_a_server_speaks_both_eras_is_remembered(store: ManifestStore) -> None:
    entry = entry_of(store)
    listed(entry, "legacy", SpokenEras(legacy=True))
    listed(entry, "modern", SpokenEras(modern=True))
    again = entry_of(store)
    assert again.eras == SpokenEras()
    again.load_manifest()
    assert again.eras == SpokenEras(legacy=True, modern=True)


def test_an_era_that_was_tried_in_vain_is_remembered_until_the_server_says_that_it_is_another(
    store: ManifestStore,
) -> None:
    listed(entry_of(store), "legacy", SpokenEras(legacy=True, modern=False))
    entry = entry_of(store)
    entry.load_manifest()
    listed(entry, "legacy", SpokenEras(legacy=True))
    assert entry.eras.modern is False
    listed(entry, "legacy", SpokenEras(legacy=True), version="2")
    assert entry.eras.modern is None


def test_capabilities_declared_only_in_the_modern_era_stay_known(store: ManifestStore) -> None:
    entry = entry_of(store)
    listed(entry, "modern", SpokenEras(modern=True), tools={}, extensions={"x": {}})
    listed(entry, "legacy", SpokenEras(legacy=True), tools={})
    assert "extensions" in entry.capabilities
    listed(entry, "legacy", SpokenEras(legacy=True), version="2", tools={})
    assert "extensions" not in entry.capabilities


def test_a_manifest_from_before_eras_were_remembered_is_read(store: ManifestStore, folder: Path) -> None:
    store.save(KEY, OFFER)
    (file,) = folder.glob("*.json")
    written = json.loads(file.read_text())
    del written["profile"]["eras"]
    file.write_text(json.dumps(written))
    entry = entry_of(store)
    assert entry.load_manifest() is not None
    assert entry.eras == SpokenEras()
