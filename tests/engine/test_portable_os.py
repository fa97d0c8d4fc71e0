"""What only POSIX has, and what stands for it elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own, user_id


def test_here_the_flags_are_those_of_the_system() -> None:
    assert (NONBLOCK, NOFOLLOW) == (os.O_NONBLOCK, os.O_NOFOLLOW)


def test_where_files_have_no_owner_they_are_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path.stat()
    assert is_own(found) and user_id() == os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: found.st_uid + 1)
    assert not is_own(found)
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.delattr(os, "getuid")
    assert is_own(found) and user_id() == 0
