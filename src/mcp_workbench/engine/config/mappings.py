"""The kinds of value that map names to strings: variables, headers, new names of tools.

Owns how each is read and described to an editor, like `kinds`, which it extends. Never prints their values: only the
kind of a value is ever shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from mcp_workbench.engine.config.kinds import Kind, Schema, Text, Texts, as_json
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader, has_control


class Pairs(Kind):
    """Names and strings; the subclasses define which are allowed."""

    __slots__ = ()
    example = ""
    # For the schema: any name if it is empty.
    name_pattern = ""
    value_schema: ClassVar[Schema] = {"type": "string"}

    def read(self, value: object, path: Path, reader: Reader) -> dict[str, str] | None:
        if not isinstance(value, dict):
            reader.wrong(value, path, f"an object such as `{self.example}`", secret=True)
            return None
        pairs = {}
        for name, item in value.items():
            expected = self.expected_name(name)
            if expected is not None:
                reader.problem((*path, name), f"found {quote(name)}", expected, at_key=True)
            text = self.read_value(item, (*path, name), reader)
            if text is not None and expected is None:
                pairs[name] = text
        return pairs if len(pairs) == len(value) else None

    def expected_name(self, name: str) -> str | None:
        """Return what a name should be if this one is invalid, else None."""
        raise NotImplementedError

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        raise NotImplementedError

    def schema(self) -> Schema:
        names: Schema = {"propertyNames": {"pattern": self.name_pattern}} if self.name_pattern else {}
        return {"type": "object", **names, "additionalProperties": self.value_schema}


class Environment(Pairs):
    """Variables for a process. People write numbers and booleans without quotes; they become strings as written in
    JSON."""

    __slots__ = ()
    example = '{"NAME": "value"}'
    name_pattern = "^[^=]+$"
    value_schema: ClassVar[Schema] = {"type": ["string", "number", "boolean"]}

    def expected_name(self, name: str) -> str | None:
        if not name or "=" in name or "\0" in name:
            return "the name of a variable, which is not empty and has no `=` in it"
        return None

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        if isinstance(value, bool | int | float):
            return as_json(value)
        if not isinstance(value, str):
            reader.wrong(value, path, "a string", secret=True, hint='for an empty variable write `""`')
            return None
        text = reader.expanded(value, path)
        if text is not None and "\0" in text:
            reader.problem(path, "found a NUL character", "a string without it")
            return None
        return text


class VariablePatterns(Texts):
    """Names and globs of variables that a process inherits. Those of the workbench itself are never inherited."""

    __slots__ = ()

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().item(value, path, reader)
        if text is None:
            return None
        from mcp_workbench.engine.config.environment import is_ours

        text = text.strip()
        if "=" in text or text.startswith("!"):
            hint = "to set a variable to a value, write it into `env`" if "=" in text else None
            reader.wrong(value, path, "the name of a variable, or a glob such as `AWS_*`", hint=hint)
            return None
        if is_ours(text):
            hint = "for a server that is a workbench itself, set it in its `env`"
            reader.problem(path, f"{quote(text)} belongs to the workbench and is never inherited", hint=hint)
            return None
        return text

    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "pattern": r"^\s*(?!(MCP_)?WORKBENCH_)[^\s!=][^=]*$"}}


class Headers(Pairs):
    __slots__ = ()
    example = '{"Authorization": "Bearer …"}'
    name_pattern = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"

    def expected_name(self, name: str) -> str | None:
        # A token of RFC 9110: anything else would let a header break out of its line.
        if (
            not name
            or not name.isascii()
            or not all(letter.isalnum() or letter in "!#$%&'*+-.^_`|~" for letter in name)
        ):
            return "the name of a header: letters, digits and `-`"
        return None

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        if not isinstance(value, str):
            reader.wrong(value, path, "a string", secret=True)
            return None
        text = reader.expanded(value, path)
        if text is None:
            return None
        # A token that the shell read from a file often ends in a meaningless line break.
        text = text.strip()
        if has_control(text):
            reader.problem(path, "found a line break or control character", "a header value, which is one line")
            return None
        return text


class Renames(Pairs):
    """Maps original names of tools to the names shown instead, which must be unique."""

    __slots__ = ()
    example = '{"tool": "new_name"}'
    name_pattern = r"\S"
    value_schema: ClassVar[Schema] = {"type": "string", "pattern": r"^\S(.*\S)?$"}

    def read(self, value: object, path: Path, reader: Reader) -> dict[str, str] | None:
        pairs = super().read(value, path, reader)
        taken: dict[str, str] = {}
        for old, new in (pairs or {}).items():
            other = taken.setdefault(new, old)
            if other != old:
                # As written: a variable's value is not repeated.
                shown = str(value.get(old)) if isinstance(value, dict) else ""
                reader.problem(
                    (*path, old), f"found {quote(shown)}, which {quote(other)} is renamed to", "another name"
                )
                pairs = None
        return pairs

    def expected_name(self, name: str) -> str | None:
        return None if name.strip() else "the name of a tool"

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        text = Text("the new name of the tool").read(value, path, reader)
        if text is not None and (text != text.strip() or has_control(text)):
            reader.wrong(value, path, "a name without control characters or white space at its ends")
            return None
        return text


class Deferred(Kind):
    """A kind of value in a separate module, such as `oauth_settings`, which is loaded only for a file that has it:
    loading all of them would slow down every start."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def _kind(self) -> Kind:
        kind: Kind = getattr(import_module(f"mcp_workbench.engine.config.{self._module}"), self._name)
        return kind

    def read(self, value: object, path: Path, reader: Reader) -> Any:
        return self._kind().read(value, path, reader)

    def schema(self) -> Schema:
        return self._kind().schema()
