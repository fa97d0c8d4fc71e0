"""`${VAR}` and `${VAR:-default}`: what is replaced, what is told, and that nothing is replaced twice."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.expand import MAX_LENGTH, expand

ENVIRON = {"NAME": "value", "EMPTY": "", "LOOP": "${LOOP}", "OTHER": "${NAME}", "_x1": "under"}


@pytest.mark.requirement("config.variables")
@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain $NAME $$ {NAME} $", "plain $NAME $$ {NAME} $"),
        ("a${NAME}b${NAME}", "avaluebvalue"),
        ("${_x1}", "under"),
        ("${EMPTY}", ""),
        ("${env:NAME}", "value"),
        ("${env:MISSING:-x}", "x"),
        ("${MISSING:-default}", "default"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-default}", "default"),
        ("${NAME:-default}", "value"),
        ("${MISSING:-${NAME}}!", "value!"),
        ("${MISSING:-${GONE:-deep}}", "deep"),
        ("${MISSING:-a ${NAME} b ${GONE:-c}}", "a value b c"),
        ("${NAME:-${MISSING}}", "value"),
        ("${MISSING:-http://x:80/-}", "http://x:80/-"),
        ("${DOLLAR:-$}{NAME}", "${NAME}"),
        ("$${NAME}", "$value"),
    ],
)
def test_variables_are_replaced(text: str, expanded: str) -> None:
    expansion = expand(text, ENVIRON)
    assert expansion.faults == []
    assert expansion.text == expanded


def test_the_value_of_a_variable_is_not_expanded_again() -> None:
    assert expand("${LOOP} ${OTHER}", ENVIRON).text == "${LOOP} ${NAME}"


def test_values_from_variables_are_known_and_defaults_are_not_among_them() -> None:
    expansion = expand("${NAME} ${MISSING:-secret} ${MISSING:-${_x1}} ${NAME:-${OTHER}}", ENVIRON)
    assert expansion.brought_in == [("NAME", "value"), ("_x1", "under"), ("NAME", "value")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${MISSING}", "the variable `MISSING` is not set"),
        ("${GONE:-${MISSING}}", "the variable `MISSING` is not set"),
        ("${NAME", "`${` without its `}`"),
        ("${MISSING:-x", "`${` without its `}`"),
        ("${", "`${` without its `}`"),
        ("${}", "found `${}`"),
        ("${NAME:?x}", "found `${NAME:?x}`"),
        ("${1}", "found `${1}`"),
        ("${input:token}", "found `${input:token}`"),
        ("${X:-" * 20 + "}" * 20, "nested defaults"),
    ],
)
def test_variables_that_cannot_be_expanded_are_reported(text: str, words: str) -> None:
    expansion = expand(text, ENVIRON)
    assert len(expansion.faults) == 1
    assert words in expansion.faults[0].found


def test_the_hint_for_a_missing_secret_is_to_store_it() -> None:
    hints = {name: expand(f"${{{name}}}", {}).faults[0].hint for name in ("LEVEL", "API_TOKEN")}
    assert hints["LEVEL"] == "set `LEVEL` before the workbench starts, or give a default: `${LEVEL:-…}`"
    assert "`mcp-workbench secret set API_TOKEN` and write `${keyring:API_TOKEN}`" in str(hints["API_TOKEN"])


@pytest.mark.requirement("config.variables")
def test_every_missing_variable_of_a_string_is_reported_with_the_nearest_that_is_set() -> None:
    faults = expand("${NAMES} ${GONE}", ENVIRON).faults
    assert [fault.suggestions for fault in faults] == [("NAME",), ()]


def test_editor_variables_are_reported_as_such() -> None:
    for text in ("${workspaceFolder}/x", "${input:token}"):
        assert "an editor" in (expand(text, ENVIRON).faults[0].hint or "")


def test_an_expansion_beyond_all_measure_is_refused() -> None:
    expansion = expand("${BIG}" * 11, {"BIG": "x" * (MAX_LENGTH // 10)})
    assert "longer than" in expansion.faults[0].found
    assert expansion.text == ""


@given(st.text(alphabet="${}:-NAME_x \n"))
def test_any_text_is_expanded_or_told(text: str) -> None:
    expansion = expand(text, ENVIRON)
    if "${" not in text:
        assert expansion.text == text
    if not expansion.faults and "DOLLAR" not in text:
        assert len(expansion.text) <= len(text) + 10 * text.count("${")


class Written(NamedTuple):
    """A piece of a text, and what has to become of it."""

    text: str
    expanded: str = ""
    # The variables whose values are in it, and those that are not set, each in order.
    brought_in: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def joined(pieces: list[Written]) -> Written:
    return Written(
        "".join(piece.text for piece in pieces),
        "".join(piece.expanded for piece in pieces),
        tuple(name for piece in pieces for name in piece.brought_in),
        tuple(name for piece in pieces for name in piece.missing),
    )


def variable(name: str, prefix: str, default: Written | None) -> Written:
    """By the rules of a shell: an empty variable has a value without a default, and none with one."""
    value = ENVIRON.get(name)
    if default is None:
        text = f"${{{prefix}{name}}}"
        return Written(text, missing=(name,)) if value is None else Written(text, value, (name,))
    text = f"${{{prefix}{name}:-{default.text}}}"
    return Written(text, value, (name,)) if value else default._replace(text=text)


def pieces_of(default: st.SearchStrategy[Written] | None = None) -> st.SearchStrategy[Written]:
    # Without braces: at the top level they are characters, within a default one closes it.
    literals = st.text(alphabet="$:-NAME_x \n", max_size=6).map(lambda text: Written(text, text))
    variables = st.builds(
        variable,
        st.sampled_from([*ENVIRON, "MISSING", "GONE"]),
        st.sampled_from(["", "env:"]),
        st.none() if default is None else st.none() | default,
    )
    return st.lists(literals | variables, max_size=4).map(joined)


@given(pieces_of(pieces_of(pieces_of(pieces_of()))))
def test_every_text_is_expanded_as_it_was_put_together(written: Written) -> None:
    expansion = expand(written.text, ENVIRON)
    assert [fault.found for fault in expansion.faults] == [
        f"the variable `{name}` is not set" for name in written.missing
    ]
    assert expansion.brought_in == [(name, ENVIRON[name]) for name in written.brought_in]
    assert expansion.text == written.expanded
