"""The audit's file, whatever system call its writer dies at or is refused: nothing that was written is lost, and
`verify` tells the truth."""

from __future__ import annotations

import contextlib
import json
from itertools import count
from pathlib import Path

import pytest

from mcp_workbench.team.audit.audit_chain import verify
from mcp_workbench.team.audit.audit_file import AuditFile, rotated_files
from tests.support.failing_calls import MODES, Died, Mode, failing_at, no_descriptor_left
from tests.team.audit.test_audit_file import line_of, notice

# Small enough that a file is put aside in between.
LARGEST = 400


def numbers(path: Path) -> list[int]:
    found = []
    for each in (*rotated_files(str(path)), str(path)):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(each).read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line).get("n", 0))
    return [number for number in found if number]


def script(path: Path, written: list[int]) -> None:
    """Two writers in turn, as after a reload."""
    number = count(1)
    for _ in range(2):
        file = AuditFile(str(path), LARGEST, 9, notice)
        try:
            file.open()
            for _ in range(3):
                now = next(number)
                if file.append([line_of(now, 60)]):
                    written.append(now)
        finally:
            file.close()


@pytest.mark.requirement("audit.disk")
@pytest.mark.parametrize("mode", MODES)
def test_no_written_line_is_lost_and_every_finding_is_correct(tmp_path: Path, mode: Mode) -> None:
    for at in count(1):
        path = tmp_path / str(at) / "audit.jsonl"
        path.parent.mkdir()
        written: list[int] = []
        with no_descriptor_left(mode), failing_at(at, mode) as calls, contextlib.suppress(Died, OSError):
            script(path, written)
        file = AuditFile(str(path), LARGEST, 9, notice)
        file.open()
        file.append([line_of(100)])
        file.close()
        found = numbers(path)
        assert found == sorted(set(found)) and set(written) <= set(found), (at, written, found)
        assert len(set(found) - set(written) - {100}) <= 1, "at most the one that was being written"
        findings = verify(str(path)).findings
        if mode == "dies halfway":
            findings = [each for each in findings if "was not written by the workbench" not in each]
        assert findings == [], at
        if not calls.was_reached:
            assert at > 30
            return
