"""Addresses of servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http.client.address import Address, BadAddress


@pytest.mark.parametrize(
    ("text", "origin", "target"),
    [
        ("https://example.com/mcp", "https://example.com", "/mcp"),
        ("https://example.com", "https://example.com", "/"),
        ("HTTP://Example.COM:8080/a?b=c&d=e#f", "http://example.com:8080", "/a?b=c&d=e"),
        ("https://example.com:443/", "https://example.com", "/"),
        ("http://[::1]:8420/mcp", "http://[::1]:8420", "/mcp"),
        ("https://bücher.example/ü?ü", "https://xn--bcher-kva.example", "/%C3%BC?%C3%BC"),
        ("https://example.com/a b/%20/{x}", "https://example.com", "/a%20b/%20/%7Bx%7D"),
        ("https://example.com?x=1", "https://example.com", "/?x=1"),
        ("  https://example.com/ ", "https://example.com", "/"),
    ],
)
def test_addresses_are_read(text: str, origin: str, target: str) -> None:
    address = Address.parse(text)
    assert (address.origin, address.target) == (origin, target)


@pytest.mark.parametrize(
    "text",
    [
        *("", "example.com", "ftp://x", "http://", "http:///mcp", "http://[::1/", "http://x:99999/", "http://x:y/"),
        *("file:///x", "http://a b/", "http://a\nb/", "http://%00/", "http://" + "ü" * 80 + "/"),
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        Address.parse(text)


def test_a_password_is_kept_apart_and_never_shown() -> None:
    address = Address.parse("https://ann:s%40cret@example.com/mcp?key=secret")
    assert address.user_info == "ann:s@cret"
    assert address.shown == "https://example.com/mcp"
    assert "cret" not in address.origin + address.authority


@pytest.mark.parametrize(
    ("reference", "origin", "target"),
    [
        ("/other", "https://example.com:8443", "/other"),
        ("next", "https://example.com:8443", "/a/next"),
        ("?x", "https://example.com:8443", "/a/b?x"),
        ("//evil.example/x", "https://evil.example", "/x"),
        ("http://example.com:8443/x", "http://example.com:8443", "/x"),
        ("https://example.com:8443@evil.example/x", "https://evil.example", "/x"),
    ],
)
def test_references_lead_where_they_say(reference: str, origin: str, target: str) -> None:
    here = Address.parse("https://me:pw@example.com:8443/a/b")
    there = here.join(reference)
    assert (there.origin, there.target) == (origin, target)
    if there.origin == here.origin:
        assert there.user_info == "me:pw"
    else:
        assert there.user_info != "me:pw"


@given(st.text())
def test_no_text_makes_it_fail_in_another_way(text: str) -> None:
    for prefix in ("", "http://", "https://x/", "http://x?"):
        try:
            address = Address.parse(prefix + text)
        except BadAddress:
            continue
        line = address.authority + address.target
        assert line.isascii() and not any(character <= " " for character in line)
