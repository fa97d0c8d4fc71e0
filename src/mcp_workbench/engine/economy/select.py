"""Selects parts of a JSON value, with a JSON Pointer (`/items/0/id`) or JMESPath (`items[?open].title`).

Owns JSON Pointer and the limits on evaluation; JMESPath is the library's. Knows nothing about where the value comes
from. The number of steps and the size of the values they visit are limited, because expressions may be hostile, and the
thread that evaluates them serves all clients.
"""

from __future__ import annotations

from typing import Any

from jmespath.exceptions import JMESPathError, ParseError
from jmespath.functions import Functions
from jmespath.parser import Parser
from jmespath.visitor import TreeInterpreter

from mcp_workbench.engine.economy.prose import clip
from mcp_workbench.engine.nearest import nearest

# Agents write short expressions; a longer one is a mistake or an attack.
_LONGEST = 1_000
_MAX_SELECT_STEPS = 500_000
# How many parts of values all functions and comparisons may visit together, and how many characters count as one part.
_MAX_WORK = 2_000_000
_MAX_PARTS = 2_000_000
_CHARACTERS = 16
# Sorting takes several times as long as visiting, and nothing else can run meanwhile.
_ORDERING = 8
# Functions that take constant time, or next to none.
_SHALLOW = frozenset(("length", "type", "not_null"))
_BY_EXPRESSION = frozenset(("map", "sort_by", "min_by", "max_by"))
# What the library and Python raise for unsuitable values, including `1e999` and values nested too deeply.
_NOT_FOR_THESE = (JMESPathError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
# In the error for a pointer that leads nowhere.
_MAX_KEY_LENGTH = 60
_MAX_POINTER_LENGTH = 200
_MAX_SHOWN_KEYS = 8
_VALUE_TYPES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


class BadExpression(ValueError):
    """An expression cannot be parsed or evaluated; the message says where and why."""


def select(value: object, expression: str) -> object:
    """The part of `value` that `expression` names. Raises `BadExpression`.

    A pointer names one place, so it is an error if it leads nowhere; a JMESPath expression may find nothing: None."""
    if expression.startswith("/") or expression == "":
        return _pointed(value, expression)
    try:
        selected = _Bounded().visit(_parsed(expression), value)
    except RecursionError:
        raise BadExpression("the expression has too many levels") from None
    if _parts(selected, _MAX_PARTS) > _MAX_PARTS:
        # An expression can nest references to the same part, which is cheap until the result is serialised.
        raise BadExpression("the selection is too large; select a smaller part first")
    return selected


def check_expression(expression: str) -> None:
    """Raises `BadExpression` for what cannot be read, whatever the value is."""
    if expression and not expression.startswith("/"):
        _parsed(expression)


def _pointed(value: object, pointer: str) -> object:
    way = ""
    for step in pointer.split("/")[1:]:
        # In this order, so that `~01` becomes `~1` and not `/` (RFC 6901, section 4).
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        # No array has an index of more than nine digits, and `int` refuses thousands of digits.
        elif isinstance(value, list) and key.isdecimal() and key.isascii() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            raise BadExpression(f"there is no `{clip(key, _MAX_KEY_LENGTH)}` in `{way or '/'}`, {_told(value, key)}")
        way = clip(f"{way}/{step}", _MAX_POINTER_LENGTH)
    return value


def _told(value: object, key: str) -> str:
    """What is there instead."""
    if isinstance(value, list):
        return f"an array of {len(value):,}, counted from 0"
    if not isinstance(value, dict):
        return f"which is {_type_of(value)}"
    keys = nearest(key, value) or list(value)[:_MAX_SHOWN_KEYS]
    return (
        "an object with " + ", ".join(f"`{clip(each, _MAX_KEY_LENGTH)}`" for each in keys) if keys else "which is empty"
    )


def _type_of(value: object) -> str:
    # The rest are expressions, `&…`.
    return _VALUE_TYPES.get(type(value), "an expression")


def _parsed(expression: str) -> Any:
    if len(expression) > _LONGEST:
        raise BadExpression(f"the expression is longer than {_LONGEST} characters")
    try:
        return Parser().parse(expression).parsed
    except ParseError as error:
        # The library's own message has several lines and a drawing.
        position, found = getattr(error, "lex_position", 0), getattr(error, "token_value", None)
        if not found:
            raise BadExpression(f"something is missing at character {position + 1} of `{expression[:80]}`") from None
        raise BadExpression(f"cannot read `{found}` at character {position + 1} of `{expression[:80]}`") from None
    except _NOT_FOR_THESE as error:
        raise BadExpression(f"cannot read `{expression[:80]}`: {error}") from None


def _parts(value: object, most: int) -> int:
    """The number of parts in a value, counting text by its length. Stops beyond `most`."""
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


def _literal(value: object) -> dict[str, Any]:
    """A known value as a node of an expression."""
    return {"type": "literal", "value": value, "children": []}


class _Bounded(TreeInterpreter):  # type: ignore[misc]  # The library has no annotations.
    """The library's interpreter, charged for each operation before it is performed."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = _MAX_SELECT_STEPS
        self._work = _MAX_WORK

    def _spend(self, *values: Any) -> None:
        """Charge for visiting values: that takes as long as they are large, however few steps lead there."""
        for value in values:
            self._charge(_parts(value, self._work))

    def _charge(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise BadExpression("the selection is too much work; select a smaller part first")

    def visit(self, node: Any, *arguments: Any, **named: Any) -> Any:
        self._steps -= 1
        if self._steps < 0:
            self._charge(self._work + 1)
        return super().visit(node, *arguments, **named)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        both = [self.visit(child, value) for child in node["children"]]
        self._spend(*both)
        try:
            return super().visit_comparator({**node, "children": [_literal(each) for each in both]}, value)
        except TypeError:
            return None  # Text and numbers cannot be compared.

    def visit_flatten(self, node: Any, value: Any) -> Any:
        found = self.visit(node["children"][0], value)
        if isinstance(found, list):
            self._charge(sum(len(each) for each in found if isinstance(each, list)))
        return super().visit_flatten({**node, "children": [_literal(found)]}, value)

    def visit_slice(self, node: Any, value: Any) -> Any:
        if node["children"][2] == 0:
            raise BadExpression("a slice cannot have a step of 0")
        cut = super().visit_slice(node, value)
        self._charge(len(cut or ()))
        return cut

    def visit_expref(self, node: Any, value: Any) -> Any:
        raise BadExpression(f"`&` is allowed only before an argument of {', '.join(sorted(_BY_EXPRESSION))}")

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        name = node["value"]
        if name not in Functions.FUNCTION_TABLE:
            known = ", ".join(sorted(Functions.FUNCTION_TABLE))
            raise BadExpression(f"there is no function `{name}`; available: {known}")
        arguments = [
            super(_Bounded, self).visit_expref(child, value)
            if child["type"] == "expref" and name in _BY_EXPRESSION
            else self.visit(child, value)
            for child in node["children"]
        ]
        if name not in _SHALLOW | _BY_EXPRESSION:
            self._spend(*arguments)
        match name, arguments:
            case "join", [str(glue), list(parts)]:
                # The separator is repeated, so the result can be far larger than its parts.
                self._charge(len(glue) * len(parts) // _CHARACTERS)
            case (("sort" | "sort_by"), [list(found), *_]):
                self._charge(len(found) * _ORDERING)
        try:
            return self._functions.call_function(name, arguments)
        except BadExpression:
            raise
        except _NOT_FOR_THESE:
            types = " and ".join(map(_type_of, arguments)) or "nothing"
            raise BadExpression(f"`{name}` cannot be applied to {types}") from None
