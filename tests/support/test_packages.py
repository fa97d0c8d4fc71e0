"""Where published programs for tests are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import packages


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_packages_of_equal_versions_are_not_taken_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was installed for one list would be missing for the other."""
    monkeypatch.setattr(packages, "CACHE", tmp_path)
    monkeypatch.setattr(packages, "_install", lambda folder, command: None)
    folders = {packages.node_packages(each) for each in (("a@1", "b@1"), ("b@1", "a@1"), ("a@1",), ("c@1",))}
    assert len(folders) == 3
