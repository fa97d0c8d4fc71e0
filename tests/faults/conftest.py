"""What the fault suite gets beyond what every test gets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.running_workbench import Faults
from tests.support import processes

collect_ignore_glob: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is left over can only be told where the kernel tells it."""
    if not processes.available():
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="reads /proc, which only Linux has"))


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Faults]:
    with tempfile.TemporaryDirectory(prefix="wb-") as temporary:
        yield Faults(tmp_path, Path(temporary))
