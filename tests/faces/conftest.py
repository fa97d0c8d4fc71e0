"""What the tests of the faces get beyond what every test gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faces.harness import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
