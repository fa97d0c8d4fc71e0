"""What a demo server offers: tools, prompts and resources.

Owns their definitions, and validates arguments against the few JSON Schema keywords that the demo servers use. Knows
nothing about how requests and responses travel.
"""

from __future__ import annotations

import json

# As in `typing`, without importing it: these servers start as fast as they can.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]
    # A tool returns text for people and, where it declared an output schema, the same as structured content.
    Outcome = str | tuple[str, Json]


class ToolError(Exception):
    """The tool failed; the model reads the message and may try again."""


class DemoTool:
    def __init__(
        self,
        function: Callable[..., Outcome],
        description: str,
        properties: Json,
        required: tuple[str, ...],
        output: Json | None,
        read_only: bool,
        background: bool,
    ) -> None:
        self.function = function
        self.name = function.__name__
        # Background tools take long and can be cancelled, so they run in their own thread.
        self.background = background
        self.input_schema = object_schema(properties, required)
        self.definition: Json = {
            "name": self.name,
            "title": self.name.replace("_", " ").capitalize(),
            "description": description,
            "inputSchema": self.input_schema,
            "annotations": {"readOnlyHint": read_only, "openWorldHint": False},
        }
        if output is not None:
            self.definition["outputSchema"] = output

    def run(self, request: object, arguments: Json) -> Json:
        """The result of `tools/call`. A failure of the tool is a result too, marked as an error."""
        try:
            # By hand: a library for JSON Schema takes longer to import than this server to start.
            if problems := check_arguments(self.input_schema, arguments):
                raise ToolError("; ".join(problems))
            outcome = self.function(request, **arguments)
        # An error of the protocol would be the client's to handle; this one its model can read and act on.
        except ToolError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if isinstance(outcome, str):
            return {"content": [{"type": "text", "text": outcome}]}
        text, structured = outcome
        # Clients that ignore structured content need all of it as text.
        everything = json.dumps(structured, ensure_ascii=False)
        content = [{"type": "text", "text": part} for part in (text, everything)]
        return {"content": content, "structuredContent": structured}


class Prompt:
    def __init__(
        self,
        function: Callable[..., str],
        description: str,
        arguments: dict[str, str],
        complete: dict[str, Callable[[], list[str]]],
    ) -> None:
        self.function = function
        self.name = function.__name__
        # For some arguments, all values that make sense at the moment.
        self.complete = complete
        self.arguments = arguments
        self.definition: Json = {
            "name": self.name,
            "title": self.name.replace("_", " ").capitalize(),
            "description": description,
            "arguments": [{"name": name, "description": text, "required": False} for name, text in arguments.items()],
        }

    def get(self, arguments: Json) -> Json:
        text = self.function(**{name: arguments[name] for name in self.arguments if name in arguments})
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": self.definition["description"], "messages": [message]}


class Resources:
    """What `resources/…` shows. A server that has resources derives from this."""

    templates: tuple[Json, ...] = ()

    def listed(self) -> list[Json]:
        raise NotImplementedError

    def read(self, uri: str) -> Json | None:
        """The contents at `uri`; None if there is no such resource."""
        raise NotImplementedError


def object_schema(properties: Json, required: tuple[str, ...] | None = None) -> Json:
    """An object schema with exactly these properties, all of them required unless `required` is given."""
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def check_arguments(schema: Json, arguments: Json) -> list[str]:
    """All problems with `arguments`, one sentence each."""
    properties: Json = schema["properties"]
    problems = [f"`{name}` is missing" for name in schema["required"] if name not in arguments]
    for name, value in arguments.items():
        if name in properties:
            problems += _check_value(f"`{name}`", properties[name], value)
        else:
            problems.append(f"`{name}` is unknown; the arguments are {', '.join(f'`{known}`' for known in properties)}")
    return problems


def _check_value(what: str, schema: Json, value: object) -> list[str]:
    expected = schema["type"]
    # In Python a bool is an int; in JSON it is not.
    if not isinstance(value, _JSON_TYPES[expected]) or (isinstance(value, bool) and expected != "boolean"):
        return [f"{what} must be of type {expected}"]
    if isinstance(value, list):
        return _check_list(what, schema, value)
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        return [f"{what} must not be empty"]
    if isinstance(value, (int, float)):
        # Infinity and NaN, which Python's JSON reader lets through.
        if value - value != 0:
            return [f"{what} must be a finite number"]
        if value < schema.get("minimum", value):
            return [f"{what} must be at least {schema['minimum']}"]
        if value > schema.get("maximum", value):
            return [f"{what} must be at most {schema['maximum']}"]
    return []


def _check_list(what: str, schema: Json, values: list[object]) -> list[str]:
    if len(values) < schema.get("minItems", 0):
        return [f"{what} needs at least {schema['minItems']} item(s)"]
    problems: list[str] = []
    for position, value in enumerate(values):
        problems += _check_value(f"{what}[{position}]", schema["items"], value)
    return problems
