"""`mcp-workbench secret`: into the keychain and out of it, without ever showing a value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.in_process import run
from tests.cli.shell import Done, on_terminal
from tests.support import fake_keyring
from tests.support.workbench import write_config


@pytest.fixture
def chain(tmp_path: Path) -> dict[str, str]:
    return {**fake_keyring.environment(tmp_path / "keys"), "XDG_DATA_HOME": str(tmp_path / "data")}


@pytest.mark.requirement("secrets.keychain")
def test_a_value_is_kept_listed_and_removed(chain: dict[str, str]) -> None:
    done = run("secret", "set", "github", env=chain, stdin="hunter2\n")
    assert done == Done(0, "stored; refer to it as ${keyring:github}\n", "")
    assert run("secret", "set", "other/name", env=chain, stdin="hunter3").status == 0
    assert json.loads(Path(chain["FAKE_KEYRING"]).read_text()) == {
        "mcp-workbench/github": "hunter2",
        "other/name": "hunter3",
    }
    listed = run("secret", "list", env=chain)
    assert listed == Done(0, "github\nother/name\n", "")
    assert json.loads(run("secret", "list", "--json", env=chain).stdout)[0] == {
        "name": "github",
        "reference": "${keyring:github}",
    }
    assert run("secret", "remove", "github", env=chain) == Done(0, "removed\n", "")
    assert run("secret", "remove", "github", env=chain).status == 1
    assert run("secret", "list", env=chain).stdout == "other/name\n"
    for path in (Path(chain["XDG_DATA_HOME"]) / "mcp-workbench" / "keychain-entries").iterdir():
        assert "hunter" not in path.read_text() and path.stat().st_mode & 0o777 == 0o600


def test_without_a_keychain_a_value_is_kept_in_a_file_and_used(chain: dict[str, str], tmp_path: Path) -> None:
    without = {**chain, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    done = run("secret", "set", "github", env=without, stdin="hunter2\n")
    kept = Path(chain["XDG_DATA_HOME"]) / "mcp-workbench" / "secrets"
    assert done.stdout == ("stored in a file that only you can read, not encrypted; refer to it as ${keyring:github}\n")
    assert "this machine has no keychain" in done.stderr and str(kept) in done.stderr
    assert run("secret", "set", "second", env=without, stdin="hunter3").status == 0
    assert run("secret", "list", env=without).stdout == "github\nsecond\n" and len(list(kept.iterdir())) == 2
    config = write_config(tmp_path, {"box": {"server": {"command": "true", "env": {"T": "${keyring:second}"}}}})
    assert run("check", config, env=without).status == 0
    # A keychain that comes later takes the value over, and nothing is left behind.
    assert run("secret", "set", "second", env=chain, stdin="hunter4").status == 0
    assert len(list(kept.iterdir())) == 1
    assert run("secret", "remove", "github", env=without) == Done(0, "removed\n", "")
    assert run("secret", "remove", "github", env=without).status == 1 and list(kept.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        ((), "", "set|list|remove is missing"),
        (("show", "x"), "", "unknown action `show`"),
        (("set",), "", "the name of the entry is missing"),
        (("set", "service/"), "", "the name of the entry is missing"),
        (("set", "x"), "\n", "the value is empty"),
        (("set", "x"), "y" * 140_000, "the value is longer than 128 KiB"),
        (("list", "x"), "", "list takes no name"),
        (("set", "x", "--json"), "", "--json requires list"),
    ],
)
def test_a_wrong_command_line(chain: dict[str, str], words: tuple[str, ...], text: str, said: str) -> None:
    done = run("secret", *words, env=chain, stdin=text)
    assert done.status == 2 and said in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("fault", "said"), [("hang", "did not answer within 3 s"), ("locked", "is locked"), ("break", "failed")]
)
def test_a_keychain_that_cannot_be_used(chain: dict[str, str], fault: str, said: str) -> None:
    for words in (("set", "x"), ("remove", "x")):
        done = run("secret", *words, env={**chain, "FAKE_KEYRING_FAULT": fault}, stdin="hunter2\n")
        assert done.status == 1 and said in done.stderr and "hunter2" not in done.stderr


def test_on_a_terminal_it_is_asked_for_without_an_echo(chain: dict[str, str]) -> None:
    status, shown = on_terminal(
        "secret", "set", "github", env=chain, type_when=lambda text: "(not shown): " in text, key=b"hunter2\n"
    )
    assert status == 0 and "stored" in shown and "hunter2" not in shown
    assert json.loads(Path(chain["FAKE_KEYRING"]).read_text()) == {"mcp-workbench/github": "hunter2"}
