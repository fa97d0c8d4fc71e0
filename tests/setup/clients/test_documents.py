"""Files of clients: the golden files, and content that is broken, empty or unusual."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.problems import ConfigProblems
from mcp_workbench.setup.clients import documents
from mcp_workbench.setup.clients.documents import has_comments, servers_in, with_server, without_servers
from mcp_workbench.setup.clients.table import clients
from tests.setup.clients.golden_files import Golden, golden_files, installed, read

CURSOR = clients()["cursor"].file[0]
CODEX = clients()["codex"].file[0]
GOOSE = clients()["goose"].file[0]
ENTRY = {"command": "/opt/mcp-workbench", "args": ["serve"]}


@pytest.mark.parametrize("golden", golden_files(), ids=lambda golden: golden.name)
def test_golden_files_are_read_written_and_taken_back(golden: Golden) -> None:
    assert read(golden) == json.loads(golden.read.read_text("utf-8"))
    after = installed(golden)
    assert after == golden.after.read_bytes()
    servers = servers_in(after, golden.file, "x")
    assert list(servers)[-1] == "workbench"
    taken_out = without_servers(after, golden.file, ["workbench"], "x")
    assert servers_in(taken_out, golden.file, "x") == servers_in(golden.before.read_bytes(), golden.file, "x")
    if golden.file.format in ("json", "jsonc") and b'"workbench"' in after and servers_in(taken_out, golden.file, "x"):
        assert taken_out == golden.before.read_bytes(), "every byte outside of the edit stays"


def test_there_is_a_golden_file_for_every_client() -> None:
    names = " ".join(golden.name for golden in golden_files())
    assert [name for name in clients() if name not in names] == []


@pytest.mark.parametrize(
    "before", [b"", b"  \r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf{}", b"{}", b'{"other": 1}', b'{\r\n\t"a": [1]\r\n}\r\n']
)
def test_byte_order_mark_and_line_endings_are_kept(before: bytes) -> None:
    after = with_server(before, CURSOR, "workbench", ENTRY, "x")
    assert servers_in(after, CURSOR, "x") == {"workbench": ENTRY}
    assert after.startswith(b"\xef\xbb\xbf") == before.startswith(b"\xef\xbb\xbf")
    if b"\r\n" in before:
        assert after.count(b"\n") == after.count(b"\r\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"mcpServers": {"a": {"comm', "a string that does not end"),
        (b"[]", "is not an object"),
        (b'{"mcpServers": []}', "something other than servers"),
        (b'{"mcpServers": "none"}', "something other than servers"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8"),
    ],
)
def test_an_invalid_file_is_not_edited(content: bytes, said: str) -> None:
    for act in (
        lambda: servers_in(content, CURSOR, "x.json"),
        lambda: with_server(content, CURSOR, "workbench", ENTRY, "x.json"),
        lambda: without_servers(content, CURSOR, ["a"], "x.json"),
    ):
        with pytest.raises(ConfigProblems) as caught:
            act()
        assert said in caught.value.message and "x.json" in caught.value.message


def test_broken_toml_and_yaml_are_not_edited() -> None:
    with pytest.raises(ConfigProblems, match="is not TOML"):
        with_server(b"a = [", CODEX, "workbench", ENTRY, "x.toml")
    with pytest.raises(ConfigProblems, match="is not YAML"):
        with_server(b"a: [", GOOSE, "workbench", ENTRY, "x.yaml")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"d: 2020-13-45\n", "month must be in 1..12"),
        (b"[" * 5_000, "nested more than 200 levels deep"),
        (b"- " * 5_000, "is not YAML"),
        (b"a: &a\n  <<: *a\n", "is not YAML"),
        (b"a: !!python/object:x {}\nextensions: 5", "something other than servers"),
    ],
)
def test_yaml_that_its_parser_stumbles_over_is_reported_as_invalid(content: bytes, said: str) -> None:
    with pytest.raises(ConfigProblems, match=said):
        servers_in(content, GOOSE, "x")


def test_comments_are_noticed_and_kept_where_a_client_does_not_allow_them() -> None:
    before = b'{\n  // mine\n  "mcpServers": {}\n}\n'
    assert has_comments(before) and not has_comments(b"{}") and not has_comments(b"")
    assert b"// mine" in with_server(before, CURSOR, "workbench", ENTRY, "x")


def test_an_entry_is_replaced_where_it_stands() -> None:
    before = b'{"mcpServers": {"workbench": {"command": "old"}, "b": {"command": "c"}}}'
    after = with_server(before, CURSOR, "workbench", ENTRY, "x")
    assert list(servers_in(after, CURSOR, "x")) == ["workbench", "b"] and b"old" not in after
    again = with_server(b"[mcp_servers.workbench]\ncommand = 'old'\n", CODEX, "workbench", ENTRY, "x")
    assert servers_in(again, CODEX, "x") == {"workbench": ENTRY}


def test_names_that_differ_in_case_are_two_servers() -> None:
    before = b'{"mcpServers": {"GitHub": {"command": "a"}, "github": {"command": "b"}}}'
    after = without_servers(before, CURSOR, ["github"], "x")
    assert list(servers_in(after, CURSOR, "x")) == ["GitHub"]


def test_servers_in_dotted_keys_stay_as_they_are() -> None:
    before = b'mcp_servers.a.command = "x"\nmcp_servers.a.args = ["--safe"]\n\n[other]\nb = 1\n'
    after = with_server(before, CODEX, "workbench", ENTRY, "x")
    assert after.startswith(before.rstrip())
    assert servers_in(after, CODEX, "x") == {"a": {"command": "x", "args": ["--safe"]}, "workbench": ENTRY}
    assert servers_in(without_servers(after, CODEX, ["workbench"], "x"), CODEX, "x").keys() == {"a"}


def test_an_edit_that_would_change_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("set_member", "remove_member"):
        monkeypatch.setattr(documents, name, lambda text, *_: text.replace("--safe", "--fast"))
    before = b'{"mcpServers": {"a": {"command": "x", "args": ["--safe"]}}}'
    with pytest.raises(ConfigProblems, match="cannot be edited without changing something else; nothing was changed"):
        with_server(before, CURSOR, "workbench", ENTRY, "x")
    with pytest.raises(ConfigProblems, match="cannot be edited without changing something else; nothing was changed"):
        without_servers(before, CURSOR, ["a"], "x")


@pytest.mark.parametrize(
    "before",
    [
        "extensions:\n    m:\n        cmd: x\n        args:\n            - q\n\n# about other\nother:\n    k: v\n",
        "a: 1\r\nextensions:\r\n  m:\r\n    cmd: x\r\n# e\r\n",
        "\ufeff---\nextensions:  # mine\n  m:\n    cmd:   'x'\nlong: plain\n  continued\n",
        "list:\n- x\nother:\n  - y\nextensions:\n  m: {cmd: x}\n",
    ],
)
def test_yaml_keeps_its_layout(before: str) -> None:
    entry = {"type": "stdio", "cmd": "/w", "args": ["serve"], "envs": {"A": "b: c"}}
    after = with_server(before.encode(), GOOSE, "workbench", entry, "x").decode()
    assert servers_in(after.encode(), GOOSE, "x")["workbench"] == entry
    lines = before.splitlines(keepends=True)
    assert [line for line in after.splitlines(keepends=True) if line in lines] == lines
    assert without_servers(after.encode(), GOOSE, ["workbench"], "x").decode() == before


def test_toml_keeps_its_line_breaks() -> None:
    before = b'model = "x" # mine\r\n\r\n[mcp_servers.a]\r\ncommand = "x"\r\n'
    after = with_server(before, CODEX, "workbench", ENTRY, "x")
    assert after.startswith(before.rstrip()) and after.count(b"\n") == after.count(b"\r\n")


TOML = """# mine
model = "x" # too

