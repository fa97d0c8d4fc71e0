"""A client's file, whatever system call its replacement dies at or is refused: the old or the new, whole."""

from __future__ import annotations

import contextlib
from itertools import count
from pathlib import Path

import pytest

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.file_replacement import ChangedAfterwards, replace_file
from tests.support.failing_calls import MODES, Died, Mode, failing_at, no_descriptor_left

OLD, NEW = b'{"old": 1}' * 200, b'{"new": 2}' * 300


@pytest.mark.parametrize("mode", MODES)
def test_the_file_is_as_it_was_or_as_it_was_to_be(tmp_path: Path, mode: Mode) -> None:
    for at in count(1):
        file = tmp_path / str(at) / "settings.json"
        file.parent.mkdir()
        file.write_bytes(OLD)
        locks = str(tmp_path / f"{at}-locks")
        outcome = "died"
        with no_descriptor_left(mode), failing_at(at, mode) as calls, contextlib.suppress(Died):
            try:
                replace_file(str(file), OLD, NEW, locks)
                outcome = "written"
            except ChangedAfterwards:
                outcome = "died"
            except ConfigError:
                outcome = "refused"
        found = file.read_bytes()
        assert found in {"written": (NEW,), "refused": (OLD,), "died": (OLD, NEW)}[outcome], (at, outcome)
        replace_file(str(file), found, b"last", locks)
        assert [each.read_bytes() for each in file.parent.iterdir()] == [b"last"], "no draft is left"
        if not calls.was_reached:
            assert outcome == "written"
            return
