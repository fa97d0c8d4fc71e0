"""Sign-ins encrypted under a key in the keychain: no silent change of store, and nothing lost when the key is away."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.signin import store_location
from mcp_workbench.signin.sign_ins import SignIns
from mcp_workbench.signin.store import TokenStore
from mcp_workbench.signin.store_location import SEALED_HEAD, StoreUnusable, may_hold
from mcp_workbench.signin.token_encryption import seal
from tests.cli.in_process import run
from tests.signin.authority import SignInSetup, sign_in_setup
from tests.support import fake_keyring

pytestmark = pytest.mark.processes


def chain(tmp_path: Path, fault: str = "") -> dict[str, str]:
    return {**os.environ, **fake_keyring.environment(tmp_path / "keys", fault)}


def store(tmp_path: Path, keychain: bool | None = None, fault: str = "") -> TokenStore:
    return TokenStore(str(tmp_path / "sign-ins"), keychain=keychain, environ=chain(tmp_path, fault))


@asynccontextmanager
async def signed_in(tmp_path: Path, keychain: bool | None) -> AsyncIterator[SignInSetup]:
    async with sign_in_setup(tmp_path) as at:
        yield with_store(at, store(tmp_path, keychain))


def with_store(at: SignInSetup, kept: TokenStore) -> SignInSetup:
    sign_ins = SignIns(lambda: at.client, kept)
    return SignInSetup(at.authority, at.server, at.client, sign_ins, at.target, sign_ins.source(at.target, {}))


def content(tmp_path: Path) -> bytes:
    return (tmp_path / "sign-ins" / "sign-ins.json").read_bytes()


@pytest.mark.requirement("signin.keychain")
async def test_nothing_of_a_sign_in_can_be_read_and_everything_works(tmp_path: Path) -> None:
    async with signed_in(tmp_path, keychain=True) as at:
        await at.log_in()
        assert await at.call() == 200
        assert content(tmp_path).startswith(SEALED_HEAD)
        for secret in (b"access-1", b"refresh-1", b"client-1", b"127.0.0.1"):
            assert secret not in content(tmp_path)
        (key,) = json.loads((tmp_path / "keys").read_text())
        assert key == "mcp-workbench/master-key"
        restarted = with_store(at, store(tmp_path, keychain=True))
        assert await restarted.call() == 200
        # One that was told nothing uses it as it is, and leaves it so.
        careless = with_store(at, store(tmp_path))
        assert await careless.call() == 200
        await careless.log_in()
        assert content(tmp_path).startswith(SEALED_HEAD)


async def test_whether_there_is_a_sign_in_is_known_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_location, "folder", lambda: str(tmp_path / "sign-ins"))
    async with signed_in(tmp_path, keychain=True) as at:
        assert not may_hold(at.target.url)
        await at.log_in()
        assert may_hold(at.target.url) and not may_hold("https://elsewhere.example/mcp")


def test_a_path_that_is_not_a_file_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_location, "folder", lambda: str(tmp_path))
    os.mkfifo(tmp_path / "sign-ins.json")
    assert not may_hold("https://a.example")


@pytest.mark.requirement("signin.keychain")
async def test_sign_ins_in_the_clear_are_not_turned_by_the_way(tmp_path: Path) -> None:
    async with signed_in(tmp_path, keychain=None) as at:
        await at.log_in()
        before = content(tmp_path)
        insisting = with_store(at, store(tmp_path, keychain=True))
        with pytest.raises(
            StoreUnusable, match="are not encrypted, and the configuration says `keychain: true`"
        ) as told:
            await insisting.call()
        assert "mcp-workbench auth --encrypt" in (told.value.hint or "")
        with pytest.raises(StoreUnusable):
            await insisting.log_in()
        assert content(tmp_path) == before
        await store(tmp_path).convert(sealed=True)
        assert content(tmp_path).startswith(SEALED_HEAD)
        assert await insisting.call() == 200


async def test_nor_the_other_way_round(tmp_path: Path) -> None:
    async with signed_in(tmp_path, keychain=True) as at:
        await at.log_in()
        before = content(tmp_path)
        refusing = with_store(at, store(tmp_path, keychain=False))
        with pytest.raises(StoreUnusable, match="are encrypted, and the configuration says `keychain: false`"):
            await refusing.call()
        assert content(tmp_path) == before
        await store(tmp_path).convert(sealed=False)
        assert b"access-1" in content(tmp_path)
        assert await refusing.call() == 200


@pytest.mark.requirement("signin.keychain")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("hang", "your sign-ins cannot be decrypted: the system's keychain did not answer within 3 s"),
        ("locked", "your sign-ins cannot be decrypted: the system's keychain is locked"),
        ("break", "your sign-ins cannot be decrypted: the system's keychain failed"),
    ],
)
async def test_while_the_keychain_is_away_nothing_is_lost(tmp_path: Path, fault: str, words: str) -> None:
    async with signed_in(tmp_path, keychain=True) as at:
        await at.log_in()
        before = content(tmp_path)
        locked = with_store(at, store(tmp_path, fault=fault))
        with pytest.raises(StoreUnusable) as told:
            await locked.call()
        assert str(told.value).startswith(words)
        assert content(tmp_path) == before and len(list((tmp_path / "sign-ins").glob("*damaged*"))) == 0
        assert len(at.authority.token_requests) == 1
        assert await with_store(at, store(tmp_path)).call() == 200


async def test_a_first_sign_in_is_not_stored_in_the_clear_because_the_keychain_is_away(tmp_path: Path) -> None:
    async with signed_in(tmp_path, keychain=True) as at:
        locked = with_store(at, store(tmp_path, keychain=True, fault="locked"))
        with pytest.raises(StoreUnusable):
            await locked.log_in()
        assert not (tmp_path / "sign-ins" / "sign-ins.json").exists()
        assert at.authority.authorizations == [], "nobody is sent to a page in vain"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("{}", "the key is no longer in the keychain"),
        ('{"mcp-workbench/master-key": "%s"}' % ("A" * 43 + "="), "with a different key than the one in the keychain"),
        ('{"mcp-workbench/master-key": "nonsense"}', "is not a key of the workbench"),
    ],
)
async def test_another_key_is_distinguished_from_a_damaged_file(tmp_path: Path, keys: str, words: str) -> None:
    async with signed_in(tmp_path, keychain=True) as at:
        await at.log_in()
        before = content(tmp_path)
        (tmp_path / "keys").write_text(keys)
        with pytest.raises(StoreUnusable) as told:
            await with_store(at, store(tmp_path)).call()
        assert words in str(told.value) and told.value.hint
        assert content(tmp_path) == before


async def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    async with signed_in(tmp_path, keychain=True) as at:
        await at.log_in()
        path = tmp_path / "sign-ins" / "sign-ins.json"
        envelope = json.loads(path.read_text())
        envelope["data"] = "AAAA" + envelope["data"][4:]
        damaged = json.dumps(envelope, separators=(",", ":"))
        path.write_text(damaged)
        await with_store(at, store(tmp_path)).log_in()
        assert [file.read_text() for file in path.parent.glob("*.damaged-*")] == [damaged]
        assert await with_store(at, store(tmp_path)).call() == 200


async def test_two_damaged_files_are_both_kept(tmp_path: Path) -> None:
    kept = store(tmp_path)
    path = tmp_path / "sign-ins" / "sign-ins.json"
    path.parent.mkdir()
    for text in ("{one", "{two"):
        path.write_text(text)
        path.chmod(0o600)
        assert kept.read().records == []
    assert sorted(file.read_text() for file in path.parent.glob("*.damaged-*")) == ["{one", "{two"]


def test_the_command_turns_it_and_says_how_it_is_stored(tmp_path: Path) -> None:
    environ = {**fake_keyring.environment(tmp_path / "keys"), "XDG_DATA_HOME": str(tmp_path)}
    done = run("auth", "--encrypt", env=environ)
    assert done.status == 0 and "are encrypted with a key in your keychain" in done.stdout
    path = tmp_path / "mcp-workbench" / "sign-ins" / "sign-ins.json"
    assert path.read_bytes().startswith(SEALED_HEAD) and path.stat().st_mode & 0o777 == 0o600
    locked = run("auth", "--decrypt", env={**environ, "FAKE_KEYRING_FAULT": "locked"})
    assert locked.status == 1 and "is locked" in locked.stderr
    assert run("auth", "--decrypt", env=environ).status == 0
    assert not path.read_bytes().startswith(SEALED_HEAD)
    assert run("auth", "--decrypt", "--encrypt", env=environ).status == 2


async def test_without_the_library_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(StoreUnusable, match="need the Python package `cryptography`"):
        await store(tmp_path).convert(sealed=True)


def test_the_id_of_a_key_stays_the_same() -> None:
    """Files name the key that they were sealed with: another id would make them unreadable."""
    assert b'"key":"5f458be526396d67"' in seal(b"{}", bytes(32), ())
