"""Secrets in command lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.exposed_arguments import about_exposed_arguments
from mcp_workbench.engine.config.load import load

ENVIRON = {"API_TOKEN": "a1b2c3d4e5f6a7b8", "HOST": "db.example.com", "HOME": "/home/ada"}


def warnings(tmp_path: Path, *servers: dict[str, Any]) -> list[str]:
    path = tmp_path / "workbench-config.json"
    named = {f"s{number}": {"command": "server", **server} for number, server in enumerate(servers)}
    path.write_text(json.dumps({"toolboxes": {"box": {"description": "Box", "mcpServers": named}}}))
    return about_exposed_arguments(load(str(path), ENVIRON))


@pytest.mark.parametrize(
    "secret",
    [
        ["--password", "hunter2hunter2"],
        ["--verbose", "--token=${API_TOKEN}"],
        ["-e", "API_KEY=abcdef123456"],
        ["--header", "Authorization: Bearer ${keyring:notes}"],
        ["stdio", "${file:~/.secrets/database}"],
        ["stdio", "${cmd:op read op://x}"],
        ["stdio", "sk-abcdefghijklmnopqrstuvwx"],
    ],
)
def test_a_secret_among_the_arguments_is_named_by_its_place_and_never_shown(tmp_path: Path, secret: list[str]) -> None:
    (text,) = warnings(tmp_path, {"args": ["stdio", "--port", "80"]}, {"args": secret})
    assert text.startswith("`box/s1` has a secret in `args.1`, where every user of this machine can read it")
    assert not any(value in text for value in (*ENVIRON.values(), "hunter2", "abcdef", "op://"))


@pytest.mark.parametrize(
    "harmless", [["--host", "${HOST}"], ["-y", "@scope/server-key@1.0"], ["--key-file", "/home/ada/key"], []]
)
def test_other_arguments_are_not_warned_about(tmp_path: Path, harmless: list[str]) -> None:
    env = {"env": {"TOKEN": "${file:token}", "PASSWORD": "hunter2hunter2"}}
    assert warnings(tmp_path, {"args": harmless, **env}, {"args": harmless}) == []


def test_several_in_one_server_are_one_sentence(tmp_path: Path) -> None:
    (text,) = warnings(tmp_path, {"args": ["--token", "a1b2c3d4e5f6", "--password=${file:x}"]})
    assert "has secrets in `args.1`, `args.2`" in text
