"""The measurements of the face `flat` run and compare what they say; how fast anything is, is not a test's business."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.calls import Effort
from bench.flat import FEW_TOOLS, flat_call, flat_list
from bench.subjects import Workshop

SMALL = Effort(rounds=1, sequential=4, tools=1000)


@pytest.mark.requirement("flat.cost")
def test_a_list_is_measured_by_its_bytes(tmp_path: Path) -> None:
    finding = flat_list(Workshop(tmp_path), SMALL)
    assert [value.subject for value in finding.values] == ["flat, 100 tools", "flat, 1,000 tools"]
    assert all(value.median > 0 for value in finding.values)
    assert finding.verdict.form == "×"


@pytest.mark.requirement("flat.cost")
def test_a_call_is_measured_among_few_tools_and_among_many(tmp_path: Path) -> None:
    finding = flat_call(Workshop(tmp_path), SMALL)
    assert [value.subject for value in finding.values] == [f"flat, {FEW_TOOLS} tools", "flat, 1,000 tools"]
    assert finding.verdict.measured > 0
