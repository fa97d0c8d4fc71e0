"""References are recognised when a file is read, and nothing is fetched by that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.engine.catalog.manifests import identity_of, manifest_key
from mcp_workbench.engine.config.expand import Reference
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.model import ReferringValue, ServerConfig
from tests.engine.config.loading import parsed, plain_server_of, problems_of, server_of, toolbox_with

HERE = os.getcwd()


def reference(server: ServerConfig) -> Reference:
    (value,) = server.references
    (found,) = (part for part in value.parts if isinstance(part, Reference))
    return found


@pytest.mark.requirement("secrets.references")
@pytest.mark.parametrize(
    ("server", "field"),
    [
        ({"command": "x", "env": {"TOKEN": "${file:t}"}}, ("env", "TOKEN")),
        ({"command": "x", "args": ["--token", "${file:t}"]}, ("args", 1)),
        ({"url": "https://a.example/${file:t}"}, ("url",)),
        ({"url": "${file:t}"}, ("url",)),
        ({"serverUrl": "https://a.example/?key=${file:t}"}, ("url",)),
        ({"url": "https://a.example", "headers": {"X-Key": "${file:t}"}}, ("headers", "X-Key")),
        ({"url": "https://a.example", "oauth": {"clientSecret": "${file:t}"}}, ("oauth", "client_secret")),
        ({"url": "https://a.example", "oauth": {"privateKey": "${file:t}"}}, ("oauth", "private_key")),
        ({"url": "https://a.example", "oauth": {"initialAccessToken": "${file:t}"}}, ("oauth", "initial_access_token")),
    ],
)
def test_a_reference_may_stand_where_secrets_do(server: dict[str, object], field: tuple[str | int, ...]) -> None:
    found = plain_server_of(server) if "serverUrl" in server else server_of(server)
    assert [value.field for value in found.references] == [field]
    assert reference(found) == Reference(kind="file", written="${file:t}", words=("t",), folder=HERE)


@pytest.mark.parametrize(
    ("server", "below"),
    [
        ({"command": "${file:t}"}, "command"),
        ({"command": "x", "cwd": "${cmd:pwd}"}, "cwd"),
        ({"command": "x", "timeout": "${file:t}"}, "timeout"),
        ({"command": "x", "envFile": "${file:t}"}, "envFile"),
        ({"url": "https://a.example", "oauth": {"clientId": "${file:t}"}}, "clientId"),
    ],
)
def test_elsewhere_nothing_is_fetched(server: dict[str, object], below: str) -> None:
    (problem,) = problems_of(toolbox_with(server)).problems
    assert problem.steps is not None and problem.steps[-1] == below
    assert "nothing is fetched here: `${" in problem.found and "`env`, `headers`" in (problem.hint or "")


def test_nor_in_settings_of_the_file() -> None:
    assert "nothing is fetched here" in str(problems_of({**toolbox_with({"command": "x"}), "face": "${cmd:x}"}))


@pytest.mark.parametrize(
    ("written", "kind", "words"),
    [
        ("${file:/run/t}", "file", ("/run/t",)),
        ("${file: a b }", "file", ("a b",)),
        ("${file:~/t}", "file", ("/home/me/t",)),
        ("${file:${DIR}/t}", "file", ("/some where/t",)),
        ("${file:${GONE:-/etc}/t}", "file", ("/etc/t",)),
        ("${keyring:service/name}", "keyring", ("service/name",)),
        ("${keyring:name}", "keyring", ("name",)),
        ("${cmd:op read 'op://a b/c'}", "cmd", ("op", "read", "op://a b/c")),
        ("${cmd:~/bin/token}", "cmd", ("/home/me/bin/token",)),
        ("${cmd:cat ${DIR}/t}", "cmd", ("cat", "/some where/t")),
        ("${cmd:jq -r '{a}'}", "cmd", ("jq", "-r", "{a}")),
    ],
)
def test_meaning_of_references(written: str, kind: str, words: tuple[str, ...]) -> None:
    environ = {"HOME": "/home/me", "DIR": "/some where"}
    found = reference(server_of({"command": "x", "env": {"T": f"a{written}b"}}, environ))
    assert (found.kind, found.written, found.words) == (kind, written, words)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("${file:}", "expected `${file:path}`"),
        ("${file: }", "expected `${file:path}`"),
        ("${keyring:service/}", "expected `${keyring:service/name}`"),
        ("${cmd:}", "expected `${cmd:program argument …}`"),
        ("${cmd:echo 'half}", "expected `${cmd:program argument …}`"),
        ("${cmd:echo", "without its `}`"),
        ("${file:${cmd:x}}", "a reference inside of"),
        ("${file:${GONE}/x}", "the variable `GONE` is not set"),
        ("${vault:x}", "found `${vault:x}`"),
    ],
)
def test_a_reference_that_makes_no_sense(written: str, words: str) -> None:
    document = toolbox_with({"command": "x", "env": {"T": written}})
    if "GONE" in written:
        assert words in server_of({"command": "x", "env": {"T": written}}).unresolved[0].found
    else:
        assert words in str(problems_of(document))


def test_a_default_may_be_a_reference() -> None:
    entry = {"command": "x", "env": {"T": "${TOKEN:-${file:t}}"}}
    assert reference(server_of(entry)).words == ("t",)
    found = server_of(entry, {"TOKEN": "given"})
    assert found.references == () and found.env == {"T": "given"}


@pytest.mark.requirement("secrets.references")
def test_the_value_of_a_variable_is_not_a_reference() -> None:
    found = server_of({"command": "x", "env": {"T": "${TOKEN}"}}, {"TOKEN": "${cmd:touch /tmp/owned}"})
    assert found.references == () and found.env == {"T": "${cmd:touch /tmp/owned}"}


def test_references_are_not_secrets_themselves() -> None:
    entry = {
        "url": "https://a.example/?key=${file:some/where}&other=hunter2222",
        "headers": {"X-Key": "${keyring:one/two}"},
        "oauth": {"clientSecret": "${cmd:op read x}"},
    }
    config = parsed(toolbox_with(entry))
    assert config.secrets == {"hunter2222"}


# ── files of variables ──


def test_variables_that_are_not_set_may_come_from_a_file() -> None:
    entry = {"command": "x", "envFile": ".env", "args": ["${SET}", "${GONE}", "${GONE:-${OTHER}}"]}
    found = server_of(entry, {"SET": "here"})
    assert not found.unresolved and found.env_files == (os.path.join(HERE, ".env"),)
    assert found.args == ("here", "${GONE}", "${GONE:-${OTHER}}")
    other = Reference(kind="variable", written="${OTHER}", words=("OTHER",))
    assert found.references == (
        ReferringValue(("args", 1), (Reference(kind="variable", written="${GONE}", words=("GONE",)),)),
        ReferringValue(
            ("args", 2),
            (Reference(kind="variable", written="${GONE:-${OTHER}}", words=("GONE",), default=(other,)),),
        ),
    )


def test_but_not_where_nothing_is_fetched() -> None:
    found = server_of({"command": "${GONE}", "envFile": ".env", "cwd": "${DIR:-/tmp}"})
    assert "the variable `GONE` is not set" in found.unresolved[0].found
    assert found.cwd == "/tmp"


@pytest.mark.parametrize(("written", "paths"), [("a.env", 1), (["a.env", "b.env"], 2), ("", 0), ([], 0)])
def test_one_file_or_several(written: object, paths: int) -> None:
    assert len(server_of({"command": "x", "envFile": written}).env_files) == paths


# ── reading a file fetches nothing ──


def test_nothing_is_read_and_nothing_runs_when_a_file_is_loaded(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    entry = {"command": "x", "envFile": "gone.env", "env": {"A": f"${{cmd:touch {trace}}}", "B": "${file:gone}"}}
    (tmp_path / "c.json").write_text(str({"mcpServers": {"s": entry}}).replace("'", '"'))
    server = load(str(tmp_path / "c.json"), {}).toolboxes["default"].servers["s"]
    assert manifest_key(server) and not server.unresolved
    assert not trace.exists()


def test_servers_are_distinguished_by_their_references() -> None:
    def key(value: str, **more: object) -> str:
        return manifest_key(server_of({"command": "x", "env": {"T": value}, **more}, {"V": "${file:a}"}))

    assert key("${file:a}") == key("${file:a}")
    assert len({key("${file:a}"), key("${file:b}"), key("${V}"), key("x"), key("x", envFile=".env")}) == 5
    assert len(identity_of(server_of({"command": "x"}))) == 9, "manifests of other servers stay valid"
