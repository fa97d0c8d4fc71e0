"""The token that clients show over HTTP: one is made where none is given, kept for its user alone, and shown again."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.app.http_token import HttpToken, TokenChoice, chosen_token, kept_token, token_path
from mcp_workbench.cli.commands import status
from mcp_workbench.cli.error_output import warn_if_others_can_read
from mcp_workbench.cli.flags import parse
from mcp_workbench.cli.screen import Screen
from mcp_workbench.cli.serve import SERVE_FLAGS
from mcp_workbench.errors import ConfigError
from tests.cli.shell import COMMAND, environment, run
from tests.support.workbench import write_config


def choose(*arguments: str, is_loopback: bool = True, **environ: str) -> HttpToken:
    parsed = parse(["--http", *arguments], SERVE_FLAGS, positionals=1)
    choice = TokenChoice(parsed.value("token"), parsed.value("token-file"), parsed.has("no-token"))
    return chosen_token(choice, environ, is_loopback=is_loopback, on_file=warn_if_others_can_read)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """With a name that leaves room for the path of a socket, wherever the folders of tests are."""
    with tempfile.TemporaryDirectory(prefix="wb-") as folder:
        yield Path(folder)


def kept_at() -> Path:
    path = token_path()
    assert path is not None
    return Path(path)


@pytest.mark.requirement("http.token")
def test_where_none_is_given_one_is_made_and_kept_for_its_user_alone() -> None:
    made = choose()
    assert made.value is not None and len(made.value) >= 43
    assert made.path == str(kept_at())
    assert kept_at().read_text().strip() == made.value
    assert stat.S_IMODE(kept_at().stat().st_mode) == 0o600
    assert stat.S_IMODE(kept_at().parent.stat().st_mode) == 0o700
    assert made.remark is not None and made.value in made.remark[1]
    assert [path.name for path in kept_at().parent.iterdir()] == ["http-token"], "no draft is left"


def test_the_next_start_uses_it_again_and_does_not_print_it() -> None:
    made, again = choose(), choose()
    assert again.value == made.value
    assert again.remark is not None and made.value is not None
    assert made.value not in again.remark[1] and str(kept_at()) in again.remark[1]


def test_a_token_that_is_given_is_used_and_none_is_made() -> None:
    assert choose("--token", "a").value == "a"
    assert choose(WORKBENCH_TOKEN="b").value == "b"
    assert choose("--token", "a", WORKBENCH_TOKEN="b").value == "a"
    assert not kept_at().exists()


def test_no_token_is_generated_for_an_endpoint_that_others_can_reach() -> None:
    assert choose(is_loopback=False).value is None, "whoever listens refuses that"
    assert not kept_at().exists()


def test_serving_without_a_token_warns_the_user() -> None:
    chosen = choose("--no-token", WORKBENCH_TOKEN="b")
    assert chosen.value is None
    assert (
        chosen.remark is not None and chosen.remark[0] == "warning" and "every user of this machine" in chosen.remark[1]
    )
    with pytest.raises(ConfigError, match="both given"):
        choose("--no-token", "--token", "a")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_kept_token_that_others_may_know_is_refused(mode: int) -> None:
    choose()
    kept_at().chmod(mode)
    with pytest.raises(ConfigError, match="others may have read or written it"):
        choose()


@pytest.mark.parametrize("content", [b"", b"short\n", b"white space " * 9, b"\xff" * 50])
def test_a_kept_file_without_a_token_is_refused_and_not_overwritten(content: bytes) -> None:
    kept_at().parent.mkdir(parents=True)
    kept_at().write_bytes(content)
    kept_at().chmod(0o600)
    with pytest.raises(ConfigError, match="cannot be used"):
        choose()
    assert kept_at().read_bytes() == content


def test_a_folder_in_the_place_of_the_kept_token_is_refused() -> None:
    kept_at().mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be used: Is a directory"):
        choose()
    assert list(kept_at().iterdir()) == [] and list(kept_at().parent.iterdir()) == [kept_at()]


def test_a_link_to_another_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("x" * 50)
    other.chmod(0o600)
    kept_at().parent.mkdir(parents=True)
    kept_at().symlink_to(other)
    with pytest.raises(ConfigError, match="cannot be used"):
        choose()


def test_two_that_start_at_once_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def late(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", real)
        kept_token()
        real(source, target)

    monkeypatch.setattr(os, "link", late)
    assert choose().value == kept_at().read_text().strip() == choose().value


def test_where_it_cannot_be_kept_it_holds_for_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    one, other = choose(), choose()
    assert one.value != other.value and one.path is None
    assert one.remark is not None and "it cannot be stored" in one.remark[1] and (one.value or "?") in one.remark[1]


def test_status_says_where_it_is_and_never_shows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    made = choose()
    stream = io.StringIO()
    found = {"pid": 7, "face": "flat", "uptimeSeconds": 1.0, "config": "/c", "servers": [], "tokenFile": made.path}
    status._show(Screen(stream), found)
    assert made.path is not None and made.path.startswith(str(home := tmp_path / "home"))
    assert f"clients need the token in ~{made.path.removeprefix(str(home))}" in stream.getvalue()
    assert made.value is not None and made.value not in stream.getvalue()


@contextmanager
def served(config: Path, *flags: str, env: dict[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """The address, and what was said with it."""
    command = [*COMMAND, "serve", str(config), "--http", "127.0.0.1:0", *flags]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(env)
    ) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found
            yield found[0], process.stderr.readline()
        finally:
            process.terminate()
            process.communicate(timeout=20)


def status_of(url: str, token: str | None) -> int:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.requirement("http.token")
@pytest.mark.processes
def test_on_loopback_the_generated_token_is_required(tmp_path: Path, short_folder: Path) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    env = {"XDG_RUNTIME_DIR": str(short_folder)}
    with served(config, env=env) as (url, said):
        token = kept_at().read_text().strip()
        assert token in said
        assert (status_of(url, None), status_of(url, token)) == (401, 200)
        assert f"clients need the token in {kept_at()}" in (shown := run("status", env=env).stdout)
        assert token not in shown + run("status", "--json", env=env).stdout
        report = urllib.request.Request(url.replace("/mcp", "/readyz"), headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(report, timeout=20) as response:
            assert "tokenFile" not in json.load(response), "that is for our own user alone"
    with served(config, "--no-token", env=env) as (url, said):
        assert said.startswith("warning: without a token, every user of this machine")
        assert status_of(url, None) == 200
