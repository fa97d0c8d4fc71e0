"""The same measurements of another work tree, taken in turn with those of this one, side by side.

Only what is measured comes from the other tree, by `PYTHONPATH`: interpreter, packages, yardsticks and clients are
ours.
Owns the turns and the comparison. Knows nothing about how anything is measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import BenchError
from bench.findings import FORWARDED, Finding, Value
from bench.report import aligned, amount
from bench.subjects import HERE

# What becomes worse by more than this has to be explained.
ALLOWED: Final = 0.05
HEADINGS: Final = ("measurement", "subject", "there", "here", "change", "")
# They are the same on both sides: how they differ tells how much the machine does.
_YARDSTICKS: Final = ("direct", "forwarder", "plain forwarder", "python", "`python", "one definition")


class Compared(NamedTuple):
    """One subject of one measurement, in both trees."""

    name: str
    there: Value
    here: Value

    @property
    def is_yardstick(self) -> bool:
        return self.here.subject.startswith(_YARDSTICKS) and self.here.subject != FORWARDED

    @property
    def change(self) -> float:
        """By which part it has become larger; above 0 is worse, except for rates."""
        return self.here.median / self.there.median - 1 if self.there.median else 0.0

    @property
    def is_worse(self) -> bool:
        worse = -self.change if self.here.unit == "calls/s" else self.change
        return worse > ALLOWED and not self.is_yardstick


def side_by_side(
    names: Sequence[str], measure: Callable[[str], Finding], tree: Path, is_repeated: Callable[[str], bool]
) -> list[Compared]:
    """`is_repeated`: whether a measurement varies, so that each tree has two turns, there, here, here, there."""
    found: list[Compared] = []
    for name in names:
        turns = (tree, HERE.parent, HERE.parent, tree) if is_repeated(name) else (tree, HERE.parent)
        findings: dict[Path, list[Finding]] = {tree: [], HERE.parent: []}
        try:
            for each in turns:
                print(f"measuring {name} in {each} …", file=sys.stderr)
                with _of(each):
                    findings[each].append(measure(name))
        except BenchError as error:
            # Most likely the other tree does not know something that is measured.
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        here = {value.subject: value for value in _merged(findings[HERE.parent])}
        found += [Compared(name, there, here[there.subject]) for there in _merged(findings[tree])]
    return found


def comparison(compared: Sequence[Compared]) -> str:
    rows = [
        (
            each.name if index == 0 or compared[index - 1].name != each.name else "",
            each.here.subject,
            amount(each.there.median, each.here.unit),
            amount(each.here.median, each.here.unit),
            f"{each.change:+.1%}",
            "WORSE" if each.is_worse else "yardstick" if each.is_yardstick else "",
        )
        for index, each in enumerate(compared)
    ]
    return aligned([HEADINGS, *rows]) + "\n"


def _merged(findings: Sequence[Finding]) -> Iterator[Value]:
    for values in zip(*(finding.values for finding in findings), strict=True):
        yield values[0]._replace(samples=tuple(sample for value in values for sample in value.samples))


@contextmanager
def _of(tree: Path) -> Iterator[None]:
    """Start what is measured from this tree."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tree / "src")
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
