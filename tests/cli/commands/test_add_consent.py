"""What `add` does with what a stranger describes before the user has agreed: nothing with anything of theirs."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.sandbox.server_sandbox import Owner, private_home
from tests.cli.commands import test_add
from tests.cli.commands.test_add import PLAIN, shell, written
from tests.cli.shell import under

home, pinned = test_add.home, test_add.pinned


@pytest.mark.parametrize(
    "own",
    [
        {"packageArguments": [{"type": "positional", "value": "VICTIM"}]},
        {"packageArguments": [{"type": "named", "name": "--root", "value": "VICTIM"}]},
        {"environmentVariables": [{"name": "NOTES_DIR", "value": "VICTIM"}]},
    ],
)
def test_a_package_that_names_a_folder_of_the_user_is_started_only_after_a_yes(
    home: Path, pinned: list[dict[str, Any]], own: dict[str, Any]
) -> None:
    written(home)
    victim = home / "victim"
    victim.mkdir()
    package = {**PLAIN["packages"][0], **own}  # type: ignore[dict-item]
    (home / "server.json").write_text(json.dumps({"packages": [package]}).replace("VICTIM", str(victim)))
    done = shell("add", "plain", home / "server.json", "--toolbox", "web", typed="n\n")
    assert done.status == 2 and not pinned, done.stderr
    before = done.stderr.partition("Start it once, to see its tools? [y/N]")[0]
    assert f"let it use `{under(home, victim)}`" in before
    done = shell("add", "plain", home / "server.json", "--toolbox", "web", typed="y\ny\n")
    assert done.status == 0 and len(pinned) == 1, done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("answer", ["y\n", "n\n", None])
def test_files_that_a_package_writes_before_the_answer_are_removed(
    home: Path, pinned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    path = written(home)
    homes = []

    def started(trial: str, toolbox: str, name: str, *, as_path: str | None = None) -> str:
        assert as_path is not None and Path(as_path).resolve() == path.resolve(), "the file stays read-only for it"
        server = load(trial, {}).toolboxes[toolbox].servers[name]
        homes.extend([private_home(server, Owner(as_path, toolbox)), private_home(server, Owner(str(path), toolbox))])
        Path(homes[0]).mkdir(parents=True)
        (Path(homes[0]) / ".npmrc").write_text("registry=x")
        if answer is None:
            raise KeyboardInterrupt
        return "ready"

    monkeypatch.setattr("mcp_workbench.cli.commands.add._started", started)
    with contextlib.suppress(KeyboardInterrupt):
        shell("add", "plain", "npm:@x/plain", "--toolbox", "web", typed=answer or "")
    assert len(set(homes)) == 2 and not any(Path(each).exists() for each in homes)


@pytest.mark.parametrize(
    ("remote", "is_asked"),
    [
        ({"url": "http://127.0.0.1:9/mcp"}, True),
        ({"url": "http://LOCALHOST:9/mcp"}, True),
        ({"url": "http://0x7f000001:9/mcp"}, True),
        ({"url": "http://[fe80::1]/mcp"}, True),
        ({"url": "https://10.0.0.1/mcp"}, True),
        ({"url": "https://inside.example/mcp"}, True),
        ({"url": "https://8.8.8.8/mcp", "headers": [{"name": "X-Do", "value": "it"}]}, True),
        ({"url": "https://8.8.8.8/mcp"}, False),
        ({"url": "https://nowhere.example/mcp"}, False),
    ],
)
def test_an_address_inside_that_a_stranger_names_is_connected_to_only_after_a_yes(
    home: Path,
    pinned: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    remote: dict[str, Any],
    is_asked: bool,
) -> None:
    def looked_up(host: str, *_: object) -> list[Any]:
        if host != "inside.example":
            raise socket.gaierror
        return [(0, 0, 0, "", ("8.8.8.8", 0)), (0, 0, 0, "", ("192.168.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    written(home)
    file = home / "server.json"
    file.write_text(json.dumps({"remotes": [{"type": "streamable-http", **remote}]}))
    done = shell("add", "there", file, "--toolbox", "web", typed="n\n")
    assert done.status == 2 and ("Connect to it once" in done.stderr) is is_asked is (not pinned), done.stderr
