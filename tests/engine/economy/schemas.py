"""Random schemas and values of the kind that tools have, for comparing with a full implementation of JSON Schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_NAMES = st.sampled_from(["a", "b", "name", "label"])

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([0.5, 2.0, -1.5])
    | st.sampled_from(["", "a", "b", "abc", "long text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=8,
)

_LEAVES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
        | st.sampled_from([["string", "null"], ["integer", "string"]]),
        "title": st.sampled_from(["", "a", "Name", "Something else"]),
        "description": st.sampled_from(["", "what it is"]),
        "default": VALUES,
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 4),
        "maxItems": st.integers(0, 3),
        "minProperties": st.integers(0, 2),
    },
) | st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr)})


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("object") | st.just(["object", "null"]),
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "required": st.lists(_NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.dictionaries(st.just("^a"), inner, max_size=1),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "description": st.just("some words"),
        },
    ) | st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner}, optional={"prefixItems": st.lists(inner, min_size=1)}
    )


SCHEMAS: st.SearchStrategy[Any] = st.recursive(_LEAVES, _larger, max_leaves=8)
