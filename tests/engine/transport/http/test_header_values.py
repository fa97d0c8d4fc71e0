"""Values in headers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http import header_values


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("", ""),
        ("us west 1", "us west 1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?literal", "=?base64?literal"),
        ("\ttab", "=?base64?CXRhYg==?="),
    ],
)
def test_values_are_written_as_the_specification_shows(value: str, header: str) -> None:
    assert header_values.encode(value) == header
    assert header_values.decode(header) == value


@given(st.text())
def test_every_value_is_safe_and_comes_back(value: str) -> None:
    header = header_values.encode(value)
    assert re.fullmatch(r"[\x20-\x7e]*", header) and header == header.strip()
    assert header_values.decode(header) == value


@pytest.mark.parametrize(
    "header",
    ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?=", "=?base64?SGVsbG9=?=", "=?base64?SGV\nsbG8=?="],
)
def test_a_broken_encoding_matches_nothing(header: str) -> None:
    assert header_values.decode(header) is None


@pytest.mark.parametrize("header", ["=?BASE64?SGVsbG8=?=", "SGVsbG8=", "=?base64?SGVsbG8=", "=?base64?="])
def test_header_without_a_mark_is_taken_verbatim(header: str) -> None:
    assert header_values.decode(header) == header


def test_a_lone_surrogate_does_no_harm() -> None:
    assert header_values.encode("\ud800").isascii()
