"""Settings inside of a setting, such as those of `oauth`: one table for each, read and described to editors alike.

Owns how an object of named members is read, with every mistake in it reported and not the first one alone. Loaded only
for a file that has such an object: the start of all others is not to pay for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from mcp_workbench.config.kinds import Kind, Schema
from mcp_workbench.config.problems import Path
from mcp_workbench.config.reading import Reader
from mcp_workbench.config.redact import secrets_in

# Name, kind, and what it is for.
Member = tuple[str, Kind[Any], str]


class Members:
    """A table of members. `secret` ones are never printed; with `fetches` they may refer to something that is fetched
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
        """The members by the names they are written with: None for one that is wrong, and None alone where there is no
        object. The reader has what is wrong. `hints`: what to do about unknown members that stand elsewhere.
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
            # What refers to something is no secret itself: what it leads to is, once it is fetched.
            if is_secret and isinstance(found[name], str) and place not in reader.references:
                reader.secrets.update(secrets_in(name, found[name]))
        return found

    def read_whole(self, value: object, path: Path, reader: Reader, expected: str) -> dict[str, Any] | None:
        """The members, where there is nothing wrong with any of them."""
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
    """`clientId` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()
