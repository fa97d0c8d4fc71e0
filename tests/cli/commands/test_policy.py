"""`mcp-workbench team policy test` says which rule decides and why; `check` names rules that can never take effect."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore, default_folder
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.team.identity.named_keys import KeyFolder
from tests.cli.in_process import command, live_in

RULES = [
    {"who": ["group:ops"], "then": "allow"},
    {"tools": ["dev/git/push"], "when": {"arguments": {"/ref": "main"}}, "then": "ask"},
    {"when": {"destructive": True}, "then": "deny"},
    {"prompts": ["dev"], "then": "hide"},
    {"then": "allow"},
]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    live_in(monkeypatch, tmp_path, {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")})
    return written(tmp_path, RULES)


def written(folder: Path, policy: list[Any]) -> str:
    toolboxes = {"dev": {"description": "d", "mcpServers": {"git": {"command": "none"}}}}
    path = folder / "workbench-config.json"
    path.write_text(json.dumps({"policy": policy, "toolboxes": toolboxes}))
    return str(path)


def decided(monkeypatch: pytest.MonkeyPatch, config: str, *words: str) -> dict[str, Any]:
    done = command(monkeypatch, "policy", "test", *words, "--config", config, "--json")
    assert done.status == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("words", "then", "rule"),
    [
        (("alice", "dev/git/status"), "deny", "policy[2]"),
        (("alice", "dev/git/push", '{"ref": "main"}'), "ask", "policy[1]"),
        (("alice", "dev/git/push", '{"ref": "x"}'), "deny", "policy[2]"),
        (("alice", "dev/git/push", '{"ref": "main"}', "--group", "ops"), "allow", "policy[0]"),
        (("alice", "dev/git/write", "--prompt"), "hide", "policy[3]"),
        (("alice", "dev/git/file:///a/b", "--resource"), "allow", "policy[4]"),
    ],
)
def test_the_rule_that_decides_is_named(
    config: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], then: str, rule: str
) -> None:
    found = decided(monkeypatch, config, *words)
    assert (found["then"], found["rule"]) == (then, rule)
    assert found["why"]


def test_tool_is_judged_as_listed_to_the_given_user(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Catalog(load(config, os.environ), ManifestStore(default_folder))
    for catalog, is_destructive in ((own, True), (own.of_user("alice"), False)):
        annotations = {"destructiveHint": is_destructive}
        definition = Raw(json.dumps({"name": "status", "annotations": annotations}).encode())
        lists = {"tools": {"status": definition}}
        catalog.toolboxes["dev"]["git"].learn(Offer(ServerProfile("legacy", "2025-11-25"), lists))
    told = {who: decided(monkeypatch, config, who, "dev/git/status")["then"] for who in ("local", "alice", "bob")}
    assert told == {"local": "deny", "alice": "allow", "bob": "deny"}, "of bob nothing is known"


def test_it_reads_as_a_sentence(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "policy", "test", "alice", "dev/git/status", "--config", config)
    assert done.stdout.splitlines() == [
        "deny: dev/git/status for alice",
        "  $.policy[2]: destructive",
        "  nothing is known of this tool, so it counts as destructive and open-world",
    ]


def test_the_toolboxes_of_a_key_count(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    KeyFolder(str(tmp_path / "state" / "mcp-workbench" / "keys")).create("ci", toolboxes=("web",))
    found = decided(monkeypatch, config, "ci", "dev/git/status")
    assert (found["then"], found["rule"]) == ("hide", "key")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "test, WHO and TOOL are missing"),
        (("test", "alice"), "TOOL is missing"),
        (("test", "alice", "dev"), "`dev` matches no server"),
        (("test", "alice", "dev/git/x", "[]"), "is not a JSON object"),
        (("test", "alice", "dev/git/x", "{"), "is not a JSON object"),
        (("test", "alice", "dev/git/x", "--prompt", "--resource"), "cannot be combined"),
    ],
)
def test_a_wrong_command_line_is_explained(
    config: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    done = command(monkeypatch, "policy", *words, "--config", config)
    assert done.status == 2 and said in done.stderr


def test_check_names_rules_that_can_never_take_effect(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, [{"tools": ["dve"], "then": "deny"}, {"then": "allow"}, {"then": "deny"}])
    done = command(monkeypatch, "check", path)
    assert done.status == 0
    told = " ".join(done.stderr.split())
    assert "$.policy[0] can never take effect: no toolbox is named `dve`; did you mean `dev`?" in told
    assert "$.policy[2] can never take effect" in told


def test_check_tells_all_mistakes_and_starts_nothing(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, [{"then": "alow"}, {"who": []}])
    done = command(monkeypatch, "check", path, "--connect")
    assert done.status == 2
    assert "$.policy[0].then" in done.stderr and "$.policy[1].who" in done.stderr and "found no `then`" in done.stderr
