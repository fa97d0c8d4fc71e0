"""Checks arguments before a call: what is wrong, where, and what was probably meant.

Owns a deliberately lenient JSON Schema check: a call that the server would have accepted must never be stopped here, so
anything unusual is either ignored (keywords such as `pattern`, `format`, `not` and `if`) or makes the whole result "not
checked" (an unknown dialect, external references, too much work). Knows nothing about tools.

Supports drafts 4 to 2020-12. `oneOf` is treated as `anyOf`, because servers rarely mean "exactly one". The work is
bounded by a number of steps and a depth, whatever the schema and the arguments are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, TypeGuard

import msgspec

from mcp_workbench.engine.economy.prose import clip
from mcp_workbench.engine.economy.signature import written_type
from mcp_workbench.engine.json_schema import MAX_SCHEMA_DEPTH, point, properties, required
from mcp_workbench.engine.nearest import nearest

_MAX_CHECK_STEPS = 20_000
_MAX_NAMED_PROBLEMS = 8
# Keywords whose whole value is scanned for each argument, and how many members of it take as long as a step.
_LISTS = ("enum", "required", "dependentRequired", "dependencies")
_AT_ONCE = 32
# How many names are compared to find the one that was meant.
_MAX_COMPARED_ARGUMENTS = 500
_MAX_SHOWN_VALUE_LENGTH = 60
_MAX_FORM_LENGTH = 200
_MAX_SHOWN_CHOICES = 12

_SCHEMA_DIALECTS = frozenset(
    f"{scheme}://json-schema.org/{draft}{end}"
    for scheme in ("http", "https")
    for draft in (
        *("draft-04/schema", "draft-06/schema", "draft-07/schema", "schema"),
        *("draft/2019-09/schema", "draft/2020-12/schema"),
    )
    for end in ("", "#")
)
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class ArgumentProblem(NamedTuple):
    """`where` is a path like `$.labels[0]`; `nearest` are the names that may have been meant."""

    where: str
    what: str
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        meant = f" Did you mean {' or '.join(f'`{name}`' for name in self.nearest)}?" if self.nearest else ""
        return f"{self.where}: {self.what}.{meant}"


class _Found(NamedTuple):
    """A problem before the names that may have been meant are looked up: that is slow, and most are never reported."""

    where: str
    what: str
    name: str = ""
    among: Iterable[str] = ()
    # Whether `name` is what was expected and `among` what was sent, or the other way round.
    is_missing: bool = False

    def explained(self) -> ArgumentProblem:
        near = nearest(self.name, islice(self.among, _MAX_COMPARED_ARGUMENTS)) if self.name else []
        if self.is_missing:
            return ArgumentProblem(self.where, self.what + (f" (`{near[0]}` was sent)" if near else ""))
        return ArgumentProblem(self.where, self.what, tuple(near))


class Checked(NamedTuple):
    """The verdict: without problems, the call may be sent. `skipped` is why nothing was checked."""

    problems: tuple[ArgumentProblem, ...] = ()
    skipped: str | None = None


class _Unusual(Exception):
    """Something that this check does not understand well enough to stop a call because of it."""


def check(arguments: object, schema: object) -> Checked:
    """Whether decoded `arguments` match the decoded `schema`."""
    if not isinstance(schema, dict):
        return Checked(skipped="the schema is not an object")
    dialect = schema.get("$schema")
    if dialect is not None and dialect not in _SCHEMA_DIALECTS:
        return Checked(skipped=f"unknown dialect `{str(dialect)[:80]}`")
    # Up to draft 7, keywords next to `$ref` are ignored; from 2019-09 on they count.
    checker = _Checker(schema, refs_stand_alone="draft-0" in str(dialect))
    found: dict[tuple[str, str], _Found] = {}
    try:
        for each in checker.problems(arguments, schema, "$", MAX_SCHEMA_DEPTH):
            # `allOf` with the same part twice would report a problem twice.
            found.setdefault((each.where, each.what), each)
            if len(found) == _MAX_NAMED_PROBLEMS:
                break
    except _Unusual as unusual:
        return Checked(skipped=str(unusual))
    except RecursionError:
        return Checked(skipped="too deep")
    return Checked(tuple(each.explained() for each in found.values()))


class _Checker:
    def __init__(self, root: Mapping[str, object], *, refs_stand_alone: bool) -> None:
        self._root = root
        self._refs_stand_alone = refs_stand_alone
        self._steps = _MAX_CHECK_STEPS

    def problems(self, value: object, schema: object, where: str, depth: int) -> Iterator[_Found]:
        self._steps -= 1
        if self._steps < 0 or depth < 0:
            raise _Unusual("too much to check")
        if not isinstance(schema, dict):
            if schema is False:
                yield _Found(where, "is not allowed here")
            return
        listed = (schema.get(word) for word in _LISTS)
        self._steps -= sum(len(each) for each in listed if isinstance(each, list | dict)) // _AT_ONCE
        if "$dynamicRef" in schema or "$recursiveRef" in schema or ("$id" in schema and schema is not self._root):
            raise _Unusual("the schema uses references that are not followed here")
        if "$ref" in schema:
            yield from self.problems(value, self._followed(schema["$ref"]), where, depth - 1)
            if self._refs_stand_alone:
                return
        # OpenAPI 3.0, from which many servers are generated.
        if value is None and schema.get("nullable") is True:
            return
        wrong = self._wrong_kind(value, schema)
        if wrong is not None:
            yield _Found(where, wrong)
            return
        yield from _wrong_value(value, schema, where)
        if isinstance(value, dict):
            yield from self._object(value, schema, where, depth)
        elif isinstance(value, list):
            yield from self._array(value, schema, where, depth)
        yield from self._combined(value, schema, where, depth)

    def _followed(self, reference: object) -> object:
        target = point(self._root, reference)
        if target is None and isinstance(reference, str) and reference.startswith("#"):
            target = self._anchored(reference[1:])
        if not isinstance(target, dict | bool):
            raise _Unusual(f"the reference `{str(reference)[:80]}` is not followed here")
        return target

    def _anchored(self, name: str) -> object:
        """The definition with the anchor `name`; anchors elsewhere are not searched."""
        kept = (self._root.get(place) for place in ("$defs", "definitions"))
        every = [each for definitions in kept if isinstance(definitions, dict) for each in definitions.values()]
        return next((each for each in every if isinstance(each, dict) and each.get("$anchor") == name), None)

    def _wrong_kind(self, value: object, schema: Mapping[str, object]) -> str | None:
        declared = schema.get("type")
        listed = declared if isinstance(declared, list) else [declared]
        kinds = [kind for kind in listed if isinstance(kind, str) and kind in _PYTHON_TYPES]
        if len(kinds) < len(listed):
            return None  # No type, or one that JSON Schema does not have: anything goes.
        if any(_is_kind(value, kind) for kind in kinds):
            return None
        hint = ""
        # The most common mistake of models: an object encoded as a string.
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") and ("object" in kinds or "array" in kinds):
            hint = "; send the value itself, not its JSON text"
        return f"expected {' or '.join(kinds)}, got {_shown(value)}{hint}"

    def _object(
        self, value: dict[str, object], schema: Mapping[str, object], where: str, depth: int
    ) -> Iterator[_Found]:
        known = properties(schema)
        self._steps -= len(value)
        unknown = [name for name in value if name not in known]
        yield from _missing(value, schema, unknown, where)
        extra = schema.get("additionalProperties")
        for name, each in value.items():
            if name in known:
                yield from self.problems(each, known[name], f"{where}.{name}", depth - 1)
            # A pattern that might allow it is not tried: it could be slow, and servers use other regular expression
            # dialects.
            elif "patternProperties" in schema or extra is None or extra is True:
                continue
            elif extra is False:
                yield _Found(f"{where}.{name}", "is not an argument", name, known)
            else:
                yield from self.problems(each, extra, f"{where}.{name}", depth - 1)

    def _array(self, value: list[object], schema: Mapping[str, object], where: str, depth: int) -> Iterator[_Found]:
        first = schema.get("prefixItems")
        items = schema.get("items")
        rest: object = items
        if isinstance(items, list):  # Before 2020-12 the schemas of a tuple stood in `items`.
            first, rest = items, schema.get("additionalItems")
        leading = first if isinstance(first, list) else []
        for number, each in enumerate(value):
            part = leading[number] if number < len(leading) else rest
            if part is None:
                break
            yield from self.problems(each, part, f"{where}[{number}]", depth - 1)

    def _combined(self, value: object, schema: Mapping[str, object], where: str, depth: int) -> Iterator[_Found]:
        every = schema.get("allOf")
        for part in every if isinstance(every, list) else ():
            yield from self.problems(value, part, where, depth - 1)
        for keyword in ("anyOf", "oneOf"):
            alternatives = schema.get(keyword)
            if isinstance(alternatives, list) and alternatives:
                yield from self._none_of(value, alternatives, where, depth)

    def _none_of(self, value: object, alternatives: list[object], where: str, depth: int) -> Iterator[_Found]:
        failed: list[list[_Found]] = []
        for alternative in alternatives:
            found = list(islice(self.problems(value, alternative, where, depth - 1), _MAX_NAMED_PROBLEMS))
            if not found:
                return
            failed.append(found)
        # If the value has the right type for one alternative only, that one was meant.
        meant = [found for found in failed if not any(each.where == where for each in found)]
        if len(meant) == 1 or len(failed) == 1:
            yield from (meant or failed)[0]
            return
        form = written_type({"anyOf": alternatives}, self._root)[:_MAX_FORM_LENGTH]
        yield _Found(where, f"expected {form}, got {_shown(value)}")


def _is_kind(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        # JSON has one type of number: `1.0` is an integer in JSON Schema.
        return value.is_integer()
    return isinstance(value, _PYTHON_TYPES[kind])


def _missing(
    value: Mapping[str, object], schema: Mapping[str, object], unknown: list[str], where: str
) -> Iterator[_Found]:
    for name in required(schema):
        if name not in value:
            yield _Found(where, f"`{name}` is missing", name, unknown, is_missing=True)
    for keyword in ("dependentRequired", "dependencies"):  # The second is what it was called before 2019.
        together = schema.get(keyword)
        for name, needed in together.items() if isinstance(together, dict) else ():
            for other in needed if name in value and isinstance(needed, list) else ():
                if isinstance(other, str) and other not in value:
                    yield _Found(where, f"`{other}` is missing, which goes with `{name}`")


def _wrong_value(value: object, schema: Mapping[str, object], where: str) -> Iterator[_Found]:
    choices = schema.get("enum")
    if "const" in schema and value != schema["const"]:
        yield _Found(where, f"expected {_shown(schema['const'])}, got {_shown(value)}")
    elif isinstance(choices, list) and value not in choices:
        names = [choice for choice in choices if isinstance(choice, str)]
        shown = ", ".join(_shown(choice) for choice in choices[:_MAX_SHOWN_CHOICES])
        more = f" and {len(choices) - _MAX_SHOWN_CHOICES} more" if len(choices) > _MAX_SHOWN_CHOICES else ""
        wanted = value if isinstance(value, str) else ""
        yield _Found(where, f"expected one of {shown}{more}, got {_shown(value)}", wanted, names)
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _out_of_range(value, schema, where)
    elif isinstance(value, str | list | dict):
        low, high = _LENGTH_KEYWORDS[type(value)]
        yield from _out_of_bounds(len(value), schema.get(low), schema.get(high), _UNITS_OF_TYPES[type(value)], where)


_LENGTH_KEYWORDS: dict[type, tuple[str, str]] = {
    str: ("minLength", "maxLength"),
    list: ("minItems", "maxItems"),
    dict: ("minProperties", "maxProperties"),
}
_UNITS_OF_TYPES: dict[type, str] = {str: "characters", list: "items", dict: "properties"}
_SINGULAR_UNITS: dict[str, str] = {"characters": "character", "items": "item", "properties": "property"}


def _count(number: int, of_what: str) -> str:
    return f"{number} {_SINGULAR_UNITS[of_what] if number == 1 else of_what}"


def _out_of_bounds(length: int, low: object, high: object, of_what: str, where: str) -> Iterator[_Found]:
    if isinstance(low, int) and length < low:
        yield _Found(where, f"expected at least {_count(low, of_what)}, got {length}")
    if isinstance(high, int) and length > high:
        yield _Found(where, f"expected at most {_count(high, of_what)}, got {length}")


def _out_of_range(value: float, schema: Mapping[str, object], where: str) -> Iterator[_Found]:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if above is True:  # Draft 4 wrote it as a mark on the limit.
        low, above = None, low
    if below is True:
        high, below = None, high
    if _is_number(low) and value < low:
        yield _Found(where, f"expected at least {low}, got {value}")
    if _is_number(high) and value > high:
        yield _Found(where, f"expected at most {high}, got {value}")
    if _is_number(above) and value <= above:
        yield _Found(where, f"expected more than {above}, got {value}")
    if _is_number(below) and value >= below:
        yield _Found(where, f"expected less than {below}, got {value}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    text = msgspec.json.encode(value).decode()
    return f"`{clip(text, _MAX_SHOWN_VALUE_LENGTH)}`"
