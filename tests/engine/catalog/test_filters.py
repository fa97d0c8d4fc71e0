"""Which tools are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.catalog.filters import is_shown

names = st.text(alphabet="abc_*?[]!-. \n", max_size=8)


@pytest.mark.requirement("tools.filters")
@pytest.mark.parametrize(
    ("filters", "shown", "hidden"),
    [
        (None, ["anything", "", "!"], []),
        (("*",), ["anything", "a b"], []),
        ((), [], ["anything"]),
        (("read",), ["read"], ["Read", "reads", "read "]),
        (("read_*",), ["read_", "read_file"], ["read", "xread_"]),
        (("*_file",), ["read_file", "_file"], ["read_files"]),
        (("a*c",), ["ac", "abc", "a\nc"], ["abcd"]),
        (("*", "!delete"), ["read"], ["delete"]),
        (("!delete",), ["read"], ["delete"]),
        (("!delete", "!drop_*"), ["read"], ["delete", "drop_all"]),
        (("read", "!read"), [], ["read", "other"]),
        (("!read", "read"), ["read"], ["other"]),
        (("read_*", "!read_secret*", "read_secret_ok"), ["read_a", "read_secret_ok"], ["read_secret"]),
        (("a?c", "[ab]"), ["a?c", "[ab]"], ["abc", "a", "b"]),
        (("a?*", "[*"), ["a?x", "[x"], ["abx", "x"]),
    ],
)
def test_the_last_filter_that_matches_decides(
    filters: tuple[str, ...] | None, shown: list[str], hidden: list[str]
) -> None:
    assert [name for name in shown + hidden if is_shown(name, filters)] == shown


@given(names, st.lists(names, max_size=5))
def test_final_exclusion_always_hides_its_tools(name: str, filters: list[str]) -> None:
    if not name.startswith("!"):
        assert not is_shown(name, (*filters, f"!{name}")) or "*" in name


@given(names.filter(lambda name: "*" not in name and not name.startswith("!")), names)
def test_a_name_without_a_star_matches_itself_and_nothing_else(pattern: str, name: str) -> None:
    assert is_shown(name, (pattern,)) == (name == pattern)


@given(names, names)
def test_any_filter_can_be_asked(name: str, pattern: str) -> None:
    assert is_shown(name, (pattern,)) in (True, False)
