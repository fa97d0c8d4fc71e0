"""The results of `doctor`: one value per problem, and the input of checks.

Owns the order of importance. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig

Severity = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")


class Diagnosis(Struct):
    """A problem, or something worth knowing. `fix` corrects it if that is safe, and returns what it did."""

    severity: Severity
    area: str
    text: str
    hint: str = ""
    # Only for changes that cannot destroy anything: a mode, never a file's content.
    fix: Callable[[], str] | None = None
    # What `fix` did.
    fixed: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            "area": self.area,
            "text": self.text,
            "hint": self.hint or None,
            "canFix": self.fix is not None,
            "fixed": self.fixed or None,
        }


class Examined(Struct, frozen=True):
    """The input of checks. `config` is None if there is no usable configuration."""

    config: WorkbenchConfig | None
    environ: Mapping[str, str]

    @property
    def servers(self) -> dict[str, ServerConfig]:
        """By `toolbox/server`."""
        return dict(self.config.servers()) if self.config is not None else {}


# A check only reports its findings, and does not decide what is shown first.
Check = Callable[[Examined], list[Diagnosis]]


def in_order(found: list[Diagnosis]) -> list[Diagnosis]:
    """Return the most important first, those with the same hint side by side, and otherwise keep the order of the
    checks."""
    first: dict[tuple[str, str, str], int] = {}
    for place, each in enumerate(found):
        first.setdefault((each.severity, each.area, each.hint or str(place)), place)

    def rank(placed: tuple[int, Diagnosis]) -> tuple[int, int]:
        place, each = placed
        return SEVERITIES.index(each.severity), first[each.severity, each.area, each.hint or str(place)]

    return [each for _, each in sorted(enumerate(found), key=rank)]
