"""Whatever a server may take for the same address is found to be the same."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.steps import Subject
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.policy.policy import decide, made_ready
from mcp_workbench.team.policy.uri_spellings import MAX_PERCENT_ENCODINGS, normalised, other_spellings

SECRET = "file:///home/ann/secret"
HIDING = made_ready((PolicyRule(resources=("*/*/file:///home/ann/*",), then="hide"), PolicyRule(then="allow")))


def _encoded(draw: st.DrawFn, text: str) -> str:
    """Some characters of it percent-encoded, in either case, once or twice over."""
    found = []
    for each in text:
        how = draw(st.integers(0, 8))
        code = f"{ord(each):02X}"
        found.append({1: f"%{code}", 2: f"%{code.lower()}", 3: f"%25{code}"}.get(how, each))
    return "".join(found)


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """The secret, as somebody might write it to get around a rule."""
    segments = []
    for name in ("home", "ann", "secret"):
        for _ in range(draw(st.integers(0, 2))):
            segments += draw(st.sampled_from((["."], ["x", ".."], [""], ["a b", "..", "."])))
        segments.append(name)
    beginning = draw(
        st.sampled_from(("file://", "FILE://", "file://localhost", "File://LOCALHOST", "file:", "\tfile://"))
    )
    path = "".join(draw(st.sampled_from("/\\")) + _encoded(draw, segment) for segment in segments)
    ending = draw(st.sampled_from(("", "/", "?", "#", "#part", "?a=b#c", "/.", "/x/..", "\n")))
    # Two slashes and a name are a host.
    assume(beginning != "file:" or segments[0] != "")
    return beginning + path + ending


@given(spellings())
def test_a_hidden_address_is_hidden_however_it_is_written(uri: str) -> None:
    subject = Subject(principal="bob", method="resources/read", toolbox="box", server="server", item=uri)
    assert decide(HIDING, Identity(principal="bob"), subject).then == "hide", uri


@given(st.text(max_size=60) | st.from_regex(r"[a-z]{1,4}:(//)?[./%25\\?#@:a-zA-Z0-9]*", fullmatch=True))
def test_every_text_has_few_other_spellings_and_one_normal_form(uri: str) -> None:
    found = list(other_spellings(uri))
    assert len(found) == len(set(found)) <= 4 * (MAX_PERCENT_ENCODINGS + 1) and uri not in found
    assert normalised(normalised(uri)) == normalised(uri)
    decoded = unquote(uri)
    assert decoded == uri or decoded in found


@pytest.mark.parametrize(
    "uri", ["note://host/path/to.txt", "https://example.com/a/b-c_d~e", "test:///one", "a+b.c://x_y/z;p=1,2"]
)
def test_an_ordinary_address_has_no_other_spelling(uri: str) -> None:
    assert list(other_spellings(uri)) == []
