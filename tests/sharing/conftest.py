"""Tests of the shared workbench as users have it: commands, clients and their front ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sharing.harness import Shared


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    """A shared workbench of this test's own; not running yet."""
    shared = Shared(tmp_path)
    yield shared
    shared.clean_up()
