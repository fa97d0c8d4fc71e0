"""What is in the audit beside calls that reach a server: what was refused, hidden or not there, and every question."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from mcp_workbench.engine.config.redact import Redactor, without_keys
from mcp_workbench.team.audit.audit_lines import MAX_AUDIT_TEXT_LENGTH, AuditLine, EventEntry, LineMaker
from tests.faces.harness import ERAS, EVERY_ABILITY, Bench
from tests.faces.test_contract_asking import QUESTIONS, answered
from tests.support.client import RpcError
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with
from tests.team.test_access import HIDING, SECRET, boxes, served_to

AUDIT = {"file": "audit.jsonl"}
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


def as_written(line: AuditLine) -> dict[str, Any]:
    return dict(json.loads(encode(line)))


def written(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] in kinds]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# ── what reaches no server ──


@pytest.mark.requirement("audit.refusals")
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_of_something_hidden_is_written_down_and_answered_as_one_of_nothing(
    tmp_path: Path, era: str
) -> None:
    options = {"use_cache": False}
    paths = [f"dev/git/{SECRET}_push", "dev/git/nothing_at_all", f"ops/db/{SECRET}_drop", "nowhere/db/x"]
    async with workbench_with(tmp_path, boxes(), options=options, policy=HIDING, audit=AUDIT) as workbench:
        async with served_to(workbench, "bob", era) as bob:
            for path in paths:
                toolbox, server, name = path.split("/")
                for wanted in (path, {"toolbox": toolbox, "server": server, "tool": name}):
                    refused = await bob.call_tool("use_tool", {"tool": wanted, "arguments": {}})
                    assert refused["isError"] and "policy" not in text_of(refused)
    lines = written(tmp_path, "call")
    told = [(line["toolbox"], line["server"], line["item"]) for line in lines]
    assert told == [tuple(path.split("/")) for path in paths for _ in range(2)]
    assert {(line["principal"], line["decision"], line["outcome"]) for line in lines} == {("bob", "denied", "refused")}
    hiding, absent = "policy[0]", "face"
    assert [line["rule"] for line in lines][::2] == [hiding, absent, hiding, absent]


@pytest.mark.requirement("audit.refusals")
@pytest.mark.parametrize("face", ["flat", "dynamic", "proxy"])
async def test_unknown_items_are_audited_under_the_clients_name_for_them(tmp_path: Path, face: str) -> None:
    options = {"face": face, "use_cache": False}
    async with workbench_with(tmp_path, boxes(), options=options, audit=AUDIT) as workbench:
        client = workbench.client
        for method, params in (
            ("tools/call", {"name": "dev:git:none", "arguments": {}}),
            ("prompts/get", {"name": "no prompt"}),
            ("resources/read", {"uri": "test:///none"}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
            ),
        ):
            with pytest.raises(RpcError):
                await client.request(method, params)
    lines = written(tmp_path, "call", "request")
    assert [(line["method"], line["item"]) for line in lines] == [
        ("tools/call", "dev:git:none"),
        ("prompts/get", "no prompt"),
        ("resources/read", "test:///none"),
        ("completion/complete", "p"),
    ]
    assert {(line["decision"], line["rule"]) for line in lines} == {("denied", "face")}


@pytest.mark.requirement("audit.refusals")
async def test_a_call_whose_server_does_not_start_is_written_down(tmp_path: Path) -> None:
    server = Server(tool("read", "Read."))
    server.failing = "it is broken"
    options = {"use_cache": False}
    async with workbench_with(tmp_path, {"box": {"files": server}}, options=options, audit=AUDIT) as workbench:
        assert (await workbench.use("box/files/read", {}))["isError"]
    (line,) = written(tmp_path, "call")
    assert (line["server"], line["item"], line["outcome"]) == ("files", "read", "tool_error")


async def test_requests_answered_by_the_workbench_are_not_audited(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), audit=AUDIT) as workbench:
        await workbench.open(toolbox_name="dev")
        await workbench.open(query="state")
    assert written(tmp_path, "call", "request") == []


# ── questions ──


@pytest.mark.requirement("audit.questions")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("kind", ["form", "page", "sampling"])
async def test_questions_of_servers_are_audited(bench: Bench, era: str, server_era: str, kind: str) -> None:
    asking, method, answer = QUESTIONS[kind]
    servers = {"box": {"server": ("--era", server_era)}}
    settings = {"audit": AUDIT}
    async with bench.within(servers, "proxy", era, capabilities=EVERY_ABILITY, settings=settings) as seen:
        await seen.open()
        await answered(seen, asking, method, answer)
    lines = written(bench.folder, "question")
    assert {(line["method"], line["server"], line["principal"]) for line in lines} == {(method, "box/server", "local")}


@pytest.mark.requirement("audit.questions")
async def test_our_own_questions_record_principal_client_and_item(bench: Bench) -> None:
    settings = {"audit": AUDIT, "policy": [{"tools": ["box"], "then": "ask"}, {"then": "allow"}]}
    servers = {"box": {"server": ()}}
    async with bench.within(servers, "proxy", capabilities=EVERY_ABILITY, settings=settings) as seen:
        await seen.open()
        seen.client.handlers["elicitation/create"] = lambda params: {"action": "accept", "content": {"allow": "once"}}
        await seen.call("echo")
        seen.client.handlers["elicitation/create"] = lambda params: {"action": "decline"}
        await seen.call("echo")
    lines = written(bench.folder, "question", "approval")
    assert [(line["kind"], line.get("decision")) for line in lines] == [
        ("question", None),
        ("approval", "passed"),
        ("question", None),
        ("approval", "denied"),
    ]
    for line in lines:
        assert (line["principal"], line["toolbox"], line["server"], line["item"]) == ("local", "box", "server", "echo")
        assert line["client"] and line["session"]


# ── secrets that nobody has named ──


@pytest.mark.requirement("audit.secrets")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"use {JWT}, please", "use ***, please"),
        ("wbk_0123456789abcdef0123", "***"),
        ("curl -H 'Authorization: Bearer a1b2c3d4e5f6'", "curl -H 'Authorization: ***'"),
        ("sk-proj-abcdefghijklmnop and ghp_abcdefghijklmnop", "*** and ***"),
        ("postgres://ada:hunter2@db/x", "postgres://***@db/x"),
        ("basic instructions for bearer certificates", "basic instructions for bearer certificates"),
        ("https://example.com/a:b@c and task-sketchy", "https://example.com/a:b@c and task-sketchy"),
    ],
)
def test_text_that_looks_like_a_key_is_hidden_anywhere(text: str, expected: str) -> None:
    assert without_keys(text) == expected


@pytest.mark.requirement("audit.secrets")
async def test_tokens_in_arguments_and_addresses_are_not_written(tmp_path: Path) -> None:
    served = {"box": {"files": Server(tool("read", "Read.", path="string"))}}
    audit = {**AUDIT, "arguments": "redacted"}
    async with workbench_with(tmp_path, served, audit=audit) as workbench:
        await workbench.open(toolbox_name="box")
        given = {"text": f"with {JWT}", "deep": [{"note": "wbk_0123456789abcdef0123"}], JWT: 1}
        await workbench.use("box/files/read", given)
        with pytest.raises(RpcError):
            await workbench.client.request("resources/read", {"uri": f"https://host/x?t={JWT}"})
    text = (tmp_path / "audit.jsonl").read_text()
    assert "eyJ" not in text and "wbk_" not in text and '"text":"with ***"' in text


@pytest.mark.requirement("audit.secrets")
def test_a_key_in_an_address_is_not_written_with_an_event_either() -> None:
    lines = LineMaker(Redactor(()), "none")
    for kind in ("question", "approval"):
        written = as_written(lines.event(kind, item=f"https://host/x?t={JWT}", reason=f"no {JWT}"))
        assert (written["item"], written["reason"]) == ("https://host/x?t=***", "no ***")
    cut = as_written(lines.event("approval", item="x" * (MAX_AUDIT_TEXT_LENGTH - 8) + "/" + JWT))
    assert "eyJ" not in cut["item"], "half a key is none that would be recognised"


def test_a_path_that_is_no_utf_8_can_be_written() -> None:
    lines = LineMaker(Redactor(()), "none")
    path = os.fsdecode(b"/home/\xff/x.json")
    (line,) = lines.lines([EventEntry("audit", 0.0, {"event": "started", "config": path})], 0)
    assert as_written(line)["config"] == "/home/\\udcff/x.json"
    assert "udcff" in as_written(lines.event("audit", event="file", reason=f"`{path}` was cut"))["reason"]
