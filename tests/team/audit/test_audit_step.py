"""The audit from a request to its line: who, from where, what was decided, how it ended, and no secret in it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.config.audit_settings import AuditConfig
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.problems import ConfigProblems
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.steps import GuardedRequest, Outcome, UncheckedPassage, tool_failed
from mcp_workbench.errors import ConfigError
from mcp_workbench.team.audit import audit_step as audit_module
from mcp_workbench.team.audit import audit_writer
from mcp_workbench.team.audit.audit_arguments import MAX_AUDITED_ARGUMENT_BYTES
from mcp_workbench.team.audit.audit_chain import verify
from mcp_workbench.team.audit.audit_file import AuditFile
from mcp_workbench.team.audit.audit_lines import CallEntry, LineMaker
from mcp_workbench.team.audit.audit_step import open_audit
from mcp_workbench.team.audit.audit_streams import Stdout, Syslog
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with, write
from tests.team.audit.test_audit_file import Line

LARGE = 64 * 1024
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
REQUEST = GuardedRequest(
    principal="ada",
    method="tools/call",
    toolbox="box",
    server="files",
    item="read",
    client=b'{"name":"agent","version":"2"}',
    session=3,
    body=b'{"name":"read","arguments":{"path":"/tmp/x","token":"abc","deep":{"n":[1,2]},"ok":true,"nil":null}',
    peer="10.0.0.7",
)
ENDED = Outcome(kind="result", payload=(b'{"content":[]}',), arrived=1.0, sent=1.0, ended=1.25, size=14)


def ended(**changes: Any) -> Outcome:
    """The same with changes, and with what follows from the payload."""
    outcome = replace(ENDED, **changes)
    size = sum(map(len, outcome.payload))
    return replace(outcome, size=size, is_tool_error=outcome.kind == "result" and tool_failed(outcome.payload, size))


def recorded(folder: Path, *ended: tuple[GuardedRequest, Outcome], **settings: Any) -> list[dict[str, Any]]:
    """The lines of these requests, as they are in the file."""
    path = folder / "audit.jsonl"
    redactor = Redactor(["hunter2hunter2"])
    audit = open_audit(AuditConfig(file=str(path), **settings), redactor, stdout_is_free=False)
    audit.record_start("config.json")
    for request, outcome in ended:
        assert audit.check(request) is None
        audit.on_end(request, outcome)
    audit.finish()
    audit.close()
    assert verify(str(path)).findings == []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("started", "stopped")
    return lines[1:-1]


@pytest.mark.requirement("audit.line")
def test_a_line_has_principal_item_peer_and_outcome(tmp_path: Path) -> None:
    request = replace(REQUEST, meta=Raw(b'{"traceparent":"00-%s-00f067aa0ba902b7-01"}' % TRACE.encode()))
    (line,) = recorded(tmp_path, (request, ended(rules=("policy[2]", "approval"))))
    expected = {
        "kind": "call",
        "principal": "ada",
        "peer": "10.0.0.7",
        "client": "agent 2",
        "session": 3,
        "method": "tools/call",
        "toolbox": "box",
        "server": "files",
        "item": "read",
        "decision": "passed",
        "rule": "policy[2], approval",
        "outcome": "result",
        "ms": 250.0,
        "bytesIn": len(REQUEST.body) + 1,
        "bytesOut": 14,
        "trace": TRACE,
    }
    assert {key: line[key] for key in expected} == expected
    assert set(line) - set(expected) - {"prev"} == {"seq", "time"}


@pytest.mark.requirement("audit.line")
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (ended(payload=(b'{"content":[],"isError":true}',)), {"outcome": "tool_error"}),
        (ended(payload=(b'{"content":[],"isError":false}',)), {"outcome": "result"}),
        (ended(payload=(b'{"isError":1}',)), {"outcome": "result"}),
        (
            ended(kind="error", payload=(b'{"code":-32000,"message":"x"}',)),
            {"outcome": "error", "code": -32000},
        ),
        (ended(kind="cancelled", payload=(), decision="undecided"), {"outcome": "cancelled"}),
        (ended(decision="denied", sent=None, rules=("lock",)), {"outcome": "refused", "rule": "lock"}),
        (ended(sent=1.2), {"heldMs": 200.0}),
    ],
)
def test_how_it_ended(tmp_path: Path, outcome: Outcome, expected: dict[str, Any]) -> None:
    (line,) = recorded(tmp_path, (REQUEST, outcome))
    assert {key: line.get(key) for key in expected} == expected


@pytest.mark.requirement("audit.line")
def test_an_unchecked_call_records_how_long_it_waited_for_its_server(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = open_audit(AuditConfig(file=str(path)), Redactor([]), stdout_is_free=False)
    for sent in (3.0, None):
        UncheckedPassage(audit, None, REQUEST, b"{", None, 1.0, sent).end("result", b"{}")
    audit.finish()
    audit.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("heldMs") for line in lines if line["kind"] == "call"] == [2000.0, None]


@pytest.mark.parametrize("meta", [b"{}", b'{"traceparent":7}', b'{"traceparent":"x"}', b'{"traceparent":"00-XYZ-1-1"}'])
def test_a_trace_that_is_none_is_left_out(tmp_path: Path, meta: bytes) -> None:
    assert "trace" not in recorded(tmp_path, (replace(REQUEST, meta=Raw(meta)), ENDED))[0]


@pytest.mark.requirement("audit.secrets")
def test_arguments_are_not_written_unless_asked_for(tmp_path: Path) -> None:
    assert "arguments" not in recorded(tmp_path, (REQUEST, ENDED))[0]


def test_the_shape_of_arguments_has_no_value_in_it(tmp_path: Path) -> None:
    (line,) = recorded(tmp_path, (REQUEST, ENDED), arguments="shape")
    assert line["arguments"] == {
        "path": "string of 6",
        "token": "string of 3",
        "deep": {"n": "2 of number"},
        "ok": "boolean",
        "nil": "null",
    }


@pytest.mark.parametrize("arguments", ["shape", "redacted"])
def test_secrets_in_the_names_of_arguments_are_hidden(tmp_path: Path, arguments: Any) -> None:
    # The second would be cut in its middle.
    names = {"hunter2hunter2": 1, "y" * 250 + "hunter2hunter2": 1, "deep": {"my hunter2hunter2": 1}}
    body = json.dumps({"name": "x", "arguments": names}).encode()[:-1]
    (line,) = recorded(tmp_path, (replace(REQUEST, body=body), ENDED), arguments=arguments)
    assert "hunter" not in json.dumps(line)
    assert list(line["arguments"]) == ["***", "y" * 250 + "***", "deep"] and list(line["arguments"]["deep"]) == [
        "my ***"
    ]


def test_redacted_arguments_hide_secrets_by_value_and_by_name(tmp_path: Path) -> None:
    body = (
        b'{"name":"x","arguments":{"say":"my hunter2hunter2!","apiKey":"abc","list":["hunter2hunter2",1],"long":"%b"}'
    )
    (line,) = recorded(tmp_path, (replace(REQUEST, body=body % (b"y" * 1000)), ENDED), arguments="redacted")
    assert line["arguments"]["say"] == "my ***!" and line["arguments"]["apiKey"] == "***"
    assert line["arguments"]["list"] == ["***", 1] and len(line["arguments"]["long"]) < 300


@pytest.mark.parametrize("arguments", ["shape", "redacted"])
@pytest.mark.parametrize("body", [b"{", b'{"arguments":null', b'{"arguments":[[[[[[[[[[1]]]]]]]]]]', b'{"arguments":'])
def test_arguments_of_any_kind_are_survived(tmp_path: Path, arguments: Any, body: bytes) -> None:
    deep = b'{"arguments":' + b'{"a":' * 20 + b"1" + b"}" * 20
    assert len(recorded(tmp_path, (replace(REQUEST, body=body), ENDED), (replace(REQUEST, body=deep), ENDED),
                        arguments=arguments)) == 2  # fmt: skip


@pytest.mark.requirement("audit.secrets")
def test_no_secret_is_in_any_member(tmp_path: Path) -> None:
    secret = "hunter2hunter2"
    request = GuardedRequest(
        principal=f"who {secret}",
        method=f"x/{secret}",
        item=f"db://user:{secret}@host",
        client=json.dumps({"name": secret}).encode(),
        session=0,
        body=json.dumps({"arguments": {secret: secret}}).encode()[:-1],
    )
    recorded(tmp_path, (request, ENDED), arguments="redacted")
    assert secret not in (tmp_path / "audit.jsonl").read_text()


def test_secrets_that_come_later_are_hidden_in_lines_that_look_the_same(tmp_path: Path) -> None:
    path, redactor = tmp_path / "audit.jsonl", Redactor([])
    audit = open_audit(AuditConfig(file=str(path)), redactor, stdout_is_free=False)
    audit.record_start("config.json")
    audit.on_end(replace(REQUEST, item="latesecret"), ENDED)
    while "latesecret" not in path.read_text():
        pass
    redactor.add(["latesecret"])
    audit.on_end(replace(REQUEST, item="latesecret"), ENDED)
    audit.finish()
    audit.close()
    assert [json.loads(line).get("item") for line in path.read_text().splitlines()][1:3] == ["latesecret", "***"]


def test_large_requests_and_long_names_take_little_room(tmp_path: Path) -> None:
    large = replace(REQUEST, body=b'{"arguments":{"x":"%b"}' % (b"x" * LARGE), item="i" * 10_000)
    answer = ended(payload=(b'{"content":[]', b"x" * LARGE, b',"isError":true}'))
    (line,) = recorded(tmp_path, (large, answer), arguments="redacted")
    assert line["bytesIn"] > LARGE and line["bytesOut"] > LARGE
    assert len(line["item"]) < 1100 and "arguments" not in line


@pytest.mark.requirement("audit.bounded")
@pytest.mark.parametrize("arguments", ["none", "redacted"])
def test_lines_waiting_for_a_slow_disk_retain_no_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    monkeypatch.setattr(audit_writer, "GATHER_DELAY", 0.2)
    path = tmp_path / "audit.jsonl"
    audit = open_audit(AuditConfig(file=str(path), arguments=arguments), Redactor([]), stdout_is_free=False)
    audit.record_start("config.json")
    held = [bytes(MAX_AUDITED_ARGUMENT_BYTES + 1), bytes(100), b'{"x":1}']
    before = [sys.getrefcount(each) for each in held]
    for _ in range(5):
        audit.on_end(replace(REQUEST, body=held[0], meta=Raw(held[2])), ended(payload=(held[1],)))
    assert len(audit._writer.queue) >= 5 and [sys.getrefcount(each) for each in held] == before
    audit.finish()
    audit.close()
    assert verify(str(path)).lines == 7


def test_a_request_that_cannot_be_described_does_not_end_the_audit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = recorded(tmp_path, (REQUEST, ENDED), (REQUEST, ended(rules=(1,))), (REQUEST, ENDED))
    assert len(lines) == 2 and "describing a line of the audit failed" in caplog.text


@pytest.mark.requirement("audit.bounded")
async def test_calls_wait_for_room_for_a_bounded_time_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "QUEUE_TIMEOUT", 0.05)
    config = AuditConfig(file=str(tmp_path / "audit.jsonl"), when_full="wait")
    audit = open_audit(config, Redactor([]), stdout_is_free=False)
    audit.record_start("config.json")
    assert audit.is_asked and audit.check(REQUEST) is None
    with monkeypatch.context() as patched:
        patched.setattr(audit_writer, "MAX_QUEUED_ENTRIES", 0)
        held = audit.check(REQUEST)
        assert asyncio.iscoroutine(held)
        assert await held is None
    audit.finish()
    audit.close()


# ── where it goes ──


def test_stdout_is_refused_over_stdio() -> None:
    with pytest.raises(ConfigError, match="cannot be written to stdout"):
        open_audit(AuditConfig(stdout=True), Redactor([]), stdout_is_free=False)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the audit cannot be written to"):
        open_audit(AuditConfig(file=str(tmp_path / "none" / "audit")), Redactor([]), stdout_is_free=False)


def test_lines_on_stdout_are_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "out"
    with taken.open("wb") as out:
        monkeypatch.setattr(os, "write", lambda descriptor, data: out.write(data[:30]))
        audit = open_audit(AuditConfig(stdout=True), Redactor([]), stdout_is_free=True)
        audit.record_start("config.json")
        audit.on_end(REQUEST, ENDED)
        audit.finish()
        audit.close()
    report = verify(str(taken))
    assert (report.lines, report.findings) == (3, [])


@pytest.mark.processes
def test_lines_go_to_the_systems_log_and_again_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Syslog(str(path))
    with pytest.raises(FileNotFoundError):
        log.append([Line(0, n=1)])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        assert log.append([Line(0, n=1), Line(0, n=2)]) == 2
        received = [listening.recv(9999).decode() for _ in range(2)]
    assert received[0].startswith("<86>mcp-workbench[") and '{"seq":1,"prev":"","n":1}' in received[0]
    assert '{"seq":2,' in received[1]
    with pytest.raises(OSError):
        log.append([Line(0, n=3)])
    log.close()


@pytest.mark.processes
def test_lines_go_to_a_log_over_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        log = Syslog(f"127.0.0.1:{listening.getsockname()[1]}")
        log.append([Line(0, n=1)])
        assert b'"n":1}' in listening.recv(9999)
        log.close()


def test_of_a_batch_that_failed_midway_the_first_part_counts() -> None:
    class Failing(Stdout):
        def _send(self, line: bytes) -> None:
            if b'"n":2' in line:
                raise OSError("gone")

    assert Failing().append([Line(0, n=1), Line(0, n=2)]) == 1


def test_lines_cost_one_call_of_ours_each_and_are_written_at_once(tmp_path: Path) -> None:
    """The thread shares the interpreter with the calls, so what it does is counted."""
    maker = LineMaker(Redactor([]), "none")
    file = AuditFile(str(tmp_path / "audit.jsonl"), 1 << 20, 1, lambda text: Line(0, reason=text))
    file.open()
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1

    entries = [CallEntry(REQUEST, "result", 1.0, 2.0, 10, 20) for _ in range(200)]
    sys.setprofile(count)
    try:
        written = file.append(maker.lines(entries, 0))
    finally:
        sys.setprofile(None)
        file.close()
    assert written == 200 and verify(str(tmp_path / "audit.jsonl")).lines == 200
    assert calls["_call"] == 200 and calls.total() < 200 + 50, calls


# ── the setting ──


@pytest.mark.parametrize(
    ("audit", "problem"),
    [
        ({}, "found no destination"),
        ({"file": "a", "stdout": True}, "found 2 destinations"),
        ({"stdout": False}, "found no destination"),
        ({"file": "a", "arguments": "all"}, "found `all`"),
        ({"file": "a", "whenFull": "drop"}, "found `drop`"),
        ({"syslog": "localhost"}, "found `localhost`"),
        ({"file": "a", "maxFileBytes": 1}, "4,096"),
        ({"file": "a", "color": 1}, "unknown key `color`"),
        ("a.jsonl", "expected an object"),
    ],
)
def test_a_wrong_setting_is_reported(tmp_path: Path, audit: Any, problem: str) -> None:
    path = write(tmp_path, {"box": {"a": Server()}}, audit=audit)
    with pytest.raises(ConfigProblems) as caught:
        load(str(path), os.environ)
    assert problem in caught.value.message


def test_a_relative_file_lies_beside_the_configuration(tmp_path: Path) -> None:
    path = write(tmp_path, {"box": {"a": Server()}}, audit={"file": "x/audit.jsonl", "keepFiles": 3})
    audit = load(str(path), os.environ).audit
    assert audit is not None and audit.file == str(tmp_path / "x" / "audit.jsonl") and audit.keep_files == 3


# ── a workbench with it ──


@pytest.mark.requirement("audit.line")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_calls_of_a_client_are_written_down(tmp_path: Path, era: str) -> None:
    boxes = {"box": {"files": Server(tool("read", "Read.", path="string"))}}
    async with workbench_with(tmp_path, boxes, era=era, audit={"file": "audit.jsonl"}) as client:
        await client.open(toolbox_name="box")
        assert "read" in text_of(await client.use("box/files/read", {"path": "x"}))
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (call,) = [line for line in lines if line["kind"] == "call"]
    assert (call["principal"], call["item"], call["outcome"]) == ("local", "read", "result")
    assert verify(str(tmp_path / "audit.jsonl")).findings == []


async def test_a_workbench_without_it_imports_nothing_of_it_and_has_no_steps(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"box": {"a": Server(tool("t"))}}) as client:
        assert client.gateway.gate.steps() == ()
        client.gateway.gate.record("approval", principal="nobody")


@pytest.mark.requirement("audit.events")
async def test_changes_of_the_configuration_are_written_down(tmp_path: Path) -> None:
    boxes = {"box": {"a": Server(tool("t"))}}
    async with workbench_with(tmp_path, boxes, audit={"file": "audit.jsonl"}) as client:
        client.gateway.reject("broken\nin detail", "broken")
        client.gateway.reject("broken\nin detail", "broken")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["decision"], line["reason"]) for line in lines if line["kind"] == "configuration"] == [
        ("rejected", "broken")
    ]
