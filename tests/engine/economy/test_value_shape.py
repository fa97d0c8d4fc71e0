from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.value_shape import shape


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "integer"),
        ("x" * 500, "string of 500"),
        ([], "[]"),
        ([1, "a", None], "3 × integer|null|string"),
        ({"a": True, "b c": 1.5}, '{a: boolean, "b c": number}'),
        ([{"id": 1, "n": None}, {"id": 2}], "2 × {id: integer, n?: null}"),
        ([{"t": [1]}, {"t": [1, 2, 3]}], "2 × {t: 1-3 × integer}"),
        ({str(number): 1 for number in range(100)}, None),
    ],
)
def test_a_value_in_the_notation(value: object, text: str | None) -> None:
    made = shape(value, 400)
    assert made == text if text is not None else "100 keys" in made


def test_deep_values_are_shown_as_deep_as_the_limit_allows() -> None:
    value = {"one": {"two": {"three": {"four": 1}}}}
    assert shape(value, 100) == "{one: {two: {three: {four: integer}}}}"
    assert shape(value, 25) == "{one: {two: {…}}}"


def test_long_lists_are_sampled() -> None:
    assert shape([1] * 1_000_000, 100) == "1,000,000 × integer"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=60), inner, max_size=4),
)


@given(JSON, st.integers(1, 200))
def test_a_shape_keeps_to_its_limit(value: object, room: int) -> None:
    assert len(shape(value, room)) <= room
