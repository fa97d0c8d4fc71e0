"""`mcp-workbench auth`, called in this process."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore, WantedSignIn
from tests.cli.in_process import command, live_in

ISSUER = "https://auth.example.com"
NOTES = "https://notes.example.com/mcp"
FILES = "https://files.example.com/mcp"


def record(server: str, principal: str = "", *, expires_at: float | None = None, ended: str = "") -> SignInRecord:
    return SignInRecord(
        principal=principal,
        server=server,
        issuer=ISSUER,
        client=OAuthClient(issuer=ISSUER, id="client", is_registered=True),
        token_endpoint=f"{ISSUER}/token",
        access_token="secret-access",
        refresh_token="secret-refresh",
        signed_in_at=time.time(),
        obtained_at=time.time(),
        expires_at=expires_at,
        ended=ended,
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenStore:
    live_in(monkeypatch, tmp_path, {"XDG_DATA_HOME": str(tmp_path / "data"), "COLUMNS": "250"})
    return TokenStore()


def fill(store: TokenStore, *held: SignInRecord | WantedSignIn) -> None:
    def change(contents: Contents) -> None:
        contents.records = [each for each in held if isinstance(each, SignInRecord)]
        contents.wanted = [each for each in held if isinstance(each, WantedSignIn)]

    asyncio.run(store.change(change))


def test_every_sign_in_is_shown_with_its_state_and_without_its_tokens(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    wanted = WantedSignIn(principal="", server="https://web.example.com/mcp", challenge="")
    fill(
        store, record(NOTES, expires_at=now + 600), record(FILES, expires_at=now - 1), record(ISSUER, ended="x"), wanted
    )
    done = command(monkeypatch, "auth")
    header, *rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == [NOTES, FILES, ISSUER, "https://web.example.com/mcp"]
    for row, state in zip(rows, ("signed in", "refreshed at next use", "needs sign-in", "needs sign-in"), strict=True):
        assert state in row
    assert "USER" not in header
    assert "readable only by you" in done.stderr
    listed = command(monkeypatch, "auth", "--json")
    assert [each["state"] for each in json.loads(listed.stdout)][2:] == ["needs sign-in", "needs sign-in"]
    assert "secret-" not in done.stdout + done.stderr + listed.stdout


def test_where_several_people_are_signed_in_each_is_named(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, record(NOTES), record(NOTES, "ada"), WantedSignIn(principal="bob", server=NOTES, challenge=""))
    header, *rows = command(monkeypatch, "auth").stdout.splitlines()
    assert header.split()[-1] == "USER"
    assert [row.split()[-1] for row in rows][1:] == ["ada", "bob"]


def test_without_any_it_says_how_to_sign_in(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "auth")
    assert (done.status, done.stdout) == (0, "")
    assert "run `mcp-workbench auth login SERVER`" in done.stderr


def test_without_a_keychain_nothing_is_encrypted(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    fill(store, record(NOTES))
    before = Path(store.path).read_bytes()
    done = command(monkeypatch, "auth", "--encrypt")
    assert done.status == 1
    assert "sign-ins cannot be encrypted: this machine has no keychain that can be used" in done.stderr
    assert "can only be stored unencrypted" in done.stderr and "${file" not in done.stderr
    assert Path(store.path).read_bytes() == before


def test_a_key_in_an_address_is_not_shown(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [f"{NOTES}?key=hunter22-key#work", "https://ada:hunter22@files.example.com/mcp"]
    wanted = WantedSignIn(principal="", server=f"{FILES}?key=hunter22-key", challenge="")
    fill(store, *(record(each, expires_at=time.time() - 1) for each in addresses), wanted)
    for words in ([], ["--json"]):
        done = command(monkeypatch, "auth", *words)
        assert "hunter22" not in done.stdout + done.stderr
        assert f"{NOTES}?key=***#work" in done.stdout
