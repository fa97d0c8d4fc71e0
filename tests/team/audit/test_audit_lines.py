"""What a line of each kind says: who, from where, by which client, about what, what was decided and how it ended."""

from __future__ import annotations

import asyncio
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app.live import LiveConfig
from mcp_workbench.app.serving import record_refusal
from mcp_workbench.engine.config.choose import ConfigSource
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.file_watch import FileWatch
from mcp_workbench.errors import DownstreamError
from mcp_workbench.team.audit.audit_chain import verify
from mcp_workbench.team.audit.audit_lines import LineMaker
from mcp_workbench.team.audit.audit_streams import Stdout
from mcp_workbench.team.policy.approval_socket import ApprovalRequest
from tests.support.in_process_workbench import ConnectedClient, Server, tool, workbench_with, write
from tests.support.processes import eventually
from tests.team.test_oversight import lines, lock_in

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
META = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
READ, ASKED, DENIED = tool("read", n="string"), tool("asked"), tool("denied")
SETTINGS: dict[str, Any] = {
    "audit": {"file": "audit.jsonl", "arguments": "shape"},
    "lock": "warn",
    "policy": [
        {"tools": ["box/files/asked"], "then": "ask"},
        {"tools": ["box/files/denied"], "then": "deny"},
        {"then": "allow"},
    ],
}
ANY = ...
NOTHING = sha256(b"{}").hexdigest()
WHO = {"principal": "ada", "peer": "10.0.0.7", "client": "raw-client 1.0", "session": ANY}
WHAT = {"toolbox": "box", "server": "files"}
SIZES = {"ms": ANY, "bytesIn": ANY, "bytesOut": ANY, "call": ANY}
# By a name for each: every member of its line but `seq`, `prev` and `time`, which all of them have.
EXPECTED: dict[str, dict[str, Any]] = {
    "call": {
        **WHO, **WHAT, **SIZES, "kind": "call", "method": "tools/call", "item": "read", "decision": "passed",
        "rule": "policy[2]", "outcome": "result", "trace": TRACE, "arguments": {"n": "string of 1"},
    },
    "request": {
        **WHO, **WHAT, **SIZES, "kind": "request", "method": "resources/read", "item": "test:///one",
        "decision": "passed", "rule": "policy[2]", "outcome": "result", "trace": TRACE,
    },
    "refusal": {
        **WHO, **WHAT, **SIZES, "kind": "call", "method": "tools/call", "item": "denied", "decision": "denied",
        "rule": "policy[1]", "outcome": "refused", "trace": TRACE, "arguments": {},
    },
    "question": {**WHO, **WHAT, "kind": "question", "item": "asked", "rule": "policy[0]", "digest": NOTHING},
    "approval": {
        **WHO, **WHAT, "kind": "approval", "item": "asked", "rule": "policy[0]", "decision": "passed", "reason": "once",
        "by": "ada", "digest": NOTHING,
    },
    "approved call": {
        **WHO, **WHAT, **SIZES, "kind": "call", "method": "tools/call", "item": "asked", "decision": "passed",
        "rule": "policy[0], approved", "outcome": "result", "trace": TRACE, "arguments": {}, "digest": NOTHING,
    },
    "sign-in": {
        "principal": "ada", "peer": "10.0.0.7", "client": "raw-client 1.0", **WHAT, "kind": "sign_in",
        "decision": "signed in",
    },
    "failed sign-in": {
        "principal": "ada", "peer": "10.0.0.7", "client": "raw-client 1.0", **WHAT, "kind": "sign_in",
        "decision": "failed", "reason": "the user said no",
    },
    "authentication": {
        "kind": "authentication", "peer": "10.0.0.9", "decision": "denied", "reason": "the token is not known",
    },
    "definition": {
        **WHAT, "kind": "definition", "principal": "ada", "item": "read", "decision": "warned", "rule": "lock",
        "reason": "tool: changed",
    },
    "configuration": {"kind": "configuration", "decision": "applied", "reason": "settings: budget", "config": ANY},
    "rejected configuration": {"kind": "configuration", "decision": "rejected", "reason": ANY, "config": ANY},
    "audit": {"kind": "audit", "event": "started", "pid": ANY, "version": ANY, "config": ANY},
}  # fmt: skip


class FakeSignIns:
    """Signs in at once; or the user says no."""

    def __init__(self) -> None:
        self.fails = False
        self.pending: FakeSignIns | None = None

    def under_way(self, target: object) -> FakeSignIns | None:
        return self.pending

    async def begin(self, target: object) -> FakeSignIns:
        self.pending = self
        return self

    async def wait(self) -> None:
        if self.fails:
            raise DownstreamError("the user said no")

    async def close(self) -> None:
        pass


async def happen(client: ConnectedClient, folder: Path, server: Server) -> None:
    """Everything that has a line, once."""
    gateway, rpc = client.gateway, client.client
    rpc.session.peer = "10.0.0.7"
    rpc.handlers["elicitation/create"] = lambda params: {"action": "accept", "content": {"allow": "once"}}
    for name, arguments in (("read", {"n": "x"}), ("denied", {}), ("asked", {})):
        await rpc.call_tool("use_tool", {"tool": f"box/files/{name}", "arguments": arguments}, _meta=META)
    await rpc.request("resources/read", {"uri": "test:///one", "_meta": META})
    await sign_in(client)
    record_refusal(gateway, "10.0.0.9", "the token is not known")
    live = LiveConfig(gateway, ConfigSource(str(folder / "workbench-config.json"), None, os.environ), FileWatch())
    write(folder, {"box": {"files": server}}, **SETTINGS, budget=4000)
    await live.reload()
    write(folder, {"box": {"files": server}}, **SETTINGS, budget="much")
    await live.reload()
    server.tools[0] = tool("read", "Reads and sends.", n="string")
    (entry,) = gateway.gate.whole_face_of("ada").catalog.entries()
    server.say_changed()
    await eventually(lambda: b"sends" in bytes(entry.tools["read"]))


