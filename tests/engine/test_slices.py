"""Large arrays in slices: the same elements, in the same order, and no step larger than it may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.slices import MAX_SLICE_TRIES, sliced

decode_raws = Decoder(list[Raw]).decode
values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(alphabet='{},[]" \\a:é', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=4), values, max_size=4)


class Steps:
    """Decodes, and writes down how much each time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, data: bytes | memoryview) -> list[Raw]:
        self.sizes.append(len(data))
        return decode_raws(data)


def whole(array: bytes, size: int) -> list[Any]:
    return [json.loads(bytes(item)) for part in sliced(Raw(array), decode_raws, size=size) for item in part]


@given(st.lists(objects, max_size=30), st.integers(1, 200), st.sampled_from([(",", ":"), (" ,\n ", " : ")]))
def test_the_elements_are_the_same(elements: list[Any], size: int, separators: tuple[str, str]) -> None:
    assert whole(json.dumps(elements, separators=separators).encode(), size) == elements


@given(st.lists(values, max_size=30), st.integers(1, 100))
def test_elements_that_are_no_objects_are_the_same_too(elements: list[Any], size: int) -> None:
    assert whole(json.dumps(elements).encode(), size) == elements


def test_many_small_elements_are_decoded_in_pieces_of_the_size_that_was_asked_for() -> None:
    steps = Steps()
    array = b"[" + b",".join([b'{"type":"text","text":""}'] * 100_000) + b"]"
    assert sum(map(len, sliced(array, steps, size=10_000))) == 100_000
    assert max(steps.sizes) <= 2 * 10_000
    assert sum(steps.sizes) <= 1.1 * len(array)


@pytest.mark.parametrize(
    "inner",
    [b'"' + b"},{" * 30_000 + b'"', b"[" + b"{},{}," * 15_000 + b"1]"],
    ids=["a text full of what looks like ends", "an array of objects in one object"],
)
def test_one_large_element_costs_no_more_than_a_few_times_its_size(inner: bytes) -> None:
    steps = Steps()
    array = b'[{"a":1},{"x":' + inner + b'},{"b":2}]'
    assert sum(map(len, sliced(array, steps, size=1_000))) == 3
    assert sum(steps.sizes) <= 2 * (MAX_SLICE_TRIES + 1) * len(array)


@pytest.mark.parametrize("broken", [b"[{},{},", b"[{} {}]", b"{}", b"", b"[{},,{}]"])
def test_a_value_that_is_not_an_array_is_an_error(broken: bytes) -> None:
    for size in (1, 100):
        with pytest.raises(DecodeError):
            list(sliced(broken, decode_raws, size=size))


def test_an_element_of_another_type_is_an_error() -> None:
    class Named(Struct):
        name: str

    array = json.dumps([{"name": "a"}] * 50 + [{"name": 1}] + [{"name": "a"}] * 50).encode()
    with pytest.raises(ValidationError):
        list(sliced(array, Decoder(list[Named]).decode, size=100))
