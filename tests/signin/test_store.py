"""The file of sign-ins: whose it may be, what it may be, and how long others may hold it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mcp_workbench.signin import refresh_turn, store_location
from mcp_workbench.signin import store as module
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore, WantedSignIn, lock_name
from mcp_workbench.signin.store_location import StoreUnusable

ISSUER = "https://auth.example"


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(str(tmp_path / "sign-ins"), keychain=False)


async def put(store: TokenStore, *servers: str) -> Contents:
    def change(contents: Contents) -> None:
        for server in servers:
            client = OAuthClient(issuer=ISSUER, id="app")
            contents.put(
                SignInRecord(
                    principal="",
                    server=server,
                    issuer=ISSUER,
                    client=client,
                    token_endpoint=f"{ISSUER}/token",
                    access_token=f"token of {server}",
                )
            )

    return await store.change(change)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
async def test_only_a_file_of_our_own_is_a_store(store: TokenStore, kind: str) -> None:
    await put(store, "https://one.example", "https://two.example")
    path = Path(store.path)
    kept = path.rename(path.with_name("kept"))
    match kind:
        case "link":
            path.symlink_to(kept)
        case "pipe":
            os.mkfifo(path, 0o600)
        case "folder":
            path.mkdir(mode=0o700)
        case "device":
            if os.geteuid():
                pytest.skip("only root makes devices")
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    before = os.lstat(path)
    with pytest.raises(StoreUnusable):
        store.read()
    with pytest.raises(StoreUnusable):
        await put(store, "https://three.example")
    assert os.lstat(path).st_ino == before.st_ino and "three" not in kept.read_text()
    assert [each.name for each in path.parent.iterdir() if each.suffix == ".new"] == []


async def test_a_lock_that_another_process_holds_is_not_waited_for_longer_than_allowed(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "https://one.example")
    before = Path(store.path).read_bytes()
    other = TokenStore(os.path.dirname(store.path), keychain=False)
    monkeypatch.setattr(module, "STORE_LOCK_TIMEOUT", 0.0)
    monkeypatch.setattr(module, "STORE_LOCK_POLL_INTERVAL", 0.001)
    async with other.locked("store", 0.0), other.refreshing("one", 0.0):
        with pytest.raises(StoreUnusable, match="another workbench has held"):
            await put(store, "https://two.example")
        with pytest.raises(StoreUnusable, match="another workbench has held"):
            async with store.refreshing("one", 0.0):
                pytest.fail("it is not our turn")
        async with store.refreshing("two", 0.0):
            assert Path(store.path).read_bytes() == before
    assert {each.server for each in (await put(store, "https://two.example")).records} == {
        "https://one.example",
        "https://two.example",
    }


def rewrite(store: TokenStore, text: str | bytes) -> Path:
    path = Path(store.path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o600)
    return path


def damaged(store: TokenStore) -> list[bytes]:
    return [each.read_bytes() for each in Path(store.path).parent.glob("sign-ins.json.damaged-*")]


async def test_file_and_folder_are_the_users_alone(store: TokenStore) -> None:
    # The umask takes bits away and would hide those that were given.
    mask = os.umask(0)
    try:
        await put(store, "https://one.example")
    finally:
        os.umask(mask)
    folder = Path(store.path).parent
    assert folder.stat().st_mode & 0o7777 == 0o700
    assert {each.name: each.stat().st_mode & 0o7777 for each in folder.iterdir()} == {
        "sign-ins.json": 0o600,
        "store.lock": 0o600,
    }


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o601, 0o610])
async def test_a_file_that_others_can_open_is_not_used(store: TokenStore, mode: int) -> None:
    await put(store, "https://one.example")
    before = Path(store.path).read_bytes()
    Path(store.path).chmod(mode)
    with pytest.raises(StoreUnusable, match="others can read the tokens"):
        store.read()
    with pytest.raises(StoreUnusable, match="others can read the tokens"):
        await put(store, "https://two.example")
    assert Path(store.path).read_bytes() == before


async def test_a_file_of_another_user_is_not_used(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(store, "https://one.example")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StoreUnusable, match="does not belong to you alone"):
        store.read()


async def test_a_file_of_the_largest_size_is_read_and_a_larger_one_set_aside(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "https://one.example", "https://two.example")
    content = Path(store.path).read_bytes()
    monkeypatch.setattr(module, "MAX_SIGN_IN_STORE_BYTES", len(content))
    assert [each.server for each in store.read().records] == ["https://one.example", "https://two.example"]
    rewrite(store, content + b" ")
    assert store.read() == Contents()
    assert damaged(store) == [content + b" "] and not Path(store.path).exists()


async def test_no_more_than_the_largest_size_is_read(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(store, "https://one.example")
    content = Path(store.path).read_bytes()
    monkeypatch.setattr(module, "MAX_SIGN_IN_STORE_BYTES", len(content))
    read: list[int] = []

    def decode(content: bytes, **_: object) -> Contents:
        read.append(len(content))
        return Contents()

    monkeypatch.setattr(module, "decode", decode)
    rewrite(store, content + b" " * 1000)
    store.read()
    assert read == [len(content) + 1]


async def test_a_file_of_a_newer_workbench_stays(store: TokenStore) -> None:
    await put(store, "https://one.example")
    newer = Path(store.path).read_bytes().replace(b'"format": 1', b'"format": 2')
    path = rewrite(store, newer)
    with pytest.raises(StoreUnusable, match="were written by a newer workbench"):
        await put(store, "https://two.example")
    assert path.read_bytes() == newer and damaged(store) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format":0}', '{"records":[{}]}', b"\xff", "[" * 100_000])
async def test_a_damaged_file_is_moved_and_sign_ins_go_on(store: TokenStore, text: str | bytes) -> None:
    path = rewrite(store, text)
    assert store.read() == Contents()
    assert damaged(store) == [text.encode() if isinstance(text, str) else text] and not path.exists()
    stored = await put(store, "https://one.example")
    assert store.read() == stored and [each.server for each in stored.records] == ["https://one.example"]


async def test_a_damaged_file_that_somebody_else_has_moved_already(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rewrite(store, "{")

    def decode(*_: object, **__: object) -> Contents:
        path.unlink()
        return Contents(format=0)

    monkeypatch.setattr(module, "decode", decode)
    assert store.read() == Contents()


async def test_the_stamp_tells_every_change(store: TokenStore) -> None:
    stamps = [store.stamp()]
    for server in ("https://one.example", "https://two.example"):
        await put(store, server)
        stamps.append(store.stamp())
        assert store.stamp() == stamps[-1]
    os.utime(store.path, ns=(1, 1))
    stamps.append(store.stamp())
    Path(store.path).write_bytes(b"{}")
    os.utime(store.path, ns=(1, 1))
    stamps.append(store.stamp())
    assert stamps[0] == (0, 0, 0) and len(set(stamps)) == 5


async def test_only_drafts_are_removed_with_a_write(store: TokenStore) -> None:
    await put(store, "https://one.example")
    folder = Path(store.path).parent
    for name in ("sign-ins.json.1-aa.new", "other.new", "sign-ins.json.damaged-1", "sign-ins.json.2-bb.new"):
        (folder / name).write_text("")
    await put(store, "https://two.example")
    assert sorted(each.name for each in folder.iterdir()) == [
        "other.new",
        "sign-ins.json",
        "sign-ins.json.damaged-1",
        "store.lock",
    ]


async def test_a_record_is_on_the_disk_before_its_file_takes_the_place(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, bytes]] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        steps.append(("fsync", Path(f"/proc/self/fd/{descriptor}").read_bytes()))
        fsync(descriptor)

    def replaced(draft: str, path: str) -> None:
        steps.append(("replace", Path(draft).read_bytes()))
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    await put(store, "https://one.example")
    content = Path(store.path).read_bytes()
    assert steps == [("fsync", content), ("replace", content)]
    assert content.endswith(b"\n") and b'\n "records": [\n  {\n' in content, "for people who look at it"


async def test_a_file_that_cannot_take_its_place_leaves_no_draft(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "https://one.example")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StoreUnusable, match="cannot be written: Operation not permitted"):
        await put(store, "https://two.example")
    assert sorted(each.name for each in Path(store.path).parent.iterdir()) == ["sign-ins.json", "store.lock"]


async def test_a_lock_is_waited_for_as_long_as_allowed(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STORE_LOCK_POLL_INTERVAL", 0.001)
    other = TokenStore(os.path.dirname(store.path), keychain=False)
    await put(other, "https://one.example")
    held = asyncio.Event()

    async def hold(until: asyncio.Event) -> None:
        async with other.locked("store", 0.0), other.refreshing("one", 0.0):
            held.set()
            await until.wait()

    end = asyncio.Event()
    holding = asyncio.create_task(hold(end))
    await held.wait()

    async def refresh() -> None:
        async with store.refreshing("one", 30.0):
            pass

    waiting = [asyncio.create_task(put(store, "https://two.example")), asyncio.create_task(refresh())]
    assert await asyncio.wait(waiting, timeout=0.05) == (set(), set(waiting))
    end.set()
    await holding
    await asyncio.gather(*waiting)
    assert [each.server for each in store.read().records] == ["https://one.example", "https://two.example"]


async def test_between_looks_at_a_lock_others_have_their_turn(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is looked at without a pause takes a whole core, and no other task ever runs."""
    looks = 0
    real = refresh_turn.try_lock

    def look(descriptor: int) -> bool:
        nonlocal looks
        looks += 1
        assert looks < 1000, "nobody else had a turn"
        return real(descriptor)

    monkeypatch.setattr(module, "try_lock", look)
    other = TokenStore(os.path.dirname(store.path), keychain=False)
    async with asyncio.TaskGroup() as tasks, other.refreshing("one", 0.0):
        waiting = tasks.create_task(store.refreshing("one", 30.0).__aenter__())
        await asyncio.sleep(0.05)
        assert 1 < looks < 20
        waiting.cancel()


