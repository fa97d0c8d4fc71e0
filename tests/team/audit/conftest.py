"""What the tests of the audit share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.team.audit import test_audit_file


@pytest.fixture(autouse=True)
def _opened_files_are_closed() -> Iterator[None]:
    yield
    while test_audit_file.opened_files:
        test_audit_file.opened_files.pop().close()
