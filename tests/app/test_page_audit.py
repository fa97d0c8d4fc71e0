"""The audit on the page: rotated files, several audits, and what cannot be verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def read(
    *paths: Path, query: str = "", before: str = "", limit: int = 100, principal: str | None = None, most: int = ALL
) -> Any:
    bounds = [int(each) for each in before.split(",") if each]
    return read_audits([str(path) for path in paths], query, bounds, limit, principal, most)


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


@pytest.mark.parametrize("of_one", [10, 5, 0], ids=["one", "both", "the other"])
def test_all_lines_are_reached_page_by_page(tmp_path: Path, of_one: int) -> None:
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    written = [f"{number:02}" for number in range(10)]
    write(paths[0], *written[:of_one:], largest=200)
    write(paths[1], *written[of_one:])
    for each in (paths, paths[:1]):
        found = read(*each, limit=3)
        assert found["verified"] is True
        pages = [found]
        while pages[-1]["more"]:
            pages.append(read(*each, limit=3, before=pages[-1]["from"]))
            assert len(pages) <= 10 and pages[-1]["verified"] is None, "it was verified with the first page"
        lines = [time for page in reversed(pages) for time in times(page)]
        assert lines == (written if len(each) == 2 else written[:of_one])
