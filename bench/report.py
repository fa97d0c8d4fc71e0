"""Findings for people and for programs: a table in the terminal, a section in a document, a JSON file.

Owns wording and layout. Refuses to compute anything but units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.findings import DIRECT, Finding, Value, Verdict

BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"
NEW_DOCUMENT = f"""# Performance

`make bench` starts a raw echo server directly, behind a bare forwarder that only rewrites ids (uvloop and orjson), and
behind the workbench with ten servers connected, and sends the same calls to each. Subjects take turns in rounds, in
reverse order every other round; each round gives a median, and the table shows the median of those. Compare the ratios,
which come from one run on one machine, and not the times, which are that machine's. Every answer is checked.

`make bench BENCH_ARGS="--timed --write docs/internals/performance.md"` replaces what follows.

{BEGIN}
{END}
"""

TARGET_HEADINGS = ("measurement", "compared", "measured", "target", "")
VALUE_HEADINGS = ("measurement", "subject", "median", "rounds from", "to", "added to direct")

Rows = list[tuple[str, ...]]


def amount(number: float, unit: str) -> str:
    """A number as people read it."""
    if unit == "×":
        return f"{number:.2f} ×"
    if unit == "%":
        return f"{number:.0f} %"
    if unit == "calls/s":
        return f"{number:,.0f}/s"
    if unit == "instructions":
        return f"{number:,.0f} instructions"
    if unit == "B":
        return f"{number / (1 << 20):.1f} MiB" if abs(number) >= 1 << 20 else f"{number:,.0f} B"
    return f"{number * 1e3:.2f} ms" if abs(number) >= 1e-3 else f"{number * 1e6:.1f} µs"


def target_rows(findings: Sequence[Finding]) -> Rows:
    return [
        (finding.name, verdict.what, amount(verdict.measured, verdict.form), _target(verdict), _mark(verdict))
        for finding in findings
        for verdict in [finding.verdict]
    ]


def value_rows(findings: Sequence[Finding]) -> Rows:
    return [
        (finding.title if index == 0 else "", *_value_cells(value, finding))
        for finding in findings
        for index, value in enumerate(finding.values)
    ]


def text_report(findings: Sequence[Finding], machine: Mapping[str, str], date: str) -> str:
    """Both tables in aligned columns."""
    about = "\n".join(f"{key}: {value}" for key, value in {**machine, "date": date}.items())
    values = aligned([VALUE_HEADINGS, *value_rows(findings)])
    targets = aligned([TARGET_HEADINGS, *target_rows(findings)])
    return f"{about}\n\n{values}\n\n{targets}\n"


def markdown_report(findings: Sequence[Finding], machine: Mapping[str, str], date: str) -> str:
    about = "\n".join(f"- {key}: {value}" for key, value in {**machine, "date": date}.items())
    targets = _markdown(TARGET_HEADINGS, target_rows(findings))
    values = _markdown(VALUE_HEADINGS, value_rows(findings))
    return f"{targets}\n\n{values}\n\nTaken on:\n\n{about}\n"


def json_report(findings: Sequence[Finding], machine: Mapping[str, str], date: str) -> dict[str, Any]:
    return {
        "date": date,
        "machine": dict(machine),
        "findings": [
            {
                "name": finding.name,
                "title": finding.title,
                "values": [{**value._asdict(), "median": value.median} for value in finding.values],
                "verdict": {**finding.verdict._asdict(), "passed": finding.verdict.passed},
            }
            for finding in findings
        ],
    }


def with_section(document: str, section: str) -> str:
    """The document with what stands between the two marks replaced; the marks are added when they are missing."""
    before, found, rest = document.partition(BEGIN)
    if not found:
        return f"{document.rstrip()}\n\n{BEGIN}\n\n{section.strip()}\n\n{END}\n".lstrip()
    _, ended, after = rest.partition(END)
    if not ended:
        raise ValueError(f"`{BEGIN}` is not followed by `{END}`")
    return f"{before}{BEGIN}\n\n{section.strip()}\n\n{END}{after}"


def write_section(path: Path, section: str) -> None:
    document = path.read_text(encoding="utf-8") if path.exists() else NEW_DOCUMENT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(with_section(document, section), encoding="utf-8")


def _value_cells(value: Value, finding: Finding) -> tuple[str, ...]:
    direct = next((each.median for each in finding.values if each.subject == DIRECT), None)
    added = ""
    if value.unit == "s" and direct is not None and value.subject != DIRECT and finding.name != "start-up":
        added = amount(value.median - direct, "s")
    single = len(value.samples) == 1
    spread = ("", "") if single else (amount(min(value.samples), value.unit), amount(max(value.samples), value.unit))
    return value.subject, amount(value.median, value.unit), *spread, added


def _target(verdict: Verdict) -> str:
    return f"{'≥' if verdict.at_least else '≤'} {amount(verdict.bound, verdict.form)}"


def _mark(verdict: Verdict) -> str:
    return "pass" if verdict.passed else "MISSED"


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def _markdown(headings: Sequence[str], rows: Rows) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
