"""`mcp-workbench team key`: a token is shown once, and keys are listed and revoked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_workbench.engine.catalog.manifests import OF_USER, ManifestStore, default_folder
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.store import SignInRecord, TokenStore
from mcp_workbench.team.identity.named_keys import KeyFolder, KeysInForce
from tests.cli.in_process import command, live_in


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyFolder:
    live_in(monkeypatch, tmp_path, {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")})
    return KeyFolder(str(tmp_path / "state" / "mcp-workbench" / "keys"))


@pytest.mark.requirement("team.keys")
def test_a_key_is_created_listed_and_revoked(keys: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "key", "create", "alice", "--toolboxes", "dev, web*", "--expires", "30d")
    token = done.stdout.strip()
    assert done.status == 0 and "is not shown again" in done.stderr and token not in done.stderr
    record = KeysInForce(keys).find(token)
    assert record is not None and record.toolboxes == ("dev", "web*")
    assert record.expires is not None and record.expires - record.created == pytest.approx(30 * 86400, abs=5)

    listed = command(monkeypatch, "key", "list")
    assert "alice" in listed.stdout and "dev, web*" in listed.stdout and token not in listed.stdout
    (shown,) = json.loads(command(monkeypatch, "key", "list", "--json").stdout)
    assert (shown["name"], shown["toolboxes"], shown["expired"]) == ("alice", ["dev", "web*"], False)

    assert command(monkeypatch, "key", "revoke", "alice").stdout == "revoked\n"
    assert command(monkeypatch, "key", "revoke", "alice").status == 1
    assert "there is no key" in command(monkeypatch, "key", "list").stderr


def test_a_key_for_a_program_to_read(keys: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    made = json.loads(command(monkeypatch, "key", "create", "ci", "--json", "--expires", "2099-01-31").stdout)
    assert (made["name"], made["expires"], made["toolboxes"]) == ("ci", "2099-01-31 00:00 UTC", None)
    assert KeysInForce(keys).find(made["token"]) is not None
    assert "2099-01-31" in command(monkeypatch, "key", "list").stdout


def test_an_expired_key_is_listed_as_such(keys: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.create("old", expires=1.0)
    keys.create("new")
    shown = command(monkeypatch, "key", "list").stdout.splitlines()
    assert "expired" in next(line for line in shown if line.startswith("old"))
    assert "never" in next(line for line in shown if line.startswith("new"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "create|list|revoke is missing"),
        (("make", "x"), "unknown action `make`"),
        (("create",), "the name of the key is missing"),
        (("revoke",), "the name of the key is missing"),
        (("list", "x"), "list takes no name"),
        (("list", "--expires", "1d"), "require create"),
        (("revoke", "x", "--json"), "--json requires create or list"),
        (("create", "x", "--expires", "soon"), "is not a time in the future"),
        (("create", "x", "--expires", "2020-01-01"), "is not a time in the future"),
        (("create", "x", "--expires", "2030-13-41"), "is not a time in the future"),
        (("create", "x", "--toolboxes", " , "), "names no toolbox"),
    ],
)
def test_a_wrong_command_line(
    keys: KeyFolder, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    done = command(monkeypatch, "key", *words)
    assert done.status == 2 and said in done.stderr and done.stdout == ""


def test_a_name_that_cannot_be_one_is_reported(keys: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "key", "create", "default")
    assert done.status == 1 and "cannot be the name of a key" in done.stderr


def test_without_a_home_there_is_nowhere_to_keep_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.cli.commands.key.folder", lambda: None)
    assert "there is no home folder" in command(monkeypatch, "key", "list").stderr


async def test_sign_ins_of_the_previous_holder_are_reported(
    keys: KeyFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    record = SignInRecord(
        principal="alice",
        server="https://mail.example.com/mcp",
        issuer="https://id.example.com",
        client=OAuthClient(issuer="https://id.example.com", id="we"),
        token_endpoint="https://id.example.com/token",
        access_token="secret",
    )
    await TokenStore().change(lambda contents: contents.put(record))
    cached = ManifestStore(default_folder)
    cached.save_blob(f"{OF_USER}x", b"x")
    cached.save_blob("x", b"x")
    for words in (("create", "alice"), ("revoke", "alice")):
        said = command(monkeypatch, "key", *words).stderr
        assert "is signed in to https://mail.example.com/mcp" in " ".join(said.split()), words
        assert "mcp-workbench auth logout SERVER --as alice" in " ".join(said.split())
    assert (cached.load_blob(f"{OF_USER}x"), cached.load_blob("x")) == (None, b"x")
    assert "signed in" not in command(monkeypatch, "key", "create", "bob").stderr
    Path(TokenStore().path).chmod(0o666)
    assert "it is unknown which servers" in command(monkeypatch, "key", "revoke", "bob").stderr