# about a
[mcp_servers.a]
command = "a"
args = [
  "[mcp_servers.b]",
]
[mcp_servers.a.env]
K = "v"

# about b
[mcp_servers."b"] # b
command = "b"

# the end
[[other]]
x = 1
"""


# A table each, some below others.
TOML_PARTS = [
    '[mcp_servers.a]\ncommand = "a"\n',
    '[mcp_servers.a.env]\nK = "v"\n',
    '[mcp_servers."b.c"]\ncommand = "b"\nargs = [\n  "[x]",\n]\n',
    "[[other]]\nx = 1\n",
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_table_goes_without_the_comments_of_the_next(newline: str) -> None:
    """All lines but those of the tables stay, to the byte."""
    text = TOML.replace("\n", newline)
    start, end = text.index("[mcp_servers.a]"), text.index("# about b")
    assert without_servers(text.encode(), CODEX, ["a"], "x").decode() == text[:start] + text[end:]
    start, end = text.index('[mcp_servers."b"]'), text.index("# the end")
    assert without_servers(text.encode(), CODEX, ["b"], "x").decode() == text[:start] + text[end:]
    both = without_servers(text.encode(), CODEX, ["a", "b"], "x").decode()
    assert [line for line in both.splitlines() if line.startswith("#")] == [
        "# mine",
        "# about a",
        "# about b",
        "# the end",
    ]


def test_the_last_server_goes_with_its_tables_and_the_blank_lines_between() -> None:
    """As Codex writes it."""
    before = 'model = "x"\n'
    text = f'{before}\n[mcp_servers.a]\ncommand = "a"\n\n[mcp_servers.a.env]\nK = "v"\n\n[mcp_servers.a.tools]\n'
    assert without_servers(text.encode(), CODEX, ["a"], "x").decode() == before


@given(
    st.permutations(TOML_PARTS), st.lists(st.sampled_from(["\n", "# a remark\n"]), min_size=4, max_size=4), st.data()
)
def test_any_servers_go_from_any_toml_and_the_rest_stays(
    parts: list[str], gaps: list[str], data: st.DataObject
) -> None:
    text = "".join(gap + part for gap, part in zip(gaps, parts, strict=True))
    root = tomllib.loads(text)
    servers = root.pop("mcp_servers")
    gone = data.draw(st.lists(st.sampled_from(sorted(servers)), min_size=1, unique=True))
    left = tomllib.loads(without_servers(text.encode(), CODEX, gone, "x").decode())
    assert left.pop("mcp_servers", {}) == {name: entry for name, entry in servers.items() if name not in gone}
    assert left == root


@pytest.mark.parametrize("margin", ["", "  "])
def test_a_list_of_servers_is_edited_and_the_rest_of_the_file_keeps_its_form(margin: str) -> None:
    file = clients()["continue"].file[0]
    item = f"{margin}- name: a # first\n{margin}  command:   'a'\n"
    text = f'name:   "x"\nmcpServers:\n{item}\n# models\nmodels: [ {{a: 1}} ]\n'
    after = with_server(text.encode(), file, "b", {"command": "b"}, "x").decode()
    assert after == text.replace(item, f"{item}{margin}- name: b\n{margin}  command: b\n")
    assert without_servers(after.encode(), file, ["b"], "x").decode() == text
    only = text.replace(" # first", "")
    left = without_servers(only.encode(), file, ["a"], "x").decode()
    assert left == 'name:   "x"\n\n# models\nmodels: [ {a: 1} ]\n'
