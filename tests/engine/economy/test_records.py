"""Text that is a table, and text that only looks like one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.records import records


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_becomes_records_by_its_header(delimiter: str) -> None:
    text = "\n".join(delimiter.join(row) for row in (["name", "city"], ["Anna", "Graz"], ["Berta", "Wien"])) + "\n"
    assert records(text) == [{"name": "Anna", "city": "Graz"}, {"name": "Berta", "city": "Wien"}]


def test_quoted_fields_may_have_delimiters_and_line_breaks() -> None:
    assert records('\ufeffa,b\r\n1,"x, y"\r\n2,"line\nline"\r\n') == [
        {"a": "1", "b": "x, y"},
        {"a": "2", "b": "line\nline"},
    ]


def test_names_of_columns_may_have_numbers() -> None:
    assert records("year 1,q2\n7,q2\n8,x\n") == [{"year 1": "7", "q2": "q2"}, {"year 1": "8", "q2": "x"}]


def test_json_lines_become_an_array() -> None:
    assert records('{"a": 1}\n\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one line",
        "Hello, world",
        "a,b\n1,2,3\n",
        "a,b\n1,2\n3\n",
        "a,a\n1,2\n",
        "1,2\n3,4\n",
        ",b\n1,2\n",
        '{"a": 1}',
        '{"a": 1}\nnot JSON\n',
        "First, the build starts.\nThen it fails, sadly, with an error.\n",
        "2026-11-19 08:00:01,120 INFO started\n2026-11-19 08:00:02,7 INFO ready\n",
        "x,step 9\ny,step 10\nz,step 11\n",
    ],
)
def test_records_with_different_members_are_no_table(text: str) -> None:
    assert records(text) is None


def test_a_table_with_too_many_values_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.engine.economy.records.MAX_TABLE_VALUES", 10)
    assert records("a,b\n" + "1,2\n" * 11) is None
    assert records('{"a": 1}\n' * 12) is None


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.integers()), min_size=2))
def test_every_list_of_objects_comes_back_from_its_lines(rows: list[dict[str, int]]) -> None:
    assert records("\n".join(map(json.dumps, rows))) == rows


@given(st.text())
def test_no_text_raises(text: str) -> None:
    records(text)
