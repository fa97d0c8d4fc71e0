"""Whole conversations through a front end: the same tests that a workbench alone passes, with the SDK's client too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.test_sdk_client import (  # noqa: F401 - run again here
    test_the_sdk_sees_the_same_through_us_as_directly,
)
from tests.faces.harness import Bench
from tests.faces.test_command import (  # noqa: F401 - run again here
    test_a_whole_conversation,
    test_the_aggregator_with_a_plain_file,
    test_the_separator_of_the_file_counts_unless_the_command_line_has_one,
)
from tests.sharing.harness import Shared


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(autouse=True)
def _through_the_shared_workbench(shared: Shared) -> Iterator[None]:
    shared.up()
    yield
    assert "joins from" in shared.log, "otherwise this looks at a workbench alone"
    shared.down()
