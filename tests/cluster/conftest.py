"""What all tests of the state share."""

from __future__ import annotations

import pytest

from mcp_workbench.cluster import valkey_link


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes its time, and is not the subject."""
    monkeypatch.setattr(valkey_link, "STATE_TIMEOUT", 3.0)
