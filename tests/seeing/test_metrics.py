"""Metrics say what was counted, in a format that Prometheus accepts, whatever names clients and servers have."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from mcp_workbench.engine.observe.call_figures import MAX_ROWS, OTHER, CallFigures
from mcp_workbench.engine.steps import GuardedRequest, Passage, UncheckedPassage
from mcp_workbench.seeing.metrics import (
    MAX_TOOL_SERIES,
    ProcessFacts,
    ServerFacts,
    WorkbenchFacts,
    exposition,
)

OK = b'{"content":[]}'
FAILED = b'{"content":[],"isError":true}'
HOSTILE = 'say "hi"\\\n# TYPE x counter\nx{a="b"} 1\u202e\x00\ud800'


def facts(*known: tuple[str, str], servers: tuple[ServerFacts, ...] = ()) -> WorkbenchFacts:
    return WorkbenchFacts(
        version="1.2.3",
        process=ProcessFacts(1.5, 1e9, 4096, 8192, 7, 1024),
        states=("ready", "failed"),
        servers=servers,
        known={("box", "a"), ("box", "s"), *known},
        approvals_waiting=2,
        audit_lost=3,
        spans_dropped=4,
        tokens={"box": 900, "other": 80},
        listed_tokens=120,
    )


def call(figures: CallFigures, item: str = "tool", *, server: str = "s", end: bytes = OK, toolbox: str = "box") -> None:
    origin = GuardedRequest(
        principal="ann",
        client=b"{}",
        session=7,
        method="tools/call",
        toolbox=toolbox,
        server=server,
        item=item,
        body=b"",
    )
    passage = UncheckedPassage(None, figures, origin, b'{"secret":"x"', None, 1.0)
    figures.begin(passage)
    failed = b"isError" in end
    figures.on_unchecked_end(passage, "tool_error" if failed else "result", (end,), len(end), 1.004)


def text_of(
    figures: CallFigures, known: WorkbenchFacts | None = None, *, per_tool: bool = False, is_open: bool = False
) -> str:
    return exposition(figures, known or facts(), per_tool=per_tool, is_open=is_open).decode()


def series(text: str) -> dict[str, float]:
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    }


def test_durations_are_histograms_by_server_method_and_kind_of_error() -> None:
    figures = CallFigures()
    call(figures, server="a")
    call(figures)
    call(figures)
    call(figures, end=FAILED)
    found = series(text_of(figures))
    labels = 'toolbox="box",server="s",mcp_method_name="tools/call",error_type="{}"{}'
    name = "mcp_server_operation_duration_seconds{}{{" + labels + "}}"
    assert found[name.format("_bucket", "", ',le="0.002"')] == 0
    assert found[name.format("_bucket", "", ',le="0.005"')] == 2
    assert found[name.format("_bucket", "", ',le="+Inf"')] == 2
    assert found[name.format("_count", "", "")] == 2 and found[name.format("_sum", "", "")] == pytest.approx(0.008)
    assert found[name.format("_count", "tool_error", "")] == 1
    assert found[name.replace("mcp_server", "mcp_client").format("_count", "", "")] == 2
    assert found['workbench_message_bytes_total{toolbox="box",server="s",direction="request"}'] == 3 * 14
    assert not [each for each in found if "gen_ai_tool_name" in each]


def test_refused_call_is_never_sent_and_names_the_rule() -> None:
    figures = CallFigures()
    origin = GuardedRequest(
        principal="", client=b"{}", session=0, method="tools/call", toolbox="box", server="s", item="t", body=b"{"
    )
    for rule in ("policy[3]", "policy[4]", "lock"):
        passage = Passage((), origin, tracker=figures)
        passage.decision, passage.rules = "denied", (rule,)
        passage.end("error", b'{"code":1,"message":"no"}')
    text = text_of(figures)
    assert 'error_type="refused"' in text and "mcp_client_operation" not in text
    found = series(text)
    assert (found['workbench_denied_total{step="policy"}'], found['workbench_denied_total{step="lock"}']) == (2, 1)


def test_calls_that_have_not_ended_are_in_flight_or_wait() -> None:
    figures = CallFigures()
    for is_waiting in (False, True, True):
        origin = GuardedRequest(
            principal="", client=b"{}", session=0, method="tools/call", toolbox="box", server="s", item="t", body=b""
        )
        figures.begin(UncheckedPassage(None, figures, origin, b"{", None, 1.0, is_waiting=is_waiting))
    found = series(text_of(figures))
    assert found['workbench_requests_in_flight{toolbox="box",server="s"}'] == 1
    assert found['workbench_requests_waiting{toolbox="box",server="s"}'] == 2


def test_known_metrics_are_exposed_and_unknown_ones_omitted() -> None:
    measured = ServerFacts("box", "a", {"ready"}, 2, {"start": 1, "crash": 3}, 9, 1 << 20, 3)
    remote = ServerFacts("box", "s", {"ready", "failed"}, 1, {"start": 0, "crash": 0}, 0, None, None)
    found = series(text_of(CallFigures(), facts(servers=(measured, remote))))
    assert found['workbench_server_state{toolbox="box",server="a",state="failed"}'] == 0
    assert found['workbench_server_state{toolbox="box",server="s",state="failed"}'] == 1
    assert found['workbench_server_memory_bytes{toolbox="box",server="a"}'] == 1 << 20
    assert not [each for each in found if each.startswith("workbench_server_memory") and 'server="s"' in each]
    assert found['workbench_server_failures_total{toolbox="box",server="a",reason="start"}'] == 1
    assert found['workbench_server_failures_total{toolbox="box",server="a",reason="crash"}'] == 3
    assert found['workbench_server_stderr_lines_total{toolbox="box",server="a"}'] == 9
    assert found['workbench_build_info{version="1.2.3"}'] == 1 and found["process_cpu_seconds_total"] == 1.5
    assert found["workbench_approvals_waiting"] == 2 and found["workbench_audit_lost_total"] == 3
    assert found["workbench_spans_dropped_total"] == 4


def test_events_and_saved_tokens_are_counted() -> None:
    figures = CallFigures()
    for kind, decision in (
        ("approval", "passed"),
        ("approval", "denied"),
        ("approval", "denied"),
    ):
        figures.note_event(kind, decision)
    for place in (("box", "s"), ("box", "s"), ("box", "no longer there"), ("box", "nor this")):
        figures.note_event("sign_in", "signed in", place)
    figures.note_event("authentication", "denied")
    figures.note_saved("box", 1200)
    found = series(text_of(figures))
    assert found['workbench_approvals_total{decision="denied"}'] == 2
    assert found['workbench_sign_ins_total{toolbox="box",server="s",outcome="signed_in"}'] == 2
    assert found[f'workbench_sign_ins_total{{toolbox="{OTHER}",server="{OTHER}",outcome="signed_in"}}'] == 2
    assert found['workbench_context_tokens{toolbox="other",form="full"}'] == 80
    assert found['workbench_context_tokens{toolbox="",form="listed"}'] == 120
    assert found['workbench_auth_failures_total{kind="http"}'] == 1
    assert found['workbench_tokens_saved_total{toolbox="box"}'] == 1200


def test_sessions_are_reported_by_server_and_revision() -> None:
    figures = CallFigures()
    for place, version, seconds in (
        (("", ""), "2025-11-25", 0.2),
        (("", ""), "2025-11-25", 70.0),
        (("box", "s"), "2026-07-28", 3.0),
        (("box", "gone"), "2025-11-25", 3.0),
        (("box", "gone, too"), "2025-11-25", 4.0),
    ):
        figures.note_session(place, version, seconds)
    found = series(text_of(figures))
    assert found['mcp_server_session_duration_seconds_count{mcp_protocol_version="2025-11-25"}'] == 2
    assert found['mcp_server_session_duration_seconds_bucket{mcp_protocol_version="2025-11-25",le="60.0"}'] == 1
    of_server = 'mcp_client_session_duration_seconds_sum{{toolbox="{}",server="{}",mcp_protocol_version="{}"}}'
    assert found[of_server.format("box", "s", "2026-07-28")] == 3
    assert found[of_server.format(OTHER, OTHER, "2025-11-25")] == 7


def test_sessions_and_events_of_many_places_are_bounded() -> None:
    figures = CallFigures()
    for number in range(MAX_ROWS + 50):
        figures.note_session(("box", str(number)), "2025-11-25", 1.0)
        figures.note_event("sign_in", "failed", ("box", str(number)))
    assert len(figures.sessions) == len(figures.events) == MAX_ROWS + 1
    assert figures.sessions[(OTHER, OTHER), "2025-11-25"].total == 50


def test_names_that_clients_make_up_and_secrets_are_no_labels() -> None:
    figures = CallFigures()
    for number in range(50):
        call(figures, server=f"made up {number}")
    text = text_of(figures)
    assert "made up" not in text and "ann" not in text and "secret" not in text
    assert series(text)[
        f'mcp_server_operation_duration_seconds_count{{toolbox="{OTHER}",server="{OTHER}",mcp_method_name="tools/call",error_type=""}}'
    ] == 50  # fmt: skip


def test_tools_are_distinguished_if_that_is_wanted_up_to_a_bound() -> None:
    figures = CallFigures()
    for number in range(MAX_TOOL_SERIES + 5):
        call(figures, f"tool {number}", server="a" if number % 2 else "s")
    counts = {
        name: value
        for name, value in series(text_of(figures, per_tool=True)).items()
        if "server_operation_duration_seconds_count" in name
    }
    assert len(counts) == MAX_TOOL_SERIES + 2
    assert sum(counts.values()) == MAX_TOOL_SERIES + 5
    assert sum(value for name, value in counts.items() if OTHER in name) == 5


def test_without_any_call_there_is_no_series_of_calls() -> None:
    assert "operation_duration" not in text_of(CallFigures())


def test_openmetrics_names_counters_without_suffix_and_says_where_it_ends() -> None:
    figures = CallFigures()
    call(figures)
    plain, opened = text_of(figures), text_of(figures, is_open=True)
    assert "# TYPE workbench_message_bytes counter\n" in opened and opened.endswith("\n# EOF\n")
    assert "# TYPE workbench_message_bytes_total counter\n" in plain and "# EOF" not in plain
    assert series(opened) == series(plain)


def hostile() -> tuple[CallFigures, WorkbenchFacts]:
    figures = CallFigures()
    for toolbox, server in (("box", "s"), (HOSTILE, HOSTILE)):
        call(figures, HOSTILE, toolbox=toolbox, server=server)
    return figures, facts(
        (HOSTILE, HOSTILE), servers=(ServerFacts(HOSTILE, HOSTILE, {"ready"}, 1, {"crash": 0}, 2, 5, 1),)
    )


def test_hosts_that_a_sandbox_refused_are_counted_for_servers_that_have_any() -> None:
    usual = ServerFacts("box", "a", {"ready"}, 1, {}, 0, None, None)
    found = series(text_of(CallFigures(), facts(servers=(usual, usual._replace(server="b", refused=3)))))
    refused = {name: value for name, value in found.items() if name.startswith("workbench_sandbox_refused")}
    assert refused == {'workbench_sandbox_refused_total{toolbox="box",server="b",kind="host"}': 3}


def test_hostile_names_are_escaped() -> None:
    text = text_of(*hostile(), per_tool=True)
    assert not re.search(r"^x\{", text, re.MULTILINE) and not re.search("^# TYPE x ", text, re.MULTILINE)
    assert r'server="say \"hi\"\\\n# TYPE x counter' in text


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (apt-get install prometheus)")
def test_promtool_finds_nothing_wrong() -> None:
    figures, known = hostile()
    figures.note_event("approval", "passed")
    figures.note_saved("box", 1)
    figures.note_session(("box", "s"), "2025-11-25", 1.0)
    figures.note_session(("", ""), "2025-11-25", 1.0)
    figures.note_event("sign_in", "signed in", (HOSTILE, HOSTILE))
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition(figures, known, per_tool=True, is_open=False),
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
