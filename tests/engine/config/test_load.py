"""From a file to a configuration: the file itself, the two readers, and what start-up pays."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.config import jsonc
from mcp_workbench.engine.config.load import MAX_CONFIG_BYTES, _members_read, _members_written, load, read
from mcp_workbench.engine.config.model import DEFAULT_MAX_MESSAGE_BYTES
from mcp_workbench.engine.config.problems import ConfigProblems
from tests.engine.config.loading import FILE, outcome_of, parsed, problems_of, toolbox_with

GOOD = toolbox_with({"command": "npx"})


def test_reading_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text(json.dumps(GOOD))
    tracemalloc.start()
    try:
        read(str(path))
        assert tracemalloc.get_traced_memory()[1] < MAX_CONFIG_BYTES // 16
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    os.mkfifo(path)
    with pytest.raises(ConfigProblems, match="is a pipe or a device, expected a file"):
        load(str(path), {})


def test_a_file_is_loaded_with_every_default_filled_in(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text(json.dumps(GOOD))
    config = load(str(path), {})
    server = config.toolboxes["dev"].servers["fs"]
    assert config.path == str(path)
    assert config.toolboxes["dev"].description == "d"
    assert (config.plain, config.face, config.max_message_bytes) == (False, None, DEFAULT_MAX_MESSAGE_BYTES)
    assert (server.name, server.transport, server.command, server.args) == ("fs", "stdio", "npx", ())
    assert (server.timeout, server.startup_timeout, server.idle_timeout) == (120.0, 60.0, 600.0)
    assert (server.tool_filters, server.rename, server.protocol) == (None, {}, "auto")


def test_comments_trailing_commas_and_a_byte_order_mark_are_welcome() -> None:
    text = '\ufeff// mine\n{"mcpServers": {"fs": {"command": "npx", /* quick */ "args": ["-y",],},},}'
    assert parsed(text).toolboxes["default"].servers["fs"].args == ("-y",)


def test_a_good_file_without_comments_never_meets_the_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the slow reader was used")

    monkeypatch.setattr(jsonc, "Document", never)
    parsed(GOOD)
    parsed(toolbox_with({"command": 'a "quoted": \\ thing', "args": ["::", '\\":"']}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"\xef\xbb\xbf\n", "is empty"),
        (b'{"a":\n "\xff"}', f"{FILE}:2:3: found the byte `0xff`, which is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "it seems to be UTF-16"),
        (b"x" * (MAX_CONFIG_BYTES + 1), "is larger than 16 MiB"),
    ],
)
def test_a_file_that_is_no_text_is_reported_as_such(
    content: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigProblems) as caught:
        load(FILE, {})
    assert words in str(caught.value)


def test_a_file_that_cannot_be_opened_is_reported_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems, match="does not exist"):
        load(str(tmp_path / "gone.json"), {})
    with pytest.raises(ConfigProblems, match="is a folder"):
        load(str(tmp_path), {})
    with pytest.raises(ConfigProblems, match="cannot be read"):
        load("no\0such", {})
    (tmp_path / "loop.json").symlink_to("loop.json")
    with pytest.raises(ConfigProblems, match="cannot be read"):
        load(str(tmp_path / "loop.json"), {})


def test_a_file_without_permission_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE
    path.write_text(json.dumps(GOOD))
    path.chmod(0)
    if os.access(path, os.R_OK):  # a superuser may read everything

        def refuse(*_: object, **how: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ConfigProblems, match="permission denied"):
        load(str(path), {})


def test_syntax_and_meaning_are_reported_together_in_the_order_of_the_file() -> None:
    text = """{
  "toolboxes": {
    "dev": {
      "mcpServers": {
        "fs": {"comand": "npx", "timeout": NaN}
        "fs": {"command": 5},
      }
    }
  },
  "faces": "flat"
}"""
    assert str(problems_of(text)).splitlines() == [
        "workbench-config.json: 6 problems",
        "workbench-config.json:3:5: $.toolboxes.dev: found no `description`, expected one",
        "  hint: say in a sentence what the toolbox is for: the agent chooses by it",
        "workbench-config.json:5:44: $.toolboxes.dev.mcpServers.fs.timeout: found `NaN`, expected a value that JSON "
        "knows",
        '  hint: write a string in `"`, a number such as `1.5`, `true`, `false`, `null`, a list or an object',
        "workbench-config.json:6:9: $.toolboxes.dev.mcpServers: found a string, expected `,` or `}`",
        "workbench-config.json:6:9: $.toolboxes.dev.mcpServers.fs: the key `fs` appears more than once",
        "  hint: the first one is on line 5; keep one of them",
        "workbench-config.json:6:27: $.toolboxes.dev.mcpServers.fs.command: found a number `5`, expected a string "
        "that is not empty",
        "workbench-config.json:10:3: $.faces: unknown key `faces`; did you mean `face`?",
    ]


def test_a_key_that_is_repeated_in_good_json_is_found() -> None:
    error = problems_of('{"mcpServers": {"a": {"command": "x"},\n "a": {"command": "y"}}}')
    (problem,) = error.problems
    assert (problem.path_in_file, problem.line, problem.column) == ("$.mcpServers.a", 2, 2)
    assert problem.hint == "the first one is on line 1; keep one of them"


def test_other_keys_beside_the_servers_are_left_alone() -> None:
    config = parsed('{"mcpServers": {"a": {"command": "x"}}, "history": {"k": "${NOPE}", "k": 1}, "env": null}')
    assert list(config.toolboxes["default"].servers) == ["a"]


def test_a_file_wrong_in_a_million_places_has_a_bounded_text() -> None:
    error = problems_of(toolbox_with({"command": "x", **{f"key{number}": 1 for number in range(5_000)}}))
    assert len(error.problems) == 5_000
    assert len(str(error)) < 100_000
    assert str(error).endswith("workbench-config.json: and 4,800 more problems")


def test_nesting_without_end_is_a_problem_and_not_a_crash() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"mcpServers":' + "[" * 5_000 + "]" * 5_000 + "}"):
        assert "levels of nesting" in str(problems_of(text))


VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | st.text(alphabet='ab":\\{}[],\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='ab":\\', max_size=4), inner),
)


@settings(deadline=None)
@given(VALUES, st.booleans())
def test_counting_colons_counts_the_members(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1).encode()
    assert _members_written(text) == _members_read(value)


@settings(deadline=None)
@given(VALUES | st.dictionaries(st.sampled_from(["toolboxes", "mcpServers", "servers", "face"]), VALUES))
def test_no_document_breaks_the_validation(value: object) -> None:
    outcome = outcome_of(json.dumps(value))
    if isinstance(outcome, ConfigProblems):
        assert outcome.problems
        assert all(problem.line for problem in outcome.problems)


@pytest.mark.processes
def test_valid_file_costs_no_diagnosis_at_start_up(tmp_path: Path) -> None:
    path = tmp_path / FILE
    server = {"command": "npx", "env": {"TOKEN": "${TOKEN:-some-token}"}, "toolFilters": ["*"]}
    path.write_text(json.dumps(toolbox_with(server)))
    script = (
        "import sys, msgspec\n"
        "before = set(sys.modules)\n"
        "from mcp_workbench.engine.config.load import load\n"
        f"load({str(path)!r}, {{}})\n"
        "print(sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("mcp_workbench.engine.") for name in ast.literal_eval(run.stdout)}
    assert {"config.load", "config.model", "config.setting"} <= loaded
    deferred = {f"config.{name}" for name in ("jsonc", "members", "oauth_settings", "auth_settings", "policy_settings")}
    heavy = {"argparse", "difflib", "platformdirs", "jsonschema", "dataclasses", "json", "nearest"}
    assert loaded & (deferred | heavy) == set()