def test_locks_of_principals_and_servers_differ() -> None:
    names = {lock_name(principal, server) for principal in ("", "a", "ab") for server in ("", "b", "bc", "c")}
    assert len(names) == 12 and {len(each) for each in names} == {32}


def test_a_challenge_is_one_for_each_principal_and_server() -> None:
    contents = Contents()
    for principal, server, challenge in (("a", "x", "1"), ("b", "x", "2"), ("a", "y", "3"), ("a", "x", "4")):
        contents.want(WantedSignIn(principal=principal, server=server, challenge=challenge))
    assert [each.challenge for each in contents.wanted] == ["2", "3", "4"]
    found = contents.wanted_at("a", "x")
    assert found is not None and found.challenge == "4"
    contents.satisfy("b", "x")
    assert [each.challenge for each in contents.wanted] == ["3", "4"] and contents.wanted_at("b", "x") is None


def test_a_registration_is_one_for_each_issuer() -> None:
    contents = Contents()
    for issuer, id in (("x", "1"), ("y", "2"), ("x", "3")):
        contents.put_client(OAuthClient(issuer=issuer, id=id))
    assert {issuer: client.id for issuer, client in contents.clients_by_issuer().items()} == {"y": "2", "x": "3"}


def test_the_store_is_in_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_location, "folder", lambda: str(tmp_path))
    assert TokenStore().path == str(tmp_path / "sign-ins.json")
    assert [TokenStore(keychain=each).is_sealed for each in (True, False, None)] == [True, False, False]
