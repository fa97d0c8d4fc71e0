"""Settings inside a setting, such as those of `oauth`: an object whose members are declared like any other setting.

Owns how such an object is read, reporting every mistake in it and not only the first. Loaded only for a file that has
one, so that other files start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from mcp_workbench.engine.config.kinds import Kind, Schema
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.redact import secrets_in
from mcp_workbench.engine.config.setting import REQUIRED, Declared, Setting, schemas_of

T = TypeVar("T", bound=Declared)


class Members(Kind, Generic[T]):
    """An object with the settings of `declared`. `foreign` members belong to other clients and are ignored; `hints` say
    what to do about unknown ones that belong elsewhere; `switch` says what `true` and `false` mean in its place."""

    def __init__(
        self,
        declared: type[T],
        expected: str,
        *,
        foreign: Collection[str] = (),
        hints: Mapping[str, str] | None = None,
        switch: Callable[[bool], T | None] | None = None,
    ) -> None:
        self._declared = declared
        self._expected = expected
        self._foreign = foreign
        self._hints = hints or {}
        self._switch = switch

    @property
    def settings(self) -> dict[str, Setting]:
        return self._declared.SETTINGS

    @property
    def _required(self) -> list[str]:
        return [name for name, each in self.settings.items() if each.default is REQUIRED]

    def read(self, value: object, path: Path, reader: Reader) -> T | None:
        if self._switch is not None and isinstance(value, bool):
            return self._switch(value)
        found = self.read_fields(value, path, reader)
        if found is None or None in found.values():
            return None
        missing = [name for name in self._required if not found.get(self.settings[name].field)]
        for name in missing:
            reader.problem(path, f"{quote(name)} is missing", "it")
        return None if missing else self.made(found, value, path, reader)

    def made(self, found: dict[str, Any], value: object, path: Path, reader: Reader) -> T | None:
        """Return what valid members mean together, or None after reporting why they cannot."""
        return self._declared(**found)

    def read_fields(self, value: object, path: Path, reader: Reader) -> dict[str, Any] | None:
        """Return the members by field: None for an invalid one, and just None if the value is not an object. Problems
        go to the reader."""
        found = self.read_named(value, path, reader)
        return None if found is None else {self.settings[name].field: member for name, member in found.items()}

    def read_named(self, value: object, path: Path, reader: Reader) -> dict[str, Any] | None:
        """The same, by the names in the file."""
        if not isinstance(value, dict):
            reader.wrong(value, path, self._expected)
            return None
        found: dict[str, Any] = {}
        for name, written in value.items():
            place = (*path, name)
            setting = self.settings.get(name)
            if setting is None:
                if name not in self._foreign:
                    reader.unknown_key(place, self.settings, hint=self._hints.get(name))
                continue
            reader.fetches = setting.fetches
            member = setting.kind.read(written, place, reader)
            reader.fetches = False
            # A reference is not a secret itself: its target is, once it is fetched.
            if setting.is_secret and isinstance(member, str) and place not in reader.references:
                reader.secrets.update(secrets_in(name, member))
            found[name] = member
        return found

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": schemas_of(self.settings),
            "additionalProperties": bool(self._foreign),
        }
        if self._required:
            schema["required"] = self._required
        return schema if self._switch is None else {"anyOf": [{"type": "boolean"}, schema]}
