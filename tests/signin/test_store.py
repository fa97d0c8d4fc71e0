"""The file of sign-ins: whose it may be, what it may be, and how long others may hold it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.signin import store as module
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore
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
    monkeypatch.setattr(module, "LOCK_LOOK_SECONDS", 0.001)
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
