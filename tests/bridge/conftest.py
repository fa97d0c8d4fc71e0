"""What the tests of the bridge get beyond what every test gets."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.router import toolbox_summaries
from mcp_workbench.engine.session import parking, rounds


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bridge(row, ...): the rows of docs/reference/eras.md that this test shows")


@pytest.fixture(autouse=True)
def _nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that gather or spare something are one iteration of the event loop here."""
    monkeypatch.setattr(parking, "GATHER_PAUSE", 0.0)
    monkeypatch.setattr(rounds, "FIRST_ROUND_INTERVAL", 0.0)
    monkeypatch.setattr(toolbox_summaries, "SUMMARISE_AFTER", 0.0)
