"""What the end-to-end tests get beyond what every test gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.harness import Workbench


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)
