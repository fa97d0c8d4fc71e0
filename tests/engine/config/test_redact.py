"""Secrets are recognised and replaced; ordinary words stay readable."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.config.redact import Redactor, secrets_in, secrets_in_url


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("GITHUB_TOKEN", "ghp_abc", ["ghp_abc"]),
        ("ANYTHING", "s3cr3t-value", ["s3cr3t-value"]),
        ("Authorization", "Bearer abcdef", ["Bearer abcdef", "abcdef"]),
        ("PASSWORD", "123456", ["123456"]),
        ("API_KEY", "/abc/def", ["/abc/def"]),
        ("PORT", "8080", []),
        ("VERBOSE", "true", []),
        ("LOG_LEVEL", "debug", []),
        ("HOME", "/home/somebody", []),
        ("HOME", "C:\\Users\\somebody", []),
        ("PATH", "/usr/bin:/bin", []),
        ("LANG", "en", []),
        ("X", "/not+a/path==", ["/not+a/path=="]),
    ],
)
def test_a_value_is_judged_by_itself_and_its_name(name: str, value: str, secrets: list[str]) -> None:
    assert secrets_in(name, value) == secrets


def test_each_line_of_a_key_is_secret_by_itself() -> None:
    assert {"AAAA-line", "BBBB-line"} < set(secrets_in("PEM", "AAAA-line\nBBBB-line\n"))


def test_password_and_query_of_an_address_are_secret() -> None:
    url = "https://me:hunter22@x.example/mcp?apiKey=abcdefgh&page=12345&profile=blue-cat#part"
    assert secrets_in_url(url) == ["hunter22", "abcdefgh", "blue-cat"]
    assert secrets_in_url("https://x.example/mcp") == []
    assert secrets_in_url("nonsense") == []


def test_every_secret_is_replaced_the_longest_first() -> None:
    redactor = Redactor(["abcd", "abcdefgh", "x.y"])
    assert redactor.text("abcdefgh abcd x.y xzy") == "*** *** *** xzy"


def test_a_secret_is_found_in_json_too() -> None:
    assert Redactor(['say "hi"\nagain']).text('{"text": "say \\"hi\\"\\nagain"}') == '{"text": "***"}'


def test_without_secrets_a_text_stays_as_it_is() -> None:
    text = "nothing to hide"
    assert Redactor([]).text(text) is text
    assert Redactor([""]).text(text) is text


@pytest.mark.requirement("config.secrets")
@settings(deadline=None)
@given(st.lists(st.text(alphabet="abc.*\\", min_size=4), max_size=5), st.text(alphabet="abc.*\\ "))
def test_no_secret_is_left_in_any_text(secrets: list[str], text: str) -> None:
    shown = Redactor(secrets).text(text + "".join(secrets)).replace("***", "\0")
    assert not any(secret in shown for secret in secrets)
