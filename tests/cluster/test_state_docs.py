"""docs/guides/scaling.md tells of each kind of state: by what it is found, how long it is kept, and how much of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.lasting_state import StateKind
from tests.support.state_kinds import STATE_KINDS

SCALING = Path(__file__).resolve().parents[2] / "docs" / "guides" / "scaling.md"
ROWS = {
    "session": "legacy sessions",
    "opened": "toolboxes opened by modern clients",
    "result": "large results",
    "task": "handles of tasks",
    "instance": "the instances themselves",
    "key": "named keys",
    "revoked-key": "revoked keys",
    "approval": "approvals for a time, denials",
    "waiting": "calls that wait for an approval",
    "sign-in": "sign-ins to servers",
    "accepted": "definitions accepted",
}
TIMES = ((24 * 3600.0, "day"), (60.0, "minute"), (1.0, "second"))


def time_of(seconds: float) -> str:
    unit, name = next((unit, name) for unit, name in TIMES if seconds >= unit)
    count = int(seconds / unit)
    return f"a {name}" if count == 1 else f"{count} {name}s"


def size_of(number: int) -> str:
    return f"{number // 1024**2} MiB" if number >= 1024**2 else f"{number // 1024} KiB"


@pytest.mark.parametrize("kind", STATE_KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_state_has_a_row_with_its_bounds(kind: StateKind) -> None:
    start = f"| {ROWS[kind.name]}"
    (row,) = [line for line in SCALING.read_text("utf-8").splitlines() if line.startswith(start)]
    _, what, found_by, until, much, _ = row.split("|")
    assert what.strip() and found_by.strip()
    assert time_of(kind.lifetime) in until
    assert size_of(kind.max_bytes) in much
    assert not kind.most or f"{kind.most:,}" in much