async def sign_in(client: ConnectedClient) -> None:
    """Twice, and the first time for two calls at once."""
    gateway = client.gateway
    entry = gateway.catalog.toolboxes["box"]["files"]
    sign_ins = FakeSignIns()
    gateway.runtime._sign_ins[None] = sign_ins  # type: ignore[assignment]
    introduction = (b'{"name":"raw-client","version":"1.0"}', "10.0.0.7")
    await asyncio.gather(*(gateway.sign_ins().begin_sign_in(entry, "ada", introduction) for _ in range(2)))
    sign_ins.fails, sign_ins.pending = True, None
    await gateway.sign_ins().begin_sign_in(entry, "ada", introduction)


@pytest.mark.requirement("audit.line")
@pytest.mark.requirement("audit.events")
async def test_a_line_of_each_kind_says_all_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.app.client_sign_ins.sign_in_target", lambda *given: given)
    server = Server(READ, ASKED, DENIED)
    server.resources = [{"uri": "test:///one", "name": "one"}]
    tools = {each["name"]: each for each in (READ, ASKED, DENIED)}
    lock_in(tmp_path, tools=tools, resources={"test:///one": server.resources[0]})
    abilities: dict[str, Any] = {"elicitation": {}}
    boxes = {"box": {"files": server}}
    async with workbench_with(
        tmp_path, boxes, options={"use_cache": False}, principal="ada", abilities=abilities, **SETTINGS
    ) as client:
        await client.open(toolbox_name="box")
        await happen(client, tmp_path, server)
    written = lines(tmp_path / "audit.jsonl")
    assert all(
        line.pop("time").endswith("Z") and line.pop("seq") and line.pop("prev", "") is not None for line in written
    )
    # Held while the user was asked, which here may be no time at all.
    assert all(line.pop("heldMs", 2) > 1 for line in written)
    for name, expected in EXPECTED.items():
        found = [line for line in written if _fits(line, expected)]
        assert len(found) == 1, f"{name}: {expected}\n" + "\n".join(map(json.dumps, written))


def _fits(line: dict[str, Any], expected: dict[str, Any]) -> bool:
    return line.keys() == expected.keys() and all(value in (ANY, line[key]) for key, value in expected.items())


@pytest.mark.parametrize("space", ["\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize("arguments", ["shape", "redacted"])
async def test_a_line_is_one_line_for_every_program(tmp_path: Path, space: str, arguments: str) -> None:
    """Some programs end a line at these characters, too, and a forged line would follow."""
    boxes = {"box": {"files": Server(READ)}}
    audit = {"file": str(tmp_path / "audit.jsonl"), "arguments": arguments}
    forged = f'x{space}{{"kind":"call","principal":"root"}}'
    async with workbench_with(tmp_path, boxes, audit=audit) as client:
        await client.open(toolbox_name="box")
        await client.use("box/files/read", {"n": forged, forged: 1})
        client.gateway.gate.record("approval", principal="bob", reason=forged)
    text = (tmp_path / "audit.jsonl").read_text()
    assert len(text.splitlines()) == text.count("\n")
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[-2]["reason"] == forged, "nothing is lost"
    assert verify(str(tmp_path / "audit.jsonl")).findings == []


def test_the_other_destinations_write_one_line_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = LineMaker(Redactor(()), "none")
    Stdout().append([lines.event("approval", reason="a\u2028b"), lines.event("approval", reason="c\u2029d")])
    written = capfdbinary.readouterr().out
    assert len(written.decode().splitlines()) == 2
    assert b"a\\u2028b" in written and b"c\\u2029d" in written


@pytest.mark.requirement("audit.questions")
async def test_an_approval_at_the_command_line_records_approver_and_arguments(tmp_path: Path) -> None:
    settings = {"audit": {"file": "audit.jsonl", "arguments": "none"}, "policy": SETTINGS["policy"]}
    async with workbench_with(tmp_path, {"box": {"files": Server(READ, ASKED)}}, principal="ada", **settings) as client:
        await client.open(toolbox_name="box")
        for number in (1, 2):
            await client.use("box/files/asked", {"n": number})
        _, second = client.gateway.waiting_approvals()
        assert client.gateway.decide(ApprovalRequest(str(second["id"])), "grace (process 7)").found is not None
        await client.use("box/files/asked", {"n": 2})
    digest = sha256(b'{"n": 2}').hexdigest()
    (approval,) = (line for line in lines(tmp_path / "audit.jsonl") if line["kind"] == "approval")
    assert (approval["principal"], approval["by"], approval["digest"]) == ("ada", "grace (process 7)", digest)
    assert approval["reason"] == "once"
    calls = [line for line in lines(tmp_path / "audit.jsonl") if line["kind"] == "call"]
    assert [line.get("digest") for line in calls] == [None, None, digest]
