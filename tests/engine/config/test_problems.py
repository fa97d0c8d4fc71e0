"""Configurations broken in many ways: each problem has its line, its path, what was found and what to do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.config.foreign_keys import FOREIGN_KEYS, UNSUPPORTED_KEYS
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.problems import ConfigProblems
from tests.engine.config.loading import FILE, outcome_of, problems_of, toolbox_with

# One line for each level, so that every problem inside the server stands on line 6.
TOOLBOX = '{"toolboxes":\n {"dev":\n  {"description": "d",\n   "mcpServers":\n    {"fs":\n %s\n}}}}'
DYNAMIC = TOOLBOX.replace('{"toolboxes"', '{"face": "dynamic", "toolboxes"')
PLAIN = '{"mcpServers":\n {"fs":\n %s\n}}'
GOOD = '{"command": "npx"}'
FS = "$.toolboxes.dev.mcpServers.fs"

# text, line, path, words that the problem must hold
FILES = [
    ("[]", 1, "$", "expected an object with `toolboxes` or `mcpServers`"),
    ('"toolboxes"', 1, "$", "found `toolboxes`, expected an object"),
    ("null", 1, "$", "found null"),
    ("{}", 1, "$", "found neither `toolboxes` nor `mcpServers`"),
    ('{"other": 1}', 1, "$", "found neither `toolboxes` nor `mcpServers`"),
    ('{"projects": {"/x": {"mcpServers": {"a": {}}}}}', 1, "$", 'servers at $.projects["/x"].mcpServers (`a`)'),
    ('{"mcpServers": {}, "projects": {"/x": {"mcpServers": {"a": {}}}}}', 1, "$.mcpServers", 'at $.projects["/x"]'),
    ('{"mcp": {"servers": {"a": {}}}}', 1, "$", "servers at $.mcp.servers (`a`)"),
    ('{"separator": " ", "mcpServers": {"a": {"command": "a"}}}', 1, "$.separator", "such as `__`"),
    ('{"separator": "\\ufeff", "mcpServers": {"a": {"command": "a"}}}', 1, "$.separator", "without white space"),
    ('{"separator": "a b", "mcpServers": {"a": {"command": "a"}}}', 1, "$.separator", "without white space"),
    ('{"separator": 1, "mcpServers": {"a": {"command": "a"}}}', 1, "$.separator", "found a number"),
    ('{"toolboxs": {}}', 1, "$.toolboxs", "did you mean `toolboxes`?"),
    ('{\n"mcpservers": {}}', 2, "$.mcpservers", "did you mean `mcpServers`?"),
    ('{"toolboxes": {}}', 1, "$.toolboxes", "found an empty object, expected an object with at least one toolbox"),
    ('{"toolboxes": []}', 1, "$.toolboxes", "found an empty list"),
    ('{"toolboxes": "x"}', 1, "$.toolboxes", "found `x`"),
    ('{"mcpServers": {}}', 1, "$.mcpServers", "at least one server"),
    ('{"mcpServers": null}', 1, "$.mcpServers", "found null"),
    ('{"servers": 1}', 1, "$.servers", "found a number `1`"),
    ('{"toolboxes":\n {"dev": []}}', 2, "$.toolboxes.dev", "an object that describes the toolbox"),
    ('{"toolboxes":\n {"dev": {}}}', 2, "$.toolboxes.dev", "found no `description`"),
    ('{"toolboxes":\n {"dev": {"description": "x"}}}', 2, "$.toolboxes.dev", "found no `mcpServers`"),
    (TOOLBOX.replace('"d"', '" "') % GOOD, 3, "$.toolboxes.dev.description", "a string that is not empty"),
    (TOOLBOX.replace('"d"', "7") % GOOD, 3, "$.toolboxes.dev.description", "found a number `7`"),
    (TOOLBOX.replace('"d"', '"d", "descripton": 1') % GOOD, 3, "$.toolboxes.dev.descripton", "`description`?"),
    (
        TOOLBOX.replace('"d"', '"d", "toolFilters": []') % GOOD,
        3,
        "$.toolboxes.dev.toolFilters",
        "`toolFilters` is a setting of a server",
    ),
    (TOOLBOX.replace('"dev"', '"d__v"') % GOOD, 2, "$.toolboxes.d__v", "contains `__`"),
    (DYNAMIC.replace('"fs"', '"__proto__"') % GOOD, 5, "$.toolboxes.dev.mcpServers.__proto__", "contains `__`"),
    (DYNAMIC.replace('"fs"', '"_fs"') % GOOD, 5, "$.toolboxes.dev.mcpServers._fs", "starts with `_`"),
    (DYNAMIC.replace('"dev"', '"dev_"') % GOOD, 2, "$.toolboxes.dev_", "ends with `_`"),
    (TOOLBOX.replace('"fs"', '"fs\\ufeff"') % GOOD, 5, '$.toolboxes.dev.mcpServers["fs\\ufeff"]', "white space"),
    (TOOLBOX.replace('"dev"', '""') % GOOD, 2, '$.toolboxes[""]', "the toolbox name `` is empty"),
    (TOOLBOX.replace('"fs"', '""') % GOOD, 5, '$.toolboxes.dev.mcpServers[""]', "the server name `` is empty"),
    ('{"toolboxes": {"dev": {},\n"dev": {}}}', 2, "$.toolboxes.dev", "the key `dev` appears more than once"),
    (TOOLBOX.replace('"fs"', '" fs"') % GOOD, 5, '$.toolboxes.dev.mcpServers[" fs"]', "white space"),
    (TOOLBOX.replace('"fs"', '"f\\ts"') % GOOD, 5, '$.toolboxes.dev.mcpServers["f\\ts"]', "control character"),
    (TOOLBOX.replace('"dev"', f'"{"d" * 201}"') % GOOD, 2, f"$.toolboxes.{'d' * 59}…", "has 201 characters"),
    ('{"face": "dynamic", "mcpServers": {"a__b":\n {"command": "x"}}}', 1, "$.mcpServers.a__b", "contains `__`"),
    ('{"face": "flatt",\n"mcpServers": {"a": {"command": "x"}}}', 1, "$.face", "did you mean `flat`?"),
    ('{"maxMessageBytes": 0, "mcpServers": {"a": {"command": "x"}}}', 1, "$.maxMessageBytes", "whole number from"),
    ('{"maxMessageBytes": 2e3.5, "mcpServers": {}}', 1, "$.maxMessageBytes", "found `2e3.5`"),
    ('{"maxMessageBytes": 5000.5, "mcpServers": {"a": {"command": "x"}}}', 1, "$.maxMessageBytes", "`5000.5`"),
    ('{"toolboxes": {"d": {"description": "d", "mcpServers": {"a": {"command": "x"}}}},\n"mcpServers": {}}', 2,
     "$.mcpServers", "found `mcpServers` next to `toolboxes`"),
    ('{"toolboxes": {"d": {"description": "d", "mcpServers": {"a": {"command": "x"}}}},\n"toolMode": "dynamic"}', 2,
     "$.toolMode", '`toolMode` is `face` here: "face": "proxy" or "face": "dynamic"'),
    ('{"mcpServers": {"a": {"command": "x", "disabled": true}}}', 1, "$.mcpServers", "every server is disabled"),
]  # fmt: skip

# server, path below it, words
SERVERS = [
    ("[]", "", "an object that describes the server"),
    ("{}", "", "found neither `command` nor `url`"),
    ('{"comand": "npx"}', ".comand", "unknown key `comand`; did you mean `command`?"),
    ('{"command": "x", "Args": []}', ".Args", "did you mean `args`?"),
    ('{"command": "x", "zzz": 1}', ".zzz", "unknown key `zzz`, expected one of `command`"),
    ('{"command": "x", "url": "https://a.b"}', ".url", "found `command` and `url`, expected only one"),
    ('{"url": "https://a.b", "httpUrl": "https://a.b"}', ".httpUrl", "found `url` and `httpUrl`"),
    ('{"command": ""}', ".command", "found an empty string"),
    ('{"command": ["npx", "-y"]}', ".command", "found a list"),
    ('{"command": "a\\u0000b"}', ".command", "NUL"),
    ('{"command": "x", "args": "-y"}', ".args", "found `-y`, expected a list of strings"),
    ('{"command": "x", "args": ["--port", 8080]}', ".args[1]", 'put it in quotes: `"8080"`'),
    ('{"command": "x", "args": [null]}', ".args[0]", "found null"),
    ('{"command": "x", "env": ["A=b"]}', ".env", "found a list, expected an object such as"),
    ('{"command": "x", "env": {"A": null}}', ".env.A", "found null"),
    ('{"command": "x", "env": {"A": {"b": 1}}}', ".env.A", "found an object, expected a string"),
    ('{"command": "x", "env": {"A=B": "c"}}', '.env["A=B"]', "has no `=` in it"),
    ('{"command": "x", "env": {"": "c"}}', '.env[""]', "the name of a variable"),
    ('{"command": "x", "cwd": 3}', ".cwd", "found a number `3`"),
    ('{"command": "x", "headers": {"A": "b"}}', ".headers", "`headers` has no meaning next to `command`"),
    ('{"url": "https://a.b", "args": ["x"]}', ".args", "`args` has no meaning next to `url`"),
    ('{"url": "ftp://a.b"}', ".url", "found an address with `ftp://`"),
    ('{"url": "a.b/mcp"}', ".url", "without `http://` or `https://`"),
    ('{"url": "https://"}', ".url", "without a host"),
    ('{"url": "https:///mcp"}', ".url", "without a host"),
    ('{"url": "https://:80/mcp"}', ".url", "without a host"),
    ('{"url": "https://a b/mcp"}', ".url", "white space"),
    ('{"url": "https://a.b:99999/mcp"}', ".url", "the port `99999`"),
    ('{"url": "https://[::1/mcp"}', ".url", "an invalid host"),
    ('{"url": 5}', ".url", "found a number `5`"),
    ('{"url": "https://a.b", "headers": {"A B": "c"}}', '.headers["A B"]', "the name of a header"),
    ('{"url": "https://a.b", "headers": {"A": "b\\nc: d"}}', ".headers.A", "a line break"),
    ('{"url": "https://a.b", "headers": {"A": 1}}', ".headers.A", "found a number, expected a string"),
    ('{"url": "https://a.b", "headers": []}', ".headers", "found an empty list"),
    ('{"url": "https://a.b", "type": "websocket"}', ".type", "found `websocket`, expected one of `stdio`"),
    ('{"url": "https://a.b", "type": "stdio"}', ".type", "found `stdio` beside an address, expected `http`"),
    ('{"command": "x", "transport": "sse"}', ".transport", "found `sse` beside `command`, expected `stdio`"),
    ('{"url": "https://a.b", "type": "http", "transport": "sse"}', ".transport", "`transport` and `type` disagree"),
    ('{"command": "x", "toolFilters": "*"}', ".toolFilters", "a list of tool names and globs"),
    ('{"command": "x", "toolFilters": [""]}', ".toolFilters[0]", "found an empty string"),
    ('{"command": "x", "toolFilters": ["a", "!"]}', ".toolFilters[1]", "after `!`"),
    ('{"command": "x", "toolFilters": [1]}', ".toolFilters[0]", "found a number `1`"),
    ('{"command": "x", "timeout": 0}', ".timeout", "leave the key out"),
    ('{"command": "x", "timeout": -1}', ".timeout", "above 0"),
    ('{"command": "x", "timeout": "30"}', ".timeout", "found the string `30`, expected seconds"),
    ('{"command": "x", "timeout": true}', ".timeout", "found `true`, expected seconds"),
    ('{"command": "x", "timeout": null}', ".timeout", "found null, expected seconds"),
    ('{"command": "x", "timeout": 120000}', ".timeout", "the unit is seconds: 120000 ms is written 120"),
    ('{"command": "x", "timeout": 1%s}' % ("0" * 400), ".timeout", "at most 86,400"),
    ('{"command": "x", "startupTimeout": []}', ".startupTimeout", "found an empty list"),
    ('{"command": "x", "idleTimeout": -5}', ".idleTimeout", "or `null` for never"),
    ('{"command": "x", "protocol": "2025-06-19"}', ".protocol", "did you mean `2025-06-18`?"),
    ('{"command": "x", "protocol": 2}', ".protocol", "found a number, expected one of `auto`"),
    ('{"command": "x", "rename": ["a"]}', ".rename", "expected an object such as"),
    ('{"command": "x", "rename": {"a": ""}}', ".rename.a", "the new name of the tool"),
    ('{"command": "x", "rename": {"a": " b"}}', ".rename.a", "white space at its ends"),
    ('{"command": "x", "rename": {"": "b"}}', '.rename[""]', "the name of a tool"),
    ('{"command": "x", "rename": {"a": "c", "b": "c"}}', ".rename.b", "found `c`, which `a` is renamed to"),
    ('{"command": "x", "disabled": "yes"}', ".disabled", "`true` or `false`"),
    ('{"command": "x", "disabledTools": "a"}', ".disabledTools", "a list of tool names"),
    ('{"command": "x", "envFile": 3}', ".envFile", "found a number `3`, expected a path, or a list of paths"),
    ('{"command": "${input:x}"}', ".command", "an editor asks for"),
    ('{"command": "x", "args": ["${A", "b"]}', ".args[0]", "`${` without its `}`"),
    ('{"command": "x", "command": "y"}', ".command", "appears more than once"),
]  # fmt: skip


@pytest.mark.requirement("config.names")
@pytest.mark.parametrize(("text", "line", "path", "words"), FILES)
def test_a_broken_file_is_reported_with_line_and_path(text: str, line: int, path: str, words: str) -> None:
    problem = _the_problem(text, path, words)
    assert problem == line


@pytest.mark.parametrize(("server", "below", "words"), SERVERS)
def test_a_broken_server_is_reported_with_line_and_path(server: str, below: str, words: str) -> None:
    line = _the_problem(TOOLBOX % server, FS + below, words)
    assert line == (5 if words.startswith("found neither") else 6)


def _the_problem(text: str, path: str, words: str) -> int | None:
    """The line of the one problem of `text` that has this path and these words."""
    error = problems_of(text, {"EMPTY": "", "WORD": "word"})
    matching = [p for p in error.problems if p.path_in_file == path and words in p.render(FILE)]
    assert len(matching) == 1, str(error)
    assert str(error).startswith(FILE)
    return matching[0].line


def test_there_are_more_than_fifty_ways() -> None:
    assert len({text for text, *_ in FILES} | {server for server, *_ in SERVERS}) > 50


def test_a_single_mistake_is_a_single_problem() -> None:
    for text, *_ in SERVERS:
        error = problems_of(TOOLBOX % text, {"EMPTY": "", "WORD": "word"})
        assert len(error.problems) == 1, str(error)


@pytest.mark.requirement("errors.config")
def test_all_problems_of_all_servers_are_reported_at_once() -> None:
    servers = {
        f"s{number}": json.loads(text) for number, (text, *_) in enumerate(SERVERS) if "more than once" not in _[1]
    }
    document = {"toolboxes": {"dev": {"description": "d", "mcpServers": servers}}}
    error = problems_of(document, {"EMPTY": "", "WORD": "word"})
    assert {problem.steps[3] for problem in error.problems if problem.steps} == set(servers)


@pytest.mark.requirement("config.secrets")
def test_values_of_env_and_headers_are_never_repeated() -> None:
    for server in (
        {"command": "x", "env": {"A": ["hunter2hunter2"], "B": "hunter2hunter2\0"}},
        {"command": "x", "env": "hunter2hunter2"},
        {"url": "https://a.b", "headers": {"A": "hunter2hunter2\nx", "B": ["hunter2hunter2"]}},
        {"url": "ftp://me:hunter2hunter2@a.b"},
        {"url": "https://me:hunter2hunter2@a.b:0"},
    ):
        assert "hunter2" not in str(problems_of(toolbox_with(server), {"HUNTER": "hunter2hunter2"}))


def test_variables_that_would_fill_the_memory_are_refused() -> None:
    servers = toolbox_with({"command": "x", "args": ["${BIG}"] * 1_000})
    error = problems_of(servers, {"BIG": "x" * 100_000})
    assert "characters from variables" in str(error)


def test_a_file_of_ten_megabytes_is_judged_like_any_other() -> None:
    history = ["x" * 1_000] * 10_000
    text = json.dumps({"history": history, "mcpServers": {"fs": {"comand": "x"}}}, indent=0)
    (problem,) = problems_of(text).problems
    assert problem.path_in_file == "$.mcpServers.fs.comand"
    assert problem.line == text.count("\n", 0, text.index('"comand"')) + 1


NAMES = st.sampled_from([*ServerConfig.SETTINGS, *FOREIGN_KEYS, *UNSUPPORTED_KEYS, "unknown"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["stdio", "http", "auto", "https://a.b", "${A}", "${A:-1}", "!x", "*", ""])
)
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))


@settings(deadline=None)
@given(st.dictionaries(NAMES, ANYTHING, max_size=6), st.booleans())
def test_validation_survives_any_server_entry(server: dict[str, object], plain: bool) -> None:
    document = {"mcpServers": {"fs": server}} if plain else toolbox_with(server)
    outcome = outcome_of(document, {"A": "value"})
    if isinstance(outcome, ConfigProblems):
        assert outcome.problems
        assert all(problem.line == 1 for problem in outcome.problems)
    else:
        (loaded,) = outcome.toolboxes["default" if plain else "dev"].servers.values()
        assert (loaded.command is None) != (loaded.url is None)
