"""The shape of a JSON value in a few words: `{items: 250 × {id: integer, title: string}, total: integer}`.

Owns the notation, which is that of signatures. Work is bounded by sampling long lists and objects.
"""

from __future__ import annotations

import re
from typing import Any

from mcp_workbench.engine.economy.prose import ELLIPSIS, clip

# Items of a list are nearly always similar, and there may be a hundred thousand.
_SAMPLED_ITEMS = 20
_MAX_SHAPE_KEYS = 24
_MAX_SHAPE_DEPTH = 5
_LONG_TEXT = 200
_PLAIN_KEY = re.compile(r"[\w$.@-]{1,40}")
_TYPE_NAMES = {bool: "boolean", int: "integer", float: "number", type(None): "null"}


def shape(value: object, room: int) -> str:
    """The shape in at most `room` characters: with fewer levels, then truncated, if it does not fit."""
    # The deepest shape that fits reveals most about where to look.
    for depth in range(_MAX_SHAPE_DEPTH, 0, -1):
        text = _shape([value], depth)
        if len(text) <= room:
            return text
    return clip(_shape([value], 1), room)


def _shape(values: list[Any], depth: int) -> str:
    """The common shape of all `values`, written once; different types are listed as alternatives."""
    written = dict.fromkeys(_TYPE_NAMES[type(value)] for value in values if type(value) in _TYPE_NAMES)
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        longest = max(map(len, texts))
        # The length shows whether to select it or to page through it.
        written[f"string of {longest:,}" if longest > _LONG_TEXT else "string"] = None
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        written[_lists(lists, depth)] = None
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        written[_objects(objects, depth)] = None
    return "|".join(written)


def _lists(lists: list[list[Any]], depth: int) -> str:
    lengths = sorted({len(each) for each in lists})
    count = f"{lengths[0]:,}" if len(lengths) == 1 else f"{lengths[0]:,}-{lengths[-1]:,}"
    items = [item for each in lists for item in each[:_SAMPLED_ITEMS]][:_SAMPLED_ITEMS]
    if not items:
        return "[]"
    return f"{count} × {_shape(items, depth - 1) if depth > 1 else ELLIPSIS}"


def _objects(objects: list[dict[str, Any]], depth: int) -> str:
    if depth <= 1:
        return "{" + ELLIPSIS + "}"
    # One more than is shown, to know whether there are more.
    keys = dict.fromkeys(key for each in objects for key in list(each)[: _MAX_SHAPE_KEYS + 1])
    written = []
    for key in list(keys)[:_MAX_SHAPE_KEYS]:
        label = key if _PLAIN_KEY.fullmatch(key) else f'"{clip(key, 40)}"'
        mark = "" if all(key in each for each in objects) else "?"
        written.append(f"{label}{mark}: {_shape([each[key] for each in objects if key in each], depth - 1)}")
    if len(keys) > _MAX_SHAPE_KEYS:
        written.append(f"{ELLIPSIS} {max(map(len, objects)):,} keys")
    return "{" + ", ".join(written) + "}"
