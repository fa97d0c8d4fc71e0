"""A shorter schema with the same meaning: still valid JSON Schema, still accepting what the original accepts.

Owns what is noise to a caller of a tool: names repeated as titles, empty texts, explicit defaults of JSON Schema,
generator marks, long examples, unreferenced definitions. Never touches types, limits, choices, references and required
properties. The one liberty: `additionalProperties: false` outside of alternatives is dropped, because a caller only
sends what is listed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from mcp_workbench.engine.json_schema import MAX_SCHEMA_DEPTH, with_schemas

_MAX_EXAMPLES_LENGTH = 80
_GREATEST_EXACT = 2**53 - 1  # What generators write as the bounds of "any integer".

# Keywords in which a schema is one of several, or only a condition.
_ALTERNATIVES = frozenset(("anyOf", "oneOf", "allOf", "not", "if", "then", "else"))
_NOISE = frozenset(("$schema", "$comment", "xml", "externalDocs", "markdownDescription", "errorMessage"))
_SAID_BY_DEFAULT: dict[str, object] = {
    "required": [],
    "uniqueItems": False,
    "nullable": False,
    "deprecated": False,
    "readOnly": False,
    "writeOnly": False,
    "exclusiveMinimum": False,
    "exclusiveMaximum": False,
    "minLength": 0,
    "minItems": 0,
    "minProperties": 0,
    "minimum": -_GREATEST_EXACT,
    "maximum": _GREATEST_EXACT,
    "default": None,
    "additionalProperties": True,
    "examples": [],
    "description": "",
}
_PUNCTUATION = re.compile(r"[\W_]+")
_EMPTY_LINES = re.compile(r"\n\n\n+")


def lean(schema: object) -> object:
    """The lean form of a decoded schema. The original is not changed."""
    if not isinstance(schema, dict):
        return schema
    short = _lean(schema, "", MAX_SCHEMA_DEPTH, alternative=False)
    short.pop("title", None)  # At the top it is the tool's name again, or its title, which stands beside the schema.
    _drop_unused_definitions(short)
    return short


def _lean(schema: Mapping[str, object], name: str, depth: int, *, alternative: bool) -> dict[str, object]:
    if depth == 0:
        return dict(schema)  # Left as it is, so that recursion has an end.
    short: dict[str, object] = {}
    for key, value in _without_null_alternative(schema).items():
        # `x-` keywords are for generators of code and forms.
        if key in _NOISE or key.startswith("x-") or _is_said_anyway(key, value, name):
            continue
        if key == "additionalProperties" and value is False and "properties" in schema and not alternative:
            continue
        if key == "pattern" and "format" in schema and len(str(value)) > _MAX_EXAMPLES_LENGTH:
            continue  # Generators write the format out as a pattern; the format says it.
        if key == "description" and isinstance(value, str):
            value = _tidied(value)
        elif key == "examples" and isinstance(value, list):
            value = _few(value)
        short[key] = _below(key, value, depth - 1, alternative=alternative)
    return {key: value for key, value in short.items() if not (key == "examples" and value == [])}


def _below(keyword: str, value: object, depth: int, *, alternative: bool) -> object:
    inner = alternative or keyword in _ALTERNATIVES
    return with_schemas(keyword, value, lambda name, part: _lean(part, name, depth, alternative=inner))


def _is_said_anyway(key: str, value: object, name: str) -> bool:
    if key in ("title", "description") and isinstance(value, str):
        return not value.strip() or (bool(name) and _words(value) == _words(name))
    # In Python `False == 0`, so compare the types too.
    return key in _SAID_BY_DEFAULT and type(value) is type(_SAID_BY_DEFAULT[key]) and value == _SAID_BY_DEFAULT[key]


def _tidied(text: str) -> str:
    """The text without trailing spaces on its lines, and without consecutive empty lines.

    Line by line: a pattern for spaces before a line end would take quadratic time on long runs of spaces."""
    return _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip(" \t") for line in text.strip().split("\n")))


def _words(text: str) -> str:
    return _PUNCTUATION.sub("", text).casefold()


def _few(examples: list[object]) -> list[object]:
    kept: list[object] = []
    for example in examples:
        if len(json.dumps([*kept, example], ensure_ascii=False)) > _MAX_EXAMPLES_LENGTH:
            break
        kept.append(example)
    return kept


def _without_null_alternative(schema: Mapping[str, object]) -> Mapping[str, object]:
    """Turn `anyOf: [{type: T, …}, {type: null}]`, as generators write optional values, into `type: [T, null], …`."""
    alternatives = schema.get("anyOf")
    if not isinstance(alternatives, list) or len(alternatives) != 2 or {"type": "null"} not in alternatives:
        return schema
    other = alternatives[0] if alternatives[1] == {"type": "null"} else alternatives[1]
    if not isinstance(other, dict) or not isinstance(other.get("type"), str) or other["type"] == "null":
        return schema
    # These would also have to allow null, and a keyword on both levels would have to apply twice.
    if any(key in other for key in ("enum", "const", "not", "anyOf", "oneOf", "allOf", "if", "$ref")):
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    texts = ("title", "description", "default", "examples")
    if any(key in rest and key not in texts for key in (*other, "type", "enum", "const")):
        return schema
    return {"type": [other["type"], "null"], **{key: value for key, value in other.items() if key != "type"}, **rest}


def _drop_unused_definitions(schema: dict[str, object]) -> None:
    for home in ("$defs", "definitions"):
        definitions = schema.get(home)
        if not isinstance(definitions, dict):
            continue
        used: set[str] = set()
        waiting: list[object] = [value for key, value in schema.items() if key != home]
        while waiting:
            part = waiting.pop()
            if isinstance(part, list):
                waiting.extend(part)
            elif isinstance(part, dict):
                waiting.extend(part.values())
                reference = part.get("$ref", part.get("$dynamicRef"))
                if reference is None:
                    continue
                if not isinstance(reference, str) or not reference.startswith(f"#/{home}/"):
                    return  # Something unusual is going on; every definition stays.
                name = reference[len(home) + 3 :].split("/")[0]
                if name in definitions and name not in used:
                    used.add(name)
                    waiting.append(definitions[name])
        kept = {name: part for name, part in definitions.items() if name in used}
        if kept:
            schema[home] = kept
        else:
            del schema[home]
