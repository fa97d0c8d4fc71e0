"""Edits in place: the member is there or gone, and every other character stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.jsonc_edit import parsed, remove_member, set_member

NAMES = st.text(alphabet='ab"\\ \n/*,{}é', min_size=1, max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    NAMES,
    st.dictionaries(NAMES, VALUES, max_size=2),
    st.sampled_from([None, 1, 2, 4, "\t"]),
)
def test_edited_member_is_set_and_the_rest_keeps_its_bytes(
    root: dict[str, object], name: str, value: dict[str, object], indent: int | str | None
) -> None:
    text = json.dumps(root, indent=indent, ensure_ascii=False)
    after = set_member(text, (name, "x"), value)
    inner = root.get(name)
    assert parsed(after, "t") == {**root, name: {**inner, "x": value} if isinstance(inner, dict) else {"x": value}}
    if name not in root:
        gone = remove_member(after, (name,))
        assert parsed(gone, "t") == root
        if root:
            assert gone == text


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), st.sampled_from([None, 2, "\t"]), st.data())
def test_any_member_can_be_removed(root: dict[str, object], indent: int | str | None, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(root)))
    after = remove_member(json.dumps(root, indent=indent), (name,))
    assert parsed(after, "t") == {key: value for key, value in root.items() if key != name}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{\n  "a": 1, // one\n}', '{\n  "a": 1, // one\n  "b": 2,\n}'),
        ('{\n  "a": 1 // one\n}', '{\n  "a": 1, // one\n  "b": 2\n}'),
        ("{\n  // none\n}", '{\n  // none\n  "b": 2\n}'),
        ('// top\n{"a": "}" /* , */}', '// top\n{"a": "}", "b": 2 /* , */}'),
        ('{"b": 1, "b": 3}', '{"b": 1, "b": 2}'),
        ('\ufeff{\r\n\t"a": {}\r\n}', '\ufeff{\r\n\t"a": {},\r\n\t"b": 2\r\n}'),
    ],
)
def test_comments_and_layout_stay(before: str, after: str) -> None:
    assert set_member(before, ("b",), 2) == after


def test_removing_a_missing_member_changes_nothing() -> None:
    for text in ("", "{}", '{"a": 1}', '{"a": {"b": 1}}'):
        assert remove_member(text, ("a", "c")) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a": 1, // mine\n  "w": 2 }', '{"a": 1 // mine\n  }'),
        ('{// mine\n  "w": 2 }', "{// mine\n  }"),
        ('{"a": 1, // mine\r\n  "w": 2 }', '{"a": 1 // mine\r\n  }'),
        ('{"a": 1, /* mine */\n  "w": 2 }', '{"a": 1 /* mine */}'),
    ],
)
def test_comment_before_a_removed_member_stays_closed(before: str, after: str) -> None:
    assert remove_member(before, ("w",)) == after
    assert "w" not in str(parsed(after, "x"))
