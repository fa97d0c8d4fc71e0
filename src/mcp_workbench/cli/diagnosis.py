"""What `doctor` says: one value for each thing that is wrong, and what a check gets to look at.

Owns the order of importance. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from mcp_workbench.config.model import ServerConfig, WorkbenchConfig

Severity = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")


class Diagnosis(Struct):
    """One thing that is wrong, or worth knowing. `fix` puts it right where that is safe, and says what it did."""

    severity: Severity
    area: str
    text: str
    hint: str = ""
    # Only what cannot destroy anything: a mode, never a file's content.
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
    """What is looked at. `config` is None where none can be used."""

    config: WorkbenchConfig | None
    environ: Mapping[str, str]

    @property
    def servers(self) -> dict[str, ServerConfig]:
        """By `toolbox/server`."""
        return dict(self.config.servers()) if self.config is not None else {}


# A check never decides what is shown first: it says what it found.
Check = Callable[[Examined], list[Diagnosis]]


def in_order(found: list[Diagnosis]) -> list[Diagnosis]:
    """The most important first; within that, in the order of the checks."""
    return sorted(found, key=lambda each: SEVERITIES.index(each.severity))
