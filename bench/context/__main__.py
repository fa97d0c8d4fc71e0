"""`python -m bench.context DATA`: measures context economy on catalogues of real tools.

Owns the options, the targets and the report. Refuses to measure anything itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.context.data import Count, Need, catalogue, counter, halves, needs, needs_by_set
from bench.context.finding import Reached, reach, share, share_of_places, share_without_synonyms
from bench.context.footprint import footprint
from bench.context.learning import HEAD as LEARNING_HEAD
from bench.context.learning import LearningRow, simulate
from bench.context.opening import complete_share, open_each, per_tool
from bench.context.routing import routed
from bench.context.sets import HEAD, SetRow, compare
from bench.machine import describe_machine
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.face.base import MAX_ROOM_FOR_INSTRUCTIONS
from mcp_workbench.engine.face.client_behaviour import USUAL_ROOM

BEGIN = "<!-- bench-context:begin -->"
END = "<!-- bench-context:end -->"


class Row(NamedTuple):
    """A measurement with its target, or without one."""

    what: str
    measured: float
    unit: str
    bound: float | None = None
    at_least: bool = True

    @property
    def passed(self) -> bool:
        if self.bound is None:
            return True
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def cells(self) -> tuple[str, str, str, str]:
        if self.bound is None:
            return self.what, _amount(self.measured, self.unit), "", ""
        target = f"{'≥' if self.at_least else '≤'} {_amount(self.bound, self.unit)}"
        return self.what, _amount(self.measured, self.unit), target, "pass" if self.passed else "MISSED"


def _amount(value: float, unit: str) -> str:
    match unit:
        case "%":
            return f"{value:.1f} %"
        case "s":
            return f"{value * 1e3:,.2f} ms" if value < 0.1 else f"{value:.2f} s"
        case "MB":
            return f"{value / 1e6:.1f} MB"
    return f"{value:,.0f} {unit}".strip()


def measure(folder: Path, count: Count) -> list[Row]:
    step, agent = needs(folder, "step"), needs(folder, "agent")
    live, real, more = (catalogue(folder, name) for name in ("livemcp", "real", "toucan"))
    index = Index.build([listed.entry() for listed in live])
    large = Index.build([listed.entry() for listed in (*live, *real, *more)])
    rows = []
    targets = (("step", step, 82, 74, 58, 58), ("agent", agent, 88, 75, 45, None))
    for name, asked, in_front, first_five, in_many, routed_to in targets:
        reached: Reached = reach(index, live, asked, count)
        rows += [
            Row(f"{name} needs: right tool in front of the agent", reached.in_front, "%", in_front),
            Row(f"{name} needs: mean cost from request to definition", reached.tokens, "tokens", 850, at_least=False),
            Row(f"{name} needs: the same where it was found", reached.tokens_when_found, "tokens"),
            Row(f"{name} needs: shown with its signature (first 10)", reached.shown, "%"),
            Row(f"{name} needs: among the first 5 of {len(live):,}", reached.first_five, "%", first_five),
            Row(
                f"{name} needs: among the first 5, without the tables of synonyms",
                share_without_synonyms(index, asked, among=5),
                "%",
            ),
            Row(f"{name} needs: first of {len(live):,}", reached.first, "%"),
            Row(
                f"{name} needs: among the first 5 of {len(large.keys):,}",
                share_of_places(large, (*live, *real, *more), asked, among=5),
                "%",
                in_many,
            ),
            *_by_half(name, asked, index),
            *(
                Row(
                    f"{name} needs: right toolbox of 70 by {most:,} bytes of instructions",
                    routed(live, asked, most=most),
                    "%",
                    routed_to,
                )
                for most in (MAX_ROOM_FOR_INSTRUCTIONS, USUAL_ROOM)
            ),
        ]
    opened = open_each(real, count)
    rows += [
        Row(f"opening {opened.toolboxes} real toolboxes: mean", opened.mean, "tokens", 2_000, at_least=False),
        Row("opening real toolboxes: mean, by the tokenizer", opened.counted, "tokens"),
        Row("opening real toolboxes: median", opened.median, "tokens"),
        Row("opening real toolboxes: most", opened.most, "tokens"),
        Row("opening real toolboxes: over the budget", opened.over, "", 0, at_least=False),
        Row("all real tools as a flat list", opened.flat, "tokens"),
        *(Row(f"opened as: {form}", times, "toolboxes") for form, times in opened.forms.items()),
        *(Row(f"one real tool as {form}", tokens, "tokens") for form, tokens in per_tool(real, count).items()),
        Row("real tools whose signature is complete", complete_share(real), "%"),
    ]
    cost = footprint([*live, *real][:3_180], [*step, *agent])
    rows += [
        Row(f"index of {cost.tools:,} tools: CPU to build", cost.build, "s", 0.5, at_least=False),
        Row("index: CPU for a query, mean", cost.query, "s", 0.001, at_least=False),
        Row("index: CPU for a query, slowest twentieth", cost.query_slow, "s"),
        Row("index: memory", cost.memory, "MB", 25e6, at_least=False),
        Row("index: stored", cost.stored, "MB"),
    ]
    return rows


def _by_half(name: str, asked: list[Need], index: Index) -> list[Row]:
    looked_at, kept = halves(asked)
    return [
        Row(f"{name} needs: first {among}, {half} ({len(part)})", share(index, part, among=among), "%")
        for half, part in (("half that was looked at", looked_at), ("half that was not", kept))
        for among in (5, 10)
        if part
    ]


def markdown(rows: list[Row], compared: list[SetRow], learned: list[LearningRow], tokenizer: str) -> str:
    table = _table(
        [("measurement", "measured", "target", ""), ("---", "---:", "---:", "---"), *(row.cells() for row in rows)]
    )
    table += "\n\n" + _table([HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *(row.cells() for row in compared)])
    simulated = [LEARNING_HEAD, ("---", *["---:"] * (len(LEARNING_HEAD) - 1)), *(row.cells() for row in learned)]
    table += "\n\nWhat learning from use gains, with simulated users:\n\n" + _table(simulated)
    machine = {**describe_machine(), "tokens": tokenizer, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    return f"{table}\n\nTaken on:\n\n" + "\n".join(f"- {key}: {value}" for key, value in machine.items())


def _table(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_section(document: str, section: str) -> str:
    """The document with what stands between our marks replaced, or with a new section at its end."""
    before, found, rest = document.partition(BEGIN)
    if not found:
        return f"{document.rstrip()}\n\n## Context economy\n\n{BEGIN}\n\n{section}\n\n{END}\n".lstrip()
    _, ended, after = rest.partition(END)
    if not ended:
        raise ValueError(f"`{BEGIN}` is not followed by `{END}`")
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.context", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with the catalogues and needs")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the marked section of a Markdown file")
    options = parser.parse_args(arguments)
    if not (options.data / "livemcp_queries.jsonl").is_file():
        print(f"bench.context: `{options.data}` has no `livemcp_queries.jsonl`", file=sys.stderr)
        return 2
    tokenizer, count = counter(options.data)
    rows = measure(options.data, count)
    width = max(len(row.what) for row in rows)
    for row in rows:
        what, measured, target, mark = row.cells()
        print(f"{what:<{width}}  {measured:>14}  {target:>14}  {mark}".rstrip())
    compared = compare(options.data)
    for each in compared:
        print("  ".join(f"{cell:>16}" for cell in each.cells()))
    asked = [need for part in needs_by_set(options.data, "livemcp").values() for need in part]
    learned = simulate(catalogue(options.data, "livemcp"), asked)
    for row_of_set in learned:
        print("  ".join(f"{cell:>16}" for cell in row_of_set.cells()))
    if options.write:
        document = options.write.read_text(encoding="utf-8") if options.write.exists() else "# Performance\n"
        section = markdown(rows, compared, learned, tokenizer)
        options.write.write_text(with_section(document, section), encoding="utf-8")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
