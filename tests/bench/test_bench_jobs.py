"""The benchmark of six jobs: its sums and targets, what is right, and once the whole of it on published servers."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bench.client import BenchError
from bench.jobs.__main__ import BEGIN, END, TITLES, Cost, main, markdown, missed, sums, table, write_section
from bench.jobs.jobs import JOBS, SQL
from bench.jobs.workshop import expected, log_lines, make


def costs(single: Cost, lists: Cost, program: Cost) -> dict[str, list[Cost]]:
    return {name: [single, lists, program] for name in TITLES}


def test_tokens_and_turns_are_summed_by_way() -> None:
    found = costs(Cost(1_000, 10), Cost(100, 2), Cost(10, 1))
    assert sums(found) == [Cost(6_000, 60), Cost(600, 12), Cost(60, 6)]
    assert table(found)[-1] == ("sum", "6,000 / 60", "600 / 12", "60 / 6")
    assert "counted by o200k_base" in markdown(table(found), "o200k_base")


@pytest.mark.parametrize(
    ("lists", "program", "said"),
    [
        (Cost(1_333, 2), Cost(300, 1), []),
        (Cost(1_334, 2), Cost(300, 1), ["lists: 8004 tokens, at most 8000"]),
        (Cost(1, 1), Cost(301, 1), ["programs: 1806 tokens, at most 1800"]),
        (Cost(1, 1), Cost(1, 2), ["programs: 12 turns, at most 8"]),
    ],
)
def test_missed_targets_are_named(lists: Cost, program: Cost, said: list[str]) -> None:
    assert missed(costs(Cost(1, 1), lists, program)) == said


def test_expected_answers_match_the_generated_data(tmp_path: Path) -> None:
    make(tmp_path)
    right = expected()
    assert right.keys() == JOBS.keys() == TITLES.keys()
    with sqlite3.connect(tmp_path / "shop.db") as database:
        rows = [f"{name},{owes}" for name, owes in database.execute(SQL)]
    database.close()
    assert right["debtors"] == "\n".join(["name,owes", *rows])
    on = [file.name for file in (tmp_path / "conf").iterdir() if "debug = true" in file.read_text()]
    assert sorted(on) == right["settings"] and len(on) == 6
    assert sum(right["log"].values()) == sum(" ERROR " in line for line in log_lines())
    assert len(right["commits"]) == 10 and len(right["people"]) > 1


def test_only_text_between_the_marks_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_section(document, "new")
    assert document.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    document.write_text("without marks")
    with pytest.raises(BenchError):
        write_section(document, "new")


@pytest.mark.processes
@pytest.mark.network
@pytest.mark.node
@pytest.mark.timeout(400)
def test_all_ways_have_the_same_answers_on_published_servers_within_the_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")
    status = main([])
    told = capsys.readouterr()
    if "offline?" in told.err or "needs Node" in told.err:
        pytest.skip(told.err)
    assert (status, told.err) == (0, "")
    assert "all answers are equal" in told.out
