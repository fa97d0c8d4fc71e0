"""Settings inside a setting, such as those of `oauth`: one table for each, for validation and for editors.

Owns how an object of named members is read, reporting every mistake in it and not only the first. Loaded only for a
file that has such an object, so that other files start without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from mcp_workbench.engine.config.kinds import Kind, Schema
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.redact import secrets_in

# Name, kind and description.
Member = tuple[str, Kind[Any], str]


class Members:
    """A table of members. `secret` ones are never printed; with `fetches` they may contain references that are resolved
    when the server starts. `foreign` ones belong to other clients and are ignored."""

    def __init__(
        self, *members: Member, secret: Collection[str] = (), fetches: bool = False, foreign: Collection[str] = ()
    ) -> None:
        self._members = members
        self.kinds = {name: kind for name, kind, _ in members}
        self._secret = secret
        self._fetches = fetches
        self._foreign = foreign

    def read_object(
        self, value: object, path: Path, reader: Reader, expected: str, *, hints: Mapping[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Return the members by their names in the file: None for an invalid one, and just None if the value is not an
        object. Problems go to the reader. `hints`: what to do about unknown members that belong elsewhere.
        """
        if not isinstance(value, dict):
            reader.wrong(value, path, expected)
            return None
        found: dict[str, Any] = {}
        for name, member in value.items():
            place = (*path, name)
            kind = self.kinds.get(name)
            if kind is None:
                if name not in self._foreign:
                    reader.unknown_key(place, self.kinds, hint=(hints or {}).get(name))
                continue
            is_secret = name in self._secret
            with reader.fetching() if is_secret and self._fetches else contextlib.nullcontext():
                found[name] = kind.read(member, place, reader)
            # A reference is not a secret itself: its target is, once it is fetched.
            if is_secret and isinstance(found[name], str) and place not in reader.references:
                reader.secrets.update(secrets_in(name, found[name]))
        return found

    def read_whole(self, value: object, path: Path, reader: Reader, expected: str) -> dict[str, Any] | None:
        """Return the members if all of them are valid."""
        found = self.read_object(value, path, reader, expected)
        return None if found is None or None in found.values() else found

    def schema(self, *required: str) -> Schema:
        members = {
            name: {**kind.schema(), "title": _title_of(name), "description": about}
            for name, kind, about in self._members
        }
        schema: Schema = {"type": "object", "properties": members, "additionalProperties": bool(self._foreign)}
        return {**schema, "required": list(required)} if required else schema


def _title_of(name: str) -> str:
    """Return `clientId` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()
