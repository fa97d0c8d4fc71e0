"""How deep JSON is nested, whatever is in its strings and however large it is."""

from __future__ import annotations

import json
import re
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine import nesting
from mcp_workbench.engine.jsonrpc import large_messages
from mcp_workbench.engine.nesting import MAX_NESTING, is_nested_deeper

texts = st.text(st.sampled_from('a"\\[]{}\n'), max_size=12)
values: Any = st.recursive(
    st.none() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=40,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(values, st.integers(1, 40), st.sampled_from([None, 1]))
def test_depth_is_that_of_the_value(value: Any, around: int, indent: int | None) -> None:
    for wrap in (lambda inner: [texts_beside, inner], lambda inner: {"]": inner, "x": "[\\"}):
        written = value
        for _ in range(around):
            written = wrap(written)
        found = depth(written)
        text = json.dumps(written, indent=indent).encode()
        assert [is_nested_deeper(text, levels) for levels in (found - 1, found, found + 1)] == [found > 0, False, False]


texts_beside = '"]]'


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'["]",', b'{"\\"]":"[","b":'])
@pytest.mark.parametrize("siblings", [0, 3])
def test_limit_is_exact(opening: bytes, siblings: int) -> None:
    closing = b"}" if opening.startswith(b"{") else b"]"
    for levels in (MAX_NESTING, MAX_NESTING + 1):
        nested = opening * levels + b"1" + closing * levels
        text = b"[%b]" % b",".join([nested] * (siblings + 1)) if siblings else nested
        assert is_nested_deeper(text) is (levels + bool(siblings) > MAX_NESTING)


def test_short_texts_and_those_with_few_brackets_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: bytes, table: bytes | None = None) -> bytes:
        raise AssertionError(text[:20])

    monkeypatch.setattr(nesting, "brackets_outside_strings", refuse)
    assert not is_nested_deeper(b"[" * MAX_NESTING + b"]" * MAX_NESTING)
    assert not is_nested_deeper(b'["%b"]' % (b"text " * 100_000))
    with pytest.raises(AssertionError):
        is_nested_deeper(b"[" * (MAX_NESTING + 1) + b"]" * (MAX_NESTING + 1))


class CountedRuns:
    """Counts what is followed step by step, in Python."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.count = 0

    def findall(self, text: bytes) -> list[bytes]:
        found = self._pattern.findall(text)
        self.count += len(found)
        return found


@pytest.mark.parametrize(("module", "name"), [(nesting, "_SQUARE_BRACKETS"), (large_messages, "_BRACKETS")])
@pytest.mark.parametrize(
    "unit",
    [
        b"[" * 500 + b"]" * 500,
        b"{" * 100 + b"[" * 100 + b"]" * 100 + b"}" * 100,
        b"[]",
        b"[[][[][]]]",
        b"[" * 20 + b"]" * 19 + b"[" * 19 + b"]" * 20,
    ],
)
def test_brackets_are_followed_many_at_a_time(
    module: ModuleType, name: str, unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are nested: one by one, a message of megabytes would take seconds."""
    runs = CountedRuns(getattr(module, name))
    monkeypatch.setattr(module, name, runs)
    text = b"[%b]" % (unit * (100_000 // len(unit)))
    if module is nesting:
        is_nested_deeper(text)
    else:
        large_messages._follow(bytearray(), text)
    assert runs.count <= len(text) // 8
