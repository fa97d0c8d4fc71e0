"""The audit on the page: rotated files, several audits, and what cannot be verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp_workbench.app.page_audit import read_audits
from mcp_workbench.team.audit.audit_file import AuditFile, ChainedLine, rotated_files

ALL = 1 << 30


class TimedLine(ChainedLine):
    time: str = ""
    principal: str = "ada"


def write(path: Path, *times: str, largest: int = ALL) -> None:
    file = AuditFile(str(path), largest, 9, lambda text: TimedLine(0, principal=text))
    file.open()
    for each in times:
        file.append([TimedLine(0, time=each)])
    file.close()


def read(*paths: Path, query: str = "", limit: int = 100, principal: str | None = None, most: int = ALL) -> Any:
    return read_audits([str(path) for path in paths], query, None, limit, principal, most)


def times(found: Any) -> list[str]:
    return [line["time"] for line in found["lines"]]


def test_lines_of_rotated_files_are_read_and_verified_with_the_others(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "01", "02", "03", "04", largest=100)
    assert len(rotated_files(str(path))) >= 2
    found = read(path)
    assert times(found) == ["01", "02", "03", "04"] and found["verified"] is True and "4 lines" in found["why"]
    first = Path(rotated_files(str(path))[0])
    first.write_bytes(first.read_bytes().replace(b'"01"', b'"00"'))
    assert read(path)["verified"] is False
    assert read(path, most=200)["verified"] is None, "rotated files count for what is too long to verify"


def test_lines_of_several_audits_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    write(one, "01", "04")
    write(two, "02", "03", "05")
    found = read(one, two)
    assert times(found) == ["01", "02", "03", "04", "05"] and found["verified"] is True
    assert len({line["number"] for line in found["lines"]}) == 5, "no two lines have the same number"
    assert str(one) in found["why"] and str(two) in found["why"] and found["more"] is False
    found = read(one, two, limit=3)
    assert times(found) == ["03", "04", "05"] and found["more"] is True
    assert (
        times(read(one, two, query=chr(34) + "04" + chr(34))) == ["04"] and times(read(one, two, principal="bob")) == []
    )


def test_one_audit_that_is_broken_or_missing_is_named_beside_the_others(tmp_path: Path) -> None:
    one, two, gone = tmp_path / "one.jsonl", tmp_path / "two.jsonl", tmp_path / "gone.jsonl"
    write(one, "01", "04")
    write(two, "02", "03")
    found = read(one, gone, two)
    assert times(found) == ["01", "02", "03", "04"] and found["verified"] is None
    assert f"{gone}: it cannot be read" in found["why"]
    two.write_bytes(two.read_bytes().replace(b'"02"', b'"00"'))
    assert read(one, gone, two)["verified"] is False
