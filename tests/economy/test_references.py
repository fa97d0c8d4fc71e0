from __future__ import annotations

import pytest

from mcp_workbench.economy.references import point, resolve

ROOT = {
    "$defs": {
        "a/b": {"type": "string"},
        "c d": {"$ref": "#/$defs/a~1b"},
        "loop": {"$ref": "#/$defs/pool"},
        "pool": {"$ref": "#/$defs/loop"},
    },
    "allOf": [{"type": "object"}],
}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", {"type": "string"}),
        ("#/$defs/c%20d", {"type": "string"}),
        ("#/allOf/0", {"type": "object"}),
    ],
)
def test_a_local_reference_ends_at_a_schema(reference: str, target: object) -> None:
    assert resolve(ROOT, reference) == target


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/loop", "#/nowhere", "#/allOf/1", "#/allOf/²", "#/allOf/-1", "#anchor", "other.json#/a", "", None, 5],
)
def test_what_cannot_be_followed_is_none(reference: object) -> None:
    assert resolve(ROOT, reference) is None


def test_a_pointer_may_end_at_anything() -> None:
    assert point({"a": [1, {"b": "text"}]}, "#/a/1/b") == "text"
