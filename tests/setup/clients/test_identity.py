"""When a server of a client is one of ours: what is said to be so is taken out of the client's file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.setup.clients.identity import Served, is_same_program, is_served

POSTGRES: dict[str, Any] = {"command": "npx", "args": ["-y", "server-postgres"]}


@pytest.mark.parametrize(
    ("theirs", "written", "resolved", "expected"),
    [
        ({"command": "uvx", "args": ["a"]}, {"command": "uvx", "args": ["a"]}, {}, True),
        ({"command": "uvx", "args": ["a"]}, {"command": "uvx", "args": ["b"]}, {}, False),
        ({"command": "uvx", "args": ["a"]}, {"command": "uvx", "args": ["a", "b"]}, {}, False),
        ({"url": "https://x/mcp/"}, {"url": "https://x/mcp"}, {}, True),
        ({"command": "npx", "args": ["mcp-remote", "https://x/mcp"]}, {"url": "https://x/mcp"}, {}, True),
        # A reference alone means what it is now, and not anything.
        ({"url": "https://x/mcp"}, {"url": "${COMPANY_URL:-https://y/mcp}"}, {"url": "https://y/mcp"}, False),
        ({"url": "https://y/mcp"}, {"url": "${COMPANY_URL:-https://y/mcp}"}, {"url": "https://y/mcp"}, True),
        ({"command": "x"}, {"url": "${COMPANY_URL:-https://y/mcp}"}, {"url": "https://y/mcp"}, False),
        ({"command": "x"}, {"command": "${PROGRAM}"}, {"command": "y"}, False),
        ({"command": "x"}, {"command": "${PROGRAM}"}, {"command": "x"}, True),
        # The same program for something else.
        (POSTGRES | {"env": {"DB": "prod"}}, POSTGRES | {"env": {"DB": "dev"}}, {}, False),
        (POSTGRES | {"env": {"DB": "dev"}}, POSTGRES | {"env": {"DB": "dev", "MORE": "1"}}, {}, True),
        (POSTGRES | {"env": {"DB": "dev", "MORE": "1"}}, POSTGRES | {"env": {"DB": "dev"}}, {}, False),
        ({"url": "https://x", "headers": {"Team": "a"}}, {"url": "https://x", "headers": {"Team": "b"}}, {}, False),
        # What `init` took out of it.
        ({"url": "https://x/key=abc"}, {"url": "https://x/key=${keyring:x}"}, {}, True),
        ({"url": "https://x/key=abc"}, {"url": "https://y/key=${keyring:x}"}, {}, False),
        (POSTGRES | {"env": {"DB": "dev"}}, POSTGRES | {"env": {"DB": "${file:x}"}}, {}, True),
        ({"command": "a", "args": ["--token=abc"]}, {"command": "a", "args": ["--token=${T}"]}, {}, True),
    ],
)
def test_a_server_is_ours(
    theirs: dict[str, Any], written: dict[str, Any], resolved: dict[str, Any], expected: bool
) -> None:
    assert is_served("db", theirs, [Served("db", written, written | resolved)]) is expected


def test_entries_with_references_match_only_under_the_same_name() -> None:
    ours = Served("pg-dev", POSTGRES | {"env": {"DB": "${file:dev}"}}, POSTGRES | {"env": {"DB": "${file:dev}"}})
    theirs = POSTGRES | {"env": {"DB": "postgres://somewhere"}}
    assert is_served("pg-dev", theirs, [ours])
    assert not is_served("pg-prod", theirs, [ours])


def test_the_path_of_a_program_is_that_program() -> None:
    ours = [Served("time", {"command": "uvx", "args": ["time"]}, {"command": "uvx", "args": ["time"]})]
    theirs = {"command": "/opt/bin/uvx", "args": ["time"]}
    assert is_served("time", theirs, ours, {"uvx": "/opt/bin/uvx"}.get)
    assert not is_served("time", theirs, ours, {"uvx": "/usr/bin/uvx"}.get)
    assert not is_served("time", theirs, ours)


def test_a_folder_with_two_paths_holds_one_program_and_a_link_may_be_another(tmp_path: Path) -> None:
    for venv in ("one", "two"):
        (tmp_path / venv / "bin").mkdir(parents=True)
        (tmp_path / venv / "bin" / "python").symlink_to(shutil.which("sh") or "/bin/sh")
    (tmp_path / "bin").symlink_to(tmp_path / "one" / "bin")
    linked, first, second = (str(tmp_path / each / "python") for each in ("bin", "one/bin", "two/bin"))
    assert is_same_program(linked, first, shutil.which)
    assert not is_same_program(first, second, shutil.which)
    assert not is_same_program(str(tmp_path / "gone"), str(tmp_path / "gone too"), shutil.which)


def test_with_certainty_a_reference_stands_for_nothing() -> None:
    ours = [Served("db", POSTGRES | {"env": {"DB": "${file:x}"}}, POSTGRES | {"env": {"DB": "${file:x}"}})]
    theirs = POSTGRES | {"env": {"DB": "dev"}}
    assert is_served("db", theirs, ours) and not is_served("db", theirs, ours, is_certain=True)
    address = [Served("x", {"url": "https://x/key=${keyring:x}"}, {"url": "https://x/key=${keyring:x}"})]
    assert not is_served("x", {"url": "https://x/key=abc"}, address, is_certain=True)
    assert is_served("db", POSTGRES, [Served("db", POSTGRES, POSTGRES)], is_certain=True)
