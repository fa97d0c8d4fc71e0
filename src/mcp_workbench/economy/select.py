"""Taking parts out of a JSON value: a JSON Pointer (`/items/0/id`) or an expression (`items[?open].title`).

Owns evaluation, bounded by a number of steps. Refuses to know where the value came from and how the grammar is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import msgspec

from mcp_workbench.economy.expression import BadExpression, Node, parse
from mcp_workbench.economy.prose import clip
from mcp_workbench.nearest import nearest

__all__ = ["BadExpression", "select"]

_MOST_STEPS = 500_000
# Parts of values that functions and comparisons may go through, all together, and how much text is one of them.
_MOST_WORK = 2_000_000
_MOST_PARTS = 2_000_000
_CHARACTERS = 16
# Bringing something into an order takes several times as long as going through it, and nothing else can run meanwhile.
_ORDERING = 8
_TOO_MUCH = "the selection is too much work; select a smaller part first"
# For what is said of a pointer that leads nowhere.
_LONGEST_KEY = 60
_LONGEST_WAY = 200
_MOST_KEYS = 8


def select(value: object, expression: str) -> object:
    """The part of `value` that `expression` names. Raises `BadExpression`.

    A pointer names one place, so one that leads nowhere is refused; an expression asks, and may find nothing: None."""
    if expression.startswith("/") or expression == "":
        return _pointed(value, expression)
    selected = _Evaluation().of(parse(expression), value)
    _refuse_the_boundless(selected)
    return selected


def _pointed(value: object, pointer: str) -> object:
    way = ""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and key.isascii() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            raise BadExpression(f"there is no `{clip(key, _LONGEST_KEY)}` in `{way or '/'}`, {_told(value, key)}")
        way = clip(f"{way}/{step}", _LONGEST_WAY)
    return value


def _told(value: object, key: str) -> str:
    """What is there instead."""
    if isinstance(value, list):
        return f"an array of {len(value):,}, counted from 0"
    if not isinstance(value, dict):
        return f"which is of type {_TYPES.get(type(value), 'unknown')}"
    keys = nearest(key, value) or list(value)[:_MOST_KEYS]
    return "an object with " + ", ".join(f"`{clip(each, _LONGEST_KEY)}`" for each in keys) if keys else "which is empty"


def _refuse_the_boundless(value: object) -> None:
    """An expression can repeat a part within itself over and over, cheap until somebody writes it out."""
    if _parts(value, _MOST_PARTS) > _MOST_PARTS:
        raise BadExpression("the selection is too large; select a smaller part first")


def _parts(value: object, most: int) -> int:
    """How many parts a value has, text counted by its length. Stops counting beyond `most`."""
    waiting, seen = [value], 0
    while waiting and seen <= most:
        each = waiting.pop()
        if isinstance(each, str):
            seen += 1 + len(each) // _CHARACTERS
            continue
        children = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        seen += 1 + len(children)
        waiting.extend(children)
    return seen


class _Evaluation:
    def __init__(self) -> None:
        self._steps = _MOST_STEPS
        self._work = _MOST_WORK

    def _spend(self, *values: Any) -> None:
        """Going through a value takes as long as it is large, however few steps lead there."""
        for value in values:
            self._charge(_parts(value, self._work))

    def _charge(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise BadExpression(_TOO_MUCH)

    def of(self, node: Node, value: Any) -> Any:
        self._steps -= 1
        if self._steps < 0:
            raise BadExpression(_TOO_MUCH)
        return _OPERATIONS[node.kind](self, node, value)

    def _through(self, values: list[Any], right: Node) -> list[Any]:
        """The projection: `right` of each value, without those that have none."""
        found = [self.of(right, each) for each in values]
        return [each for each in found if each is not None]

    def _each(self, node: Node, value: Any) -> Any:
        found = self.of(node.parts[0], value)
        return self._through(found, node.parts[1]) if isinstance(found, list) else None

    def _values(self, node: Node, value: Any) -> Any:
        found = self.of(node.parts[0], value)
        return self._through(list(found.values()), node.parts[1]) if isinstance(found, dict) else None

    def _flatten(self, node: Node, value: Any) -> Any:
        found = self.of(node.parts[0], value)
        if not isinstance(found, list):
            return None
        flat: list[Any] = []
        self._charge(sum(len(each) for each in found if isinstance(each, list)))
        for each in found:
            flat.extend(each if isinstance(each, list) else [each])
        return self._through(flat, node.parts[1])

    def _filter(self, node: Node, value: Any) -> Any:
        left, condition, right = node.parts
        found = self.of(left, value)
        if not isinstance(found, list):
            return None
        return self._through([each for each in found if _is_true(self.of(condition, each))], right)

    def cut(self, found: Any, bounds: tuple[int | None, ...]) -> Any:
        if not isinstance(found, list):
            return None
        if len(bounds) == 3 and bounds[2] == 0:
            raise BadExpression("a slice cannot have a step of 0")
        cut = found[slice(*bounds)]
        self._charge(len(cut))
        return cut

    def _compare(self, node: Node, value: Any) -> Any:
        left, right = self.of(node.parts[0], value), self.of(node.parts[1], value)
        self._spend(left, right)
        if node.value in ("==", "!="):
            return (left == right and isinstance(left, bool) == isinstance(right, bool)) == (node.value == "==")
        if not (_is_orderable(left) and _is_orderable(right)) or isinstance(left, str) != isinstance(right, str):
            return None
        return _ORDERS[node.value](left, right)

    def _either(self, node: Node, value: Any) -> Any:
        left = self.of(node.parts[0], value)
        return left if _is_true(left) else self.of(node.parts[1], value)

    def _both(self, node: Node, value: Any) -> Any:
        left = self.of(node.parts[0], value)
        return self.of(node.parts[1], value) if _is_true(left) else left

    def _call(self, node: Node, value: Any) -> Any:
        if node.value in _BY_REFERENCE:
            return self._by_reference(node, value)
        function = _FUNCTIONS.get(node.value)
        if function is None:
            known = ", ".join(sorted((*_FUNCTIONS, *_BY_REFERENCE)))
            raise BadExpression(f"there is no function `{node.value}`; there are {known}")
        arguments = [self.of(part, value) for part in node.parts]
        if node.value not in _SHALLOW:
            self._spend(*arguments)
        match node.value, arguments:
            case "join", [str(glue), list(parts)]:
                # What stands between the parts is repeated: the outcome can be far larger than what it is made of.
                self._charge(len(glue) * len(parts) // _CHARACTERS)
            case "sort", [list(found)]:
                self._charge(len(found) * _ORDERING)
        try:
            return function(*arguments)
        except (TypeError, ValueError, AttributeError, KeyError):
            raise BadExpression(f"`{node.value}` cannot be applied to these values") from None

    def _by_reference(self, node: Node, value: Any) -> Any:
        if len(node.parts) != 2:
            raise BadExpression(f"`{node.value}` takes a list and a `&expression`")
        listed, referring = sorted(node.parts, key=lambda part: part.kind == "reference")
        found = self.of(listed, value)
        if referring.kind != "reference" or not isinstance(found, list):
            raise BadExpression(f"`{node.value}` takes a list and a `&expression`")
        keyed = [(self.of(referring.parts[0], each), each) for each in found]
        if node.value == "map":
            return [key for key, _ in keyed]
        keyed = [(key, each) for key, each in keyed if _is_orderable(key)]
        self._charge(len(keyed) * _ORDERING)
        try:
            keyed.sort(key=operator.itemgetter(0))
        except TypeError:
            raise BadExpression(f"`{node.value}` needs keys of one kind") from None
        ordered = [each for _, each in keyed]
        if node.value == "sort_by":
            return ordered
        return (ordered[0] if node.value == "min_by" else ordered[-1]) if ordered else None


def _is_true(value: Any) -> bool:
    return value not in (None, False, "", [], {}) or (value == 0 and not isinstance(value, bool))


def _is_orderable(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _field(node: Node, value: Any) -> Any:
    return value.get(node.value) if isinstance(value, dict) else None


def _at(found: Any, index: int) -> Any:
    return found[index] if isinstance(found, list) and -len(found) <= index < len(found) else None


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATIONS: dict[str, Callable[[_Evaluation, Node, Any], Any]] = {
    "current": lambda _, node, value: value,
    "literal": lambda _, node, value: node.value,
    "field": lambda _, node, value: _field(node, value),
    "then": lambda run, node, value: _then(run, node, value),
    "pipe": lambda run, node, value: run.of(node.parts[1], run.of(node.parts[0], value)),
    "index": lambda run, node, value: _at(run.of(node.parts[0], value), node.value),
    "slice": lambda run, node, value: run.cut(run.of(node.parts[0], value), node.value),
    "each": _Evaluation._each,
    "values": _Evaluation._values,
    "flatten": _Evaluation._flatten,
    "filter": _Evaluation._filter,
    "compare": _Evaluation._compare,
    "or": _Evaluation._either,
    "and": _Evaluation._both,
    "not": lambda run, node, value: not _is_true(run.of(node.parts[0], value)),
    "list": lambda run, node, value: None if value is None else [run.of(part, value) for part in node.parts],
    "hash": lambda run, node, value: (
        None if value is None else {key: run.of(part, value) for key, part in zip(node.value, node.parts, strict=True)}
    ),
    "call": _Evaluation._call,
    "reference": lambda run, node, value: None,
}


def _then(run: _Evaluation, node: Node, value: Any) -> Any:
    left = run.of(node.parts[0], value)
    return None if left is None else run.of(node.parts[1], left)


# Take no longer for a large value, or are over in no time.
_SHALLOW = frozenset(("length", "type", "not_null"))
_BY_REFERENCE = frozenset(("sort_by", "min_by", "max_by", "map"))
_TYPES = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "length": len,
    "keys": lambda found: list(dict.keys(found)),
    "values": lambda found: list(dict.values(found)),
    "type": lambda found: _TYPES[type(found)],
    "contains": lambda found, part: part in found,
    "starts_with": lambda text, part: str.startswith(text, part),
    "ends_with": lambda text, part: str.endswith(text, part),
    "sort": lambda found: sorted(found),
    "reverse": lambda found: found[::-1],
    "sum": lambda found: sum(found),
    "avg": lambda found: sum(found) / len(found) if found else None,
    "min": lambda found: min(found, default=None),
    "max": lambda found: max(found, default=None),
    "join": lambda glue, found: str.join(glue, found),
    "to_string": lambda found: found if isinstance(found, str) else msgspec.json.encode(found).decode(),
    "to_number": lambda found: float(found) if "." in str(found) else int(found),
    "not_null": lambda *found: next((each for each in found if each is not None), None),
}
