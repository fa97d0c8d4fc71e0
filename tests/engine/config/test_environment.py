"""Which variables a server gets, and which of those that it does not get it seems to want."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.environment import HARMLESS_VARIABLES, advice, missed_variables, server_environment
from tests.engine.config.loading import parsed, problems_of, server_of, toolbox_with

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
BASE = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "XDG_RUNTIME_DIR": "/run",
    "https_proxy": "http://proxy",
    "GITHUB_TOKEN": "hunter2",
    "AWS_REGION": "here",
    "AWS_SECRET_ACCESS_KEY": "hunter3",
    "WORKBENCH_TOKEN": "hunter4",
    "MCP_WORKBENCH_PROCESS": "1/1;",
    "LC": "not LC_*",
}
names = st.text("ABC_*", min_size=1, max_size=6)


def test_servers_get_harmless_variables_by_default() -> None:
    given = server_environment(BASE, (), {})
    assert given == {name: BASE[name] for name in ("PATH", "LC_ALL", "XDG_RUNTIME_DIR", "https_proxy")}


def test_its_own_variables_come_on_top() -> None:
    given = server_environment(BASE, (), {"PATH": "/opt", "WORKBENCH_TOKEN": "of another workbench"})
    assert (given["PATH"], given["WORKBENCH_TOKEN"]) == ("/opt", "of another workbench")


@pytest.mark.parametrize(
    ("patterns", "more"),
    [
        (("GITHUB_TOKEN",), {"GITHUB_TOKEN"}),
        (("AWS_*",), {"AWS_REGION", "AWS_SECRET_ACCESS_KEY"}),
        (("*_SECRET_*", "NOT_SET"), {"AWS_SECRET_ACCESS_KEY"}),
        (("A*_*N",), {"AWS_REGION"}),
        (("*",), {"GITHUB_TOKEN", "AWS_REGION", "AWS_SECRET_ACCESS_KEY", "LC"}),
        (("WORK*", "*WORKBENCH*"), set()),
    ],
)
def test_inherited_variables_exclude_the_workbenchs_own(patterns: tuple[str, ...], more: set[str]) -> None:
    harmless = server_environment(BASE, (), {})
    assert server_environment(BASE, patterns, {}).keys() - harmless.keys() == more


def test_on_windows_the_case_of_a_name_does_not_count() -> None:
    base = {"Path": r"C:\bin", "SystemRoot": r"C:\Windows", "Github_Token": "x", "workbench_token": "y"}
    given = server_environment(base, ("github_*", "*"), {"PATH": r"C:\own"}, windows=True)
    assert given == {"SystemRoot": r"C:\Windows", "Github_Token": "x", "PATH": r"C:\own"}
    assert server_environment(base, ("github_*",), {}, windows=False) == {}


@given(st.dictionaries(names, names), st.lists(names), st.dictionaries(names, names))
def test_globs_behave_as_in_a_shell(base: dict[str, str], patterns: list[str], own: dict[str, str]) -> None:
    expressions = [re.compile(".*".join(map(re.escape, pattern.split("*")))) for pattern in patterns]
    inherited = {name: value for name, value in base.items() if any(each.fullmatch(name) for each in expressions)}
    assert server_environment(base, patterns, own) == {**inherited, **own}


def test_the_documentation_states_the_list() -> None:
    section = DOCUMENTATION.partition("### What a program inherits")[2].partition("\n## ")[0]
    stated = set(re.findall(r"`([A-Za-z_0-9*()]+)`", section.partition("<!-- end of the list -->")[0]))
    assert stated == set(HARMLESS_VARIABLES)


# The setting


def inherited(file: list[str] | None, toolbox: list[str] | None, server: list[str] | None) -> tuple[str, ...]:
    entry = {"command": "x"} if server is None else {"command": "x", "inheritEnv": server}
    box = {"description": "d", "mcpServers": {"fs": entry}}
    document = {"toolboxes": {"dev": box if toolbox is None else {**box, "inheritEnv": toolbox}}}
    document = document if file is None else {**document, "inheritEnv": file}  # type: ignore[dict-item]
    return parsed(document).toolboxes["dev"].servers["fs"].inherit_env


def test_the_nearest_list_counts() -> None:
    assert inherited(None, None, None) == ()
    assert inherited(["A"], None, None) == ("A",)
    assert inherited(["A"], ["B", " C_* "], None) == ("B", "C_*")
    assert inherited(["A"], ["B"], ["*"]) == ("*",)
    assert inherited(["*"], None, []) == ()


def test_a_plain_file_has_a_list_too_and_addresses_inherit_nothing() -> None:
    config = parsed({"inheritEnv": ["A"], "mcpServers": {"a": {"command": "x"}, "b": {"url": "https://a.b"}}})
    servers = config.toolboxes["default"].servers
    assert (servers["a"].inherit_env, servers["b"].inherit_env) == (("A",), ())


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("PATH", "a list of names and globs"),
        (["A=b"], "write it into `env`"),
        (["!A"], "expected the name of a variable"),
        (["WORKBENCH_TOKEN"], "`WORKBENCH_TOKEN` belongs to the workbench and is never inherited"),
        (["WORKBENCH_*"], "`WORKBENCH_*` belongs to the workbench and is never inherited"),
        ([1], "expected a string"),
    ],
)
def test_invalid_globs_are_reported(written: object, words: str) -> None:
    assert words in str(problems_of(toolbox_with({"command": "x", "inheritEnv": written})))


def test_beside_an_address_it_means_nothing() -> None:
    problems = problems_of(toolbox_with({"url": "https://a.b", "inheritEnv": ["A"]}))
    assert "`inheritEnv` has no meaning next to `url`" in str(problems)


# What must not be printed


def test_a_variable_that_is_inherited_by_name_is_as_secret_as_one_that_is_brought_in() -> None:
    document = toolbox_with({"command": "x", "inheritEnv": ["GITHUB_TOKEN", "AWS_REGION"]})
    assert parsed(document, BASE).secrets >= {"hunter2", "here"}


def test_only_secrets_among_inherited_variables_are_redacted() -> None:
    base = {**BASE, "DATABASE_URL": "postgres://me:hunter5@db/x", "EDITOR": "emacs", "XDG_SESSION_TYPE": "wayland"}
    secrets = parsed(toolbox_with({"command": "x", "inheritEnv": ["*"]}), base).secrets
    assert secrets == {"hunter2", "hunter3", "hunter4", "hunter5"}


def test_our_token_and_proxy_passwords_are_always_secrets() -> None:
    base = {"WORKBENCH_TOKEN": "hunter2", "HTTPS_PROXY": "http://me:hunter3@proxy:3128", "http_proxy": "http://proxy"}
    assert parsed(toolbox_with({"command": "x"}), base).secrets == {"hunter2", "hunter3"}


# What a server that fails may lack


def missed(command_line: str, said: str, base: dict[str, str], inherit: tuple[str, ...] = ()) -> list[str]:
    return missed_variables(base, inherit, {"OWN_KEY": "set"}, command_line.split(), said)


@pytest.mark.parametrize(
    ("command_line", "said", "wanted"),
    [
        ("x node index.js", "Error: please set GITHUB_TOKEN or GH_TOKEN", ["GITHUB_TOKEN"]),
        ("github node index.js", "", ["GITHUB_TOKEN"]),
        ("code npx -y @modelcontextprotocol/server-github", "", ["GITHUB_TOKEN", "NPM_CONFIG_REGISTRY"]),
        ("code npx -y @modelcontextprotocol/server-postgres@1.2 postgres://db", "", ["NPM_CONFIG_REGISTRY"]),
        ("x uvx mcp-server-aws", "", ["AWS_REGION"]),
        ("x /usr/bin/python3.12 -m tool", "No module named tool", ["PYTHONPATH"]),
        ("x ./run.sh --github-token=1", "the path is not set", []),
        ("own ./run.sh", "OWN_KEY WORKBENCH_TOKEN SHLVL PATH are odd", []),
    ],
)
def test_variables_that_it_names_or_is_named_after_are_found(command_line: str, said: str, wanted: list[str]) -> None:
    base: dict[str, str] = {
        "PATH": "/bin",
        "SHLVL": "2",
        "NPM_CONFIG_REGISTRY": "https://r",
        "PYTHONPATH": "/p",
        "GITHUB_TOKEN": "t",
        "AWS_REGION": "r",
        "OWN_KEY": "of the shell",
        "WORKBENCH_TOKEN": "t",
        "SET": "x",
    }
    assert missed(command_line, said, base) == wanted


def test_inherited_variables_are_not_reported_as_missing() -> None:
    assert missed("github x", "", {"GITHUB_TOKEN": "t"}, inherit=("GITHUB_*",)) == []


def test_the_advice_can_be_copied() -> None:
    server: tuple[tuple[str, ...], dict[str, str], tuple[str, ...]] = ("AWS_*",), {}, ("github", "x")
    assert advice({}, *server, "") is None
    assert advice({"GITHUB_TOKEN": "t"}, *server, "") == (
        "`GITHUB_TOKEN` is set, but not passed on to this server; if it needs it, add "
        '`"inheritEnv": ["AWS_*", "GITHUB_TOKEN"]` to it'
    )
    several = advice({"GITHUB_TOKEN": "t", "GITHUB_HOST": "h", "KEY_FILE": "k"}, *server, "no KEY_FILE")
    assert several is not None and several.startswith("`KEY_FILE`, `GITHUB_TOKEN` and `GITHUB_HOST` are set, but not")


def test_inherit_env_of_a_server_is_read() -> None:
    assert server_of({"command": "x", "inheritEnv": ["A", "B_*"]}).inherit_env == ("A", "B_*")
