"""The encrypted store with a keychain in memory: when its key is needed, where it is waited for, what stays."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_workbench.signin import store as module
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.secrets import keychain
from mcp_workbench.signin.secrets.keychain import KeychainUnusable
from mcp_workbench.signin.store import Contents, TokenStore, WantedSignIn
from mcp_workbench.signin.store_location import SEALED_HEAD, StoreUnusable, mark_of
from tests.signin.test_store import damaged, put, rewrite

ONE, TWO = "https://one.example", "https://two.example#work"


class Keychain:
    """Notes in which thread it was asked."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.asked: list[str] = []
        self.is_locked = False

    def get(self, service: str, name: str, environ: Mapping[str, str]) -> str | None:
        self.asked.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        if self.is_locked:
            raise KeychainUnusable("the system's keychain is locked")
        return self.values.get(f"{service}/{name}")

    def put(self, service: str, name: str, value: str, environ: Mapping[str, str]) -> None:
        self.values[f"{service}/{name}"] = value


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> Keychain:
    chain = Keychain()
    monkeypatch.setattr(keychain, "get", chain.get)
    monkeypatch.setattr(keychain, "put", chain.put)
    return chain


def store(tmp_path: Path, keychain: bool | None = True) -> TokenStore:
    return TokenStore(str(tmp_path / "sign-ins"), keychain=keychain)


def servers(contents: Contents) -> list[str]:
    return [each.server for each in contents.records]


async def test_the_keychain_is_asked_once_and_in_a_thread(tmp_path: Path, chain: Keychain) -> None:
    kept = store(tmp_path)
    assert servers(await put(kept, ONE)) == [ONE]
    # A key was made, and read back.
    assert chain.asked == ["thread", "thread"] and len(chain.values) == 1
    assert Path(kept.path).read_bytes().startswith(SEALED_HEAD)
    assert servers(await put(kept, TWO)) == servers(kept.read()) == [ONE, TWO]
    assert len(chain.asked) == 2
    # One that was told nothing looks at the file, and waits for the key in a thread as well.
    careless = store(tmp_path, None)
    assert servers(await put(careless, "https://three.example")) == [ONE, TWO, "https://three.example"]
    assert chain.asked == ["thread"] * 3 and Path(kept.path).read_bytes().startswith(SEALED_HEAD)


async def test_a_keychain_that_was_locked_is_asked_in_a_thread_again(tmp_path: Path, chain: Keychain) -> None:
    kept = store(tmp_path)
    chain.is_locked = True
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="sign-ins cannot be encrypted: the system's keychain is locked"):
            await put(kept, ONE)
    assert not Path(kept.path).exists() and chain.values == {}
    chain.is_locked = False
    assert servers(await put(kept, ONE)) == [ONE]
    assert set(chain.asked) == {"thread"}


async def test_a_known_key_costs_no_thread(tmp_path: Path, chain: Keychain, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store(tmp_path)
    await put(kept, ONE)
    plain = TokenStore(str(tmp_path / "plain"), keychain=None)
    await put(plain, ONE)

    async def aside(*_: object) -> None:
        pytest.fail("a thread for nothing")

    monkeypatch.setattr(module, "aside", aside)
    await put(kept, TWO)
    await put(plain, TWO)


async def test_a_file_of_which_the_key_is_gone_gets_no_other_key(tmp_path: Path, chain: Keychain) -> None:
    kept = store(tmp_path)
    await put(kept, ONE)
    before = Path(kept.path).read_bytes()
    chain.values.clear()
    for keychain_setting in (True, None):
        with pytest.raises(StoreUnusable, match="the key is no longer in the keychain"):
            await put(store(tmp_path, keychain_setting), TWO)
    assert chain.values == {} and Path(kept.path).read_bytes() == before


async def test_a_sealed_file_that_was_changed_is_set_aside(tmp_path: Path, chain: Keychain) -> None:
    kept = store(tmp_path)
    await put(kept, ONE)
    content = Path(kept.path).read_bytes()
    at = content.index(b'"data":"') + 12
    changed = content[:at] + (b"A" if content[at : at + 1] != b"A" else b"B") + content[at + 1 :]
    rewrite(kept, changed)
    assert store(tmp_path).read() == Contents()
    assert damaged(kept) == [changed]


@pytest.mark.parametrize("sealed", [True, False])
async def test_converting_keeps_everything(tmp_path: Path, chain: Keychain, sealed: bool) -> None:
    before = store(tmp_path, not sealed)
    stored = await put(before, ONE, TWO)
    chain.asked.clear()
    careless = store(tmp_path, None)
    assert await careless.convert(sealed=sealed) == stored == store(tmp_path, sealed).read()
    assert Path(before.path).read_bytes().startswith(SEALED_HEAD) is sealed
    assert chain.asked[0] == "thread"
    # Whoever insists on the earlier form is told, and changes nothing.
    now = Path(before.path).read_bytes()
    words = "are encrypted, and .* `keychain: false`" if sealed else "are not encrypted, and .* `keychain: true`"
    with pytest.raises(StoreUnusable, match=words):
        await put(store(tmp_path, not sealed), "https://three.example")
    assert Path(before.path).read_bytes() == now and damaged(before) == []
    # Others go on in the new form.
    assert servers(await put(careless, "https://three.example")) == [ONE, TWO, "https://three.example"]
    assert Path(before.path).read_bytes().startswith(SEALED_HEAD) is sealed


@pytest.mark.parametrize("kind", ["records", "clients", "wanted", "nothing"])
async def test_a_plain_file_without_secrets_is_encrypted_by_the_way(tmp_path: Path, chain: Keychain, kind: str) -> None:
    def change(contents: Contents) -> None:
        if kind == "clients":
            contents.put_client(OAuthClient(issuer="https://auth.example", id="app"))
        if kind == "wanted":
            contents.want(WantedSignIn(principal="", server=ONE, challenge="Bearer"))

    plain = store(tmp_path, False)
    await plain.change(change)
    if kind == "records":
        await put(plain, ONE)
    before = Path(plain.path).read_bytes()
    kept = store(tmp_path, True)
    if kind in ("records", "clients"):
        with pytest.raises(StoreUnusable, match="are not encrypted"):
            await put(kept, TWO)
        assert Path(plain.path).read_bytes() == before
    else:
        assert servers(await put(kept, TWO)) == [TWO]
        assert Path(plain.path).read_bytes().startswith(SEALED_HEAD)


async def test_sealed_file_holds_only_marks_of_its_servers(tmp_path: Path, chain: Keychain) -> None:
    kept = store(tmp_path)
    await put(kept, TWO)
    await kept.change(
        lambda contents: contents.want(WantedSignIn(principal="", server="https://wanted.example", challenge="Bearer"))
    )
    content = Path(kept.path).read_text()
    for shown in (TWO, "https://two.example", "https://wanted.example"):
        assert mark_of(shown) in content and shown not in content
    assert mark_of("") not in content and mark_of(ONE) not in content


async def test_a_store_that_vanished_is_in_the_form_that_is_asked_for(tmp_path: Path, chain: Keychain) -> None:
    kept = store(tmp_path)
    await put(kept, ONE)
    careless = store(tmp_path, None)
    await careless.unlock()
    assert servers(careless.read()) == [ONE]
    Path(kept.path).unlink()
    await put(kept, ONE)
    assert Path(kept.path).read_bytes().startswith(SEALED_HEAD)
    Path(kept.path).unlink()
    await put(careless, ONE)
    assert not Path(kept.path).read_bytes().startswith(SEALED_HEAD)
