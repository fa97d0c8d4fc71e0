"""`workbench.lock`: one line a definition, in one order; and what is said of a file that cannot be used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec import Raw

from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.errors import ConfigError
from mcp_workbench.team.lock.definition_store import DefinitionStore
from mcp_workbench.team.lock.lock_file import (
    MAX_LOCK_FILE_BYTES,
    LockedServer,
    LockFile,
    canonical_definition,
    definition_hash,
    merged,
    parse_lock,
    read_lock,
    written,
)
from tests.support.in_process_workbench import Server, write


@pytest.fixture
def config(tmp_path: Path) -> WorkbenchConfig:
    return load(str(write(tmp_path, {"box": {"a": Server(), "b": Server()}})), os.environ)


def lock(**servers: LockedServer) -> LockFile:
    return LockFile(1, "workbench-config.json", {"box": servers})


@pytest.mark.parametrize(
    "other",
    [b'{"name":"t","a":{"x":1,"y":[1,2]}}', b'{ "a" : {"y":[1, 2],"x":1},\n"name":"\\u0074" }'],
)
def test_order_and_white_space_do_not_matter(other: bytes) -> None:
    assert definition_hash(Raw(b'{"a":{"x":1,"y":[1,2]},"name":"t"}')) == definition_hash(Raw(other))


@pytest.mark.parametrize("other", [b'{"a":{"x":2}}', b'{"a":{"x":1},"b":null}', b'{"a":{"x":"1"}}', b'{"a":[1]}'])
def test_everything_else_does(other: bytes) -> None:
    assert definition_hash(Raw(b'{"a":{"x":1}}')) != definition_hash(Raw(other))


@pytest.mark.parametrize("definition", [b'{"a":"\\ud800"}', b"[" * 5000 + b"]" * 5000, b"\xff"])
def test_unreadable_definitions_have_a_hash(definition: bytes) -> None:
    assert definition_hash(Raw(definition)).startswith("sha256:")


@pytest.mark.requirement("lock.file")
def test_each_definition_is_a_line_and_the_order_is_always_the_same(config: WorkbenchConfig) -> None:
    one = lock(b=LockedServer(tools={"z": "1", "a": "2"}), a=LockedServer(package="npm:x@1", prompts={"p": "3"}))
    two = lock(a=LockedServer(prompts={"p": "3"}, package="npm:x@1"), b=LockedServer(tools={"a": "2", "z": "1"}))
    assert written(one) == written(two)
    text = written(one).decode()
    assert '          "a": "2",\n          "z": "1"\n' in text and text.endswith("}\n")
    assert parse_lock(written(one), config.lock_target) == one


def test_removed_servers_are_dropped_and_failed_ones_kept(config: WorkbenchConfig) -> None:
    before = lock(a=LockedServer(package="old"), gone=LockedServer())
    made = merged(before, config.lock_target, {("box", "b"): LockedServer(package="new")})
    assert {name: each.package for name, each in made.toolboxes["box"].items()} == {"a": "old", "b": "new"}


CONFLICT = b'{\n"version": 1,\n<<<<<<< HEAD\n"config": "a"\n=======\n"config": "b"\n>>>>>>> other\n}\n'


@pytest.mark.requirement("lock.unusable")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (CONFLICT, "has conflict marks in line 3"),
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"version": 1}', "is damaged"),
        (b'{"version":1,"config":"workbench-config.json","toolboxes":{"box":{"a":{"tools":{"t":1}}}}}', "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[" * 5000, "is damaged"),
        (b'{"version": 3, "anything": true}', "was written by a newer version"),
        (b'{"version":1,"config":"other.json","toolboxes":{}}', "belongs to another configuration, `other.json`"),
        (
            b'{"version":1,"config":"workbench-config.json","toolboxes":{"x":{"y":{}}}}',
            "belongs to another configuration",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(config: WorkbenchConfig, content: bytes, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_lock(content, config.lock_target)
    assert problem in caught.value.message and caught.value.hint


def test_a_file_is_read_or_said_to_be_unreadable(config: WorkbenchConfig, tmp_path: Path) -> None:
    path = tmp_path / "workbench.lock"
    assert read_lock(config.lock_target) is None
    path.write_bytes(written(lock(a=LockedServer())))
    assert read_lock(config.lock_target) == lock(a=LockedServer())
    with path.open("ab") as file:
        file.truncate(MAX_LOCK_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match="too large"):
        read_lock(config.lock_target)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_lock(config.lock_target)


def test_definitions_that_were_locked_here_are_remembered(tmp_path: Path) -> None:
    definition = Raw(b'{"name":"t", "description":"d"}')
    store = DefinitionStore(str(tmp_path / "store"))
    store.keep([definition, definition])
    assert store.known(definition_hash(definition)) == canonical_definition(definition)
    (kept,) = (tmp_path / "store").iterdir()
    kept.write_bytes(json.dumps({"name": "t", "description": "another"}).encode())
    assert store.known(definition_hash(definition)) is None


@pytest.mark.parametrize("hash", ["sha256:" + "0" * 64, "sha256:../../etc/passwd", "", "x"])
def test_definition_that_was_not_stored_is_unknown(tmp_path: Path, hash: str) -> None:
    assert DefinitionStore(str(tmp_path)).known(hash) is None
    assert DefinitionStore(None).known(hash) is None


def test_a_store_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    DefinitionStore(str(tmp_path / "file" / "below")).keep([Raw(b"{}")])
    DefinitionStore(None).keep([Raw(b"{}")])
