"""A tool's arguments on one line: `create_issue(owner: string, title: string, labels?: string[])`.

Owns the notation, and the promise that whatever it leaves out is marked with `…`. Knows nothing about descriptions,
budgets and servers. Work is bounded on any input: the number of types written, their depth, and references, which are
followed only within the schema and never in a cycle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mcp_workbench.engine.economy.prose import ELLIPSIS, clip
from mcp_workbench.engine.economy.shared_arguments import shortened
from mcp_workbench.engine.economy.tool import WRAPPERS
from mcp_workbench.engine.json_schema import properties as properties_of
from mcp_workbench.engine.json_schema import required as required_of
from mcp_workbench.engine.json_schema import resolve

# How many levels are shown: deeper arguments are read from the full definition.
DEPTH = 3
# Schemas with thousands of types exist (whole API descriptions), and a list has many tools.
_MAX_TYPES = 250
_MAX_SIGNATURE_ARGUMENTS = 60
_MAX_SIGNATURE_CHOICES = 16
_MAX_SIGNATURE_ALTERNATIVES = 6
_MAX_LITERAL_LENGTH = 40
# `= 10` helps; a default that is a sentence can be found in the definition.
_MAX_DEFAULT_LENGTH = 16
_MAX_ARGUMENT_NAME_LENGTH = 64
# Of the type of a result.
_MAX_RESULT_TYPE = 200

_PLAIN_NAME = re.compile(r"[\w$.@-]+")
_PLAIN_TYPES = frozenset(("string", "number", "integer", "boolean", "null"))
# Formats that determine how to write the value; `int32` or `double` add nothing to the type for a caller.
_FORMATS = frozenset(
    (
        "date",
        "date-time",
        "time",
        "duration",
        "uri",
        "url",
        "email",
        "uuid",
        "ipv4",
        "ipv6",
        "hostname",
        "binary",
        "byte",
    )
)
# Keywords that restrict an object in ways this notation cannot express.
_BEYOND_NOTATION = ("if", "patternProperties", "dependentSchemas", "dependencies", "unevaluatedProperties")


class Signature(NamedTuple):
    """`text` is the line; `complete` is False if something was left out, and then the text contains `…`."""

    text: str
    complete: bool


class Arguments(NamedTuple):
    """Every argument as written in a signature; `complete` as there."""

    written: tuple[str, ...]
    complete: bool


def signature(name: str, schema: object, *, most: int | None = None, common: Sequence[str] = ()) -> Signature:
    """The signature of the tool `name` with this input schema (decoded JSON, of any quality).

    If it is longer than `most` characters, it is shortened: first the content of objects, then the types of optional
    arguments, then those arguments; required ones are kept longest. `common` are arguments that are shown elsewhere."""
    written = arguments(schema)
    text = _joined(name, shortened(written.written, common))
    if most is None or len(text) <= most:
        return Signature(text, written.complete)
    # Drop first what a caller can guess: the content of an object before the type of an argument.
    for depth, typed in ((2, True), (1, True), (1, False)):
        shorter = _joined(name, shortened(arguments(schema, depth=depth, all_typed=typed).written, common))
        if len(shorter) <= most:
            # Without types, nothing else would show that something was left out.
            return Signature(shorter if ELLIPSIS in shorter else f"{shorter[:-1]}, {ELLIPSIS})", False)
    return Signature(_as_many(name, _required_first(arguments(schema, depth=1, all_typed=False).written), most), False)


def arguments(schema: object, *, depth: int = DEPTH, all_typed: bool = True) -> Arguments:
    """The arguments of a schema; without `all_typed`, optional ones have no type."""
    writer = _Writer(schema if isinstance(schema, dict) else {})
    return Arguments(tuple(writer.arguments(depth, optional_typed=all_typed)), writer.complete)


def written_type(schema: object, root: Mapping[str, object]) -> str:
    """The type of one argument, as in a signature. `root` is the schema in which references are resolved."""
    return _Writer(root).type(schema, DEPTH)


def returned(schema: object) -> str:
    """` -> {size: integer}` after a signature, from the schema of its result; empty without one. Of an object that
    servers put around a result, what is in it, because that is what a program gets (`Reading.declared`)."""
    if not isinstance(schema, dict):
        return ""
    members = schema.get("properties")
    inner: object = schema
    if isinstance(members, dict) and len(members) == 1 and WRAPPERS.issuperset(members):
        (inner,) = members.values()
    return f" -> {clip(written_type(inner, schema), _MAX_RESULT_TYPE)}"


def bare_arguments(schema: object) -> tuple[str, ...]:
    """The names of all arguments, with optional ones marked."""
    writer = _Writer(schema if isinstance(schema, dict) else {})
    return tuple(writer.arguments(DEPTH, typed=False))


def argument_names(name: str, schema: object, *, common: Sequence[str] = ()) -> Signature:
    """Only the names: `create_issue(owner, title, labels?)`."""
    return Signature(_joined(name, shortened(bare_arguments(schema), common)), False)


def _joined(name: str, written: Iterable[str]) -> str:
    return f"{name}({', '.join(written)})"


def _required_first(written: Sequence[str]) -> list[str]:
    return sorted((each for each in written if each != ELLIPSIS), key=lambda each: "?" in each.partition(":")[0])


def _as_many(name: str, written: Sequence[str], most: int) -> str:
    """As many arguments as fit."""
    room = most - len(name) - len(f"(, {ELLIPSIS})")
    kept: list[str] = []
    for each in written:
        room -= len(each) + 2
        if room < 0:
            break
        kept.append(each)
    return _joined(clip(name, max(most - 3, 1)), [*kept, ELLIPSIS])


class _Writer:
    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._types_left = _MAX_TYPES
        # By identity: two equal schemas are not a cycle.
        self._following: list[int] = []
        self.complete = True

    def arguments(self, depth: int, *, typed: bool = True, optional_typed: bool = True) -> list[str]:
        schema = self._followed(self._root)
        if schema is None:
            return [self._left_out()]
        written = self._properties(schema, depth, typed=typed, optional_typed=typed and optional_typed)
        # Conditions across arguments, such as "either a or b", cannot be expressed in a signature.
        if any(key in self._root for key in ("anyOf", "oneOf", "not")):
            written.append(self._left_out())
        return written

    def _left_out(self) -> str:
        self.complete = False
        return ELLIPSIS

    def _properties(
        self, schema: Mapping[str, object], depth: int, *, typed: bool = True, optional_typed: bool = True
    ) -> list[str]:
        properties, required, whole = _gathered(schema, self._root)
        written = []
        for name, argument in list(properties.items())[:_MAX_SIGNATURE_ARGUMENTS]:
            label = name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
            if len(label) > _MAX_ARGUMENT_NAME_LENGTH:
                written.append(self._left_out())
                continue
            is_required = name in required
            is_typed = typed if is_required else optional_typed
            written.append(f"{label}{'' if is_required else '?'}{self._typed(argument, depth) if is_typed else ''}")
        if not whole or len(properties) > _MAX_SIGNATURE_ARGUMENTS or any(key in schema for key in _BEYOND_NOTATION):
            written.append(self._left_out())
        return written

    def _typed(self, argument: object, depth: int) -> str:
        text = f": {self.type(argument, depth)}"
        default = argument.get("default") if isinstance(argument, dict) else None
        if isinstance(default, str | int | float) and len(written := _literal(default)) <= _MAX_DEFAULT_LENGTH:
            text += f" = {written}"
        return text

    def type(self, schema: object, depth: int) -> str:
        self._types_left -= 1
        if self._types_left < 0:
            return self._left_out()
        if not isinstance(schema, dict):
            return "any"
        target = self._followed(schema)
        if target is None:
            return self._left_out()
        if target is schema:
            return self._written(schema, depth)
        self._following.append(id(target))
        try:
            return self._written(target, depth)
        finally:
            self._following.pop()

    def _followed(self, schema: Mapping[str, object]) -> Mapping[str, object] | None:
        """The schema that `schema` refers to; itself if it has no reference, None if it cannot be followed."""
        if "$ref" not in schema:
            # Its target depends on how the schema was reached; servers do not use it for arguments.
            return None if "$dynamicRef" in schema else schema
        target = resolve(self._root, schema["$ref"])
        return None if target is None or id(target) in self._following else target

    def _written(self, schema: Mapping[str, object], depth: int) -> str:
        if "const" in schema:
            return self._choices([schema["const"]])
        choices = schema.get("enum")
        if isinstance(choices, list) and choices:
            return self._choices(choices)
        for keyword in ("anyOf", "oneOf"):
            # Together with `properties`, it restricts these rather than being the type.
            alternatives = schema.get(keyword)
            if isinstance(alternatives, list) and alternatives and "properties" not in schema:
                return self._alternatives(alternatives, depth)
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return self._alternatives([{**schema, "type": kind} for kind in kinds], depth)
        return self._of_kind(kinds, schema, depth)

    def _of_kind(self, kind: object, schema: Mapping[str, object], depth: int) -> str:
        if kind == "array" or (kind is None and "items" in schema):
            return self._array(schema, depth)
        if kind == "object" or (kind is None and ("properties" in schema or "allOf" in schema)):
            return self._object(schema, depth)
        if kind == "string" and schema.get("format") in _FORMATS:
            return f"string<{schema['format']}>"
        if isinstance(kind, str) and kind in _PLAIN_TYPES:
            return kind
        return "any"

    def _choices(self, choices: list[object]) -> str:
        written = [_literal(choice) for choice in choices[:_MAX_SIGNATURE_CHOICES]]
        short = [choice for choice in written if len(choice) <= _MAX_LITERAL_LENGTH]
        if len(short) < len(choices):
            short.append(self._left_out())
        return "|".join(short)

    def _alternatives(self, alternatives: list[object], depth: int) -> str:
        written: list[str] = []
        for alternative in alternatives[:_MAX_SIGNATURE_ALTERNATIVES]:
            text = self.type(alternative, depth)
            if text not in written:
                written.append(text)
        if len(alternatives) > _MAX_SIGNATURE_ALTERNATIVES:
            written.append(self._left_out())
        return "|".join(written)

    def _array(self, schema: Mapping[str, object], depth: int) -> str:
        items = schema.get("items")
        # A tuple: `prefixItems` in 2020-12, a list in `items` in earlier drafts.
        if isinstance(schema.get("prefixItems"), list) or isinstance(items, list):
            return f"[{self._left_out()}]"
        if not isinstance(items, dict) or not items:
            return "any[]"
        text = self.type(items, depth)
        return f"({text})[]" if _is_union(text) else f"{text}[]"

    def _object(self, schema: Mapping[str, object], depth: int) -> str:
        extra = schema.get("additionalProperties")
        if not schema.get("properties") and not schema.get("allOf"):
            if isinstance(extra, dict) and extra and depth > 1:
                return "{[key]: " + self.type(extra, depth - 1) + "}"
            return "object"
        if depth <= 1:
            return "{" + self._left_out() + "}"
        return "{" + ", ".join(self._properties(schema, depth - 1)) + "}"


def _gathered(
    schema: Mapping[str, object], root: Mapping[str, object]
) -> tuple[dict[str, object], frozenset[str], bool]:
    """The properties of a schema and its `allOf`, which of them are required, and whether these are all."""
    properties: dict[str, object] = {}
    required: list[str] = []
    whole = True
    parts = schema.get("allOf")
    for part in (schema, *(parts[:_MAX_SIGNATURE_ALTERNATIVES] if isinstance(parts, list) else ())):
        if isinstance(part, dict) and "$ref" in part and part is not schema:
            # Pydantic 1 wrote a field that is a model as `allOf` with one reference.
            part = resolve(root, part["$ref"])
        if not isinstance(part, dict) or (
            part is not schema and any(key in part for key in ("allOf", "anyOf", "oneOf"))
        ):
            whole = False
            continue
        properties.update(properties_of(part))
        required.extend(required_of(part))
    return properties, frozenset(required), whole


_BRACKETS_OR_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?$)|[\[{(|)}\]]')


def _is_union(text: str) -> bool:
    """Whether a written type has alternatives outside of any brackets."""
    depth = 0
    for match in _BRACKETS_OR_TEXT.finditer(text):
        sign = match.group()
        if sign == "|" and depth == 0:
            return True
        depth += (sign in "[{(") - (sign in ")}]") if len(sign) == 1 else 0
    return False


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
