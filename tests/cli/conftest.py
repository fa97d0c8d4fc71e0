"""Commands leave images and recordings in a temporary folder, for the user to look at; here they go with the test."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def temporary_folder(sockets_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Removed after the test, and with a path that is short enough for sockets.
    sockets_folder.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(sockets_folder))
    monkeypatch.setattr(tempfile, "tempdir", str(sockets_folder))
    return sockets_folder
