"""From samples to verdicts to documents: the arithmetic and the layout of the benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import machine, sandboxes
from bench.__main__ import parse, run
from bench.calls import in_rounds
from bench.client import BenchError, StdioCaller
from bench.findings import (
    Finding,
    Value,
    Verdict,
    added_against_forwarder,
    added_in_rounds,
    beyond_definition,
    share_in_rounds,
    share_of,
)
from bench.processes import marked_processes, memory_of
from bench.report import BEGIN, END, amount, json_report, markdown_report, text_report, with_section
from bench.shared import added_by_front_end
from bench.subjects import MARK, Connected, Workshop
from mcp_workbench.engine.sandbox.sandbox import Capabilities

VERDICT = Verdict("added per call", 2.5, 2, at_least=False, form="×")
FINDING = Finding(
    "sequential",
    "one call after another",
    (Value("direct", "s", (20e-6, 22e-6, 90e-6)), Value("workbench", "s", (1.5e-3,))),
    VERDICT,
)


def test_overhead_is_compared_by_medians_over_the_rounds() -> None:
    samples = {"direct": [10.0, 11, 90], "forwarder": [20.0, 21, 22], "workbench": [30.0, 31, 500]}
    assert added_against_forwarder(samples) == 2
    assert share_of(samples, "forwarder", "direct") == 21 / 11


def test_a_forwarder_that_seems_to_cost_nothing_proves_nothing() -> None:
    assert added_against_forwarder({"direct": [10.0], "forwarder": [9.0], "workbench": [10.5]}) == float("inf")


def test_a_front_end_is_compared_round_by_round() -> None:
    # Another workload comes and goes: it makes everything slower, and the ratio stays.
    samples = {
        "workbench": [100.0, 300.0, 100.0],
        "forwarder before a workbench": [150.0, 450.0, 99.0],
        "shared": [140.0, 420.0, 140.0],
    }
    assert added_by_front_end(samples) == 0.8
    assert added_by_front_end({name: [numbers[2]] for name, numbers in samples.items()}) == float("inf")


def test_comparison_in_rounds_survives_intermittent_load() -> None:
    samples = {"off": [1.0, 3.0, 1.1], "guard": [1.5, 3.5, 9.0]}
    assert added_in_rounds(samples, "guard", "off") == 0.5
    assert share_in_rounds(samples, "guard", "off") == 1.5


def test_a_row_that_a_machine_cannot_measure_is_left_out_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Capabilities(landlock_abi=7, has_filters=True, why_no_bwrap=lambda: "bwrap is not installed")
    monkeypatch.setattr(sandboxes, "capabilities", lambda: here)
    monkeypatch.setattr("bench.__main__.sandbox_start", lambda effort: FINDING)
    assert run(parse(["--only", "sandbox-bwrap", "--only", "sandbox-start"]), tmp_path) == [FINDING]
    assert "sandbox-bwrap is left out: bwrap is not installed" in capsys.readouterr().err
    monkeypatch.setattr(sandboxes, "capabilities", Capabilities)
    assert run(parse(["--only", "sandbox-start"]), tmp_path) == []


def test_the_definition_of_a_tool_is_not_counted_against_it() -> None:
    assert beyond_definition(20_000, 50_000, further_tools=10, further_definition_bytes=15_000) == 1500


@pytest.mark.parametrize(("measured", "at_least", "passed"), [(2, False, True), (2.1, False, False), (2.1, True, True)])
def test_a_verdict_passes_on_the_right_side_of_its_bound(measured: float, at_least: bool, passed: bool) -> None:
    assert Verdict("", measured, 2, at_least, "×").passed is passed


def test_subjects_are_measured_in_turn_and_in_reverse_every_other_round(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    with StdioCaller([sys.executable, "-c", ""]) as caller:
        running = [Connected(each, caller, lambda _: ("", {})) for each in (workshop.direct(), workshop.forwarder())]
        order: list[str] = []

        def measure(each: Connected) -> float:
            order.append(each.subject.name)
            return len(order)

        samples = in_rounds(running, 3, measure)
    assert order == ["direct", "forwarder", "forwarder", "direct", "direct", "forwarder"]
    assert samples == {"direct": [1, 4, 5], "forwarder": [2, 3, 6]}


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (27.04e-6, "s", "27.0 µs"),
        (0.0125, "s", "12.50 ms"),
        (80_123.4, "calls/s", "80,123/s"),
        (36_700_160, "B", "35.0 MiB"),
        (1024, "B", "1,024 B"),
        (1.994, "×", "1.99 ×"),
        (41.2, "%", "41 %"),
    ],
)
def test_numbers_are_written_as_people_read_them(number: float, unit: str, text: str) -> None:
    assert amount(number, unit) == text


def test_both_reports_show_every_value_the_target_and_the_machine() -> None:
    for report in (text_report, markdown_report):
        shown = report([FINDING], {"cores": "2"}, "2026-01-02")
        for part in (
            "22.0 µs",
            "90.0 µs",
            "1.50 ms",
            "1.48 ms",
            "2.50 ×",
            "≤ 2.00 ×",
            "MISSED",
            "cores: 2",
            "2026-01-02",
        ):
            assert part in shown


def test_the_json_report_keeps_every_sample() -> None:
    report = json.loads(json.dumps(json_report([FINDING], {"cores": "2"}, "2026-01-02")))
    [finding] = report["findings"]
    assert finding["values"][0]["samples"] == [20e-6, 22e-6, 90e-6]
    assert finding["values"][0]["median"] == 22e-6
    assert finding["verdict"]["passed"] is False


def test_only_the_marked_section_of_a_document_is_replaced() -> None:
    document = f"# Title\n\n{BEGIN}\nold\n{END}\n\nAfter.\n"
    once = with_section(document, "new\n")
    assert once == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nAfter.\n"
    assert with_section(once, "new\n") == once


def test_a_document_without_marks_gets_them_at_its_end() -> None:
    assert with_section("# Title\n", "new") == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n"


def test_a_section_without_an_end_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="not followed"):
        with_section(f"# Title\n{BEGIN}\nold\n", "new")


@pytest.mark.parametrize("partial", [["--quick"], ["--only", "memory"]])
def test_a_partial_run_is_not_recorded(partial: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*partial, "--write", "performance.md"])
    assert "whole run" in capsys.readouterr().err


def test_another_gateway_is_given_a_plain_config_with_ten_servers(tmp_path: Path) -> None:
    subject = Workshop(tmp_path).also("other=some-gateway --file '{config}' --quiet")
    program, option, config, last = subject.command
    assert (subject.name, program, option, last) == ("other", "some-gateway", "--file", "--quiet")
    assert len(json.loads(Path(config).read_text())["mcpServers"]) == 10


@pytest.mark.parametrize("description", ["other", "=command", "other="])
def test_another_gateway_without_name_or_command_is_refused(description: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="expected `name=command"):
        Workshop(tmp_path).also(description)


def test_the_workbench_is_measured_with_ten_servers_and_a_cache_of_its_own(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    subject, other = workshop.workbench(), workshop.workbench()
    config = json.loads(Path(subject.command[-1]).read_text())
    assert len(config["toolboxes"]["bench"]["mcpServers"]) == 10
    assert subject.environment["XDG_CACHE_HOME"] != other.environment["XDG_CACHE_HOME"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc here")
def test_processes_are_found_by_their_mark_and_weighed() -> None:
    command = (sys.executable, "-c", "input()")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={MARK: "mine"}) as child:
        [found] = marked_processes(MARK, "mine")
        assert (found.pid, found.command) == (child.pid, command)
        assert memory_of(child.pid).rss > 0
        child.communicate(b"\n")
    assert marked_processes(MARK, "mine") == []


@pytest.mark.parametrize(("load", "is_doubtful"), [(0.5, False), (4.0, False), (4.5, True)])
def test_numbers_from_a_busy_machine_are_not_to_be_trusted(
    load: float, is_doubtful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    reason = machine.doubt()
    assert (reason is not None) is is_doubtful
    assert reason is None or reason == f"the machine was busy (load {load} on 4 cores): do not trust this"
