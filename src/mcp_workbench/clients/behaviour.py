"""How clients behave on the wire and towards their model: the table `behaviour.json`, and who is meant by `clientInfo`.

Owns what is known and how sure that is. Refuses to know what is made of it: faces, lists, calls and sign-ins ask. What
the configuration says of a client comes before the table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, Literal

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import decode
from msgspec.structs import replace

from mcp_workbench.faces import DEFAULT_FACE

TABLE: Final = os.path.join(os.path.dirname(__file__), "behaviour.json")
# What the name of the server takes in names that clients make: `workbench`, or what the user calls it there.
LENGTH_OF_OUR_NAME: Final = 16
# Every client that reads instructions at all reads this many bytes, and so is the room where nothing is known.
USUAL_ROOM: Final = 2_048
# Beyond this an introduction is not worth keeping in mind.
MOST_KEPT: Final = 1_024
MOST_REMEMBERED: Final = 512


class Behaviour(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What is known of one client. None: not known."""

    name: str
    title: str = ""
    # Names and globs that `clientInfo.name` has.
    match: tuple[str, ...] = ()
    # Whether it keeps definitions of tools from its model until they are searched for.
    defers: Literal["always", "some models", "never"] | None = None
    # What the face `auto` shows it, and up to how many tools; 0: however many.
    face: str = DEFAULT_FACE
    flat_up_to: int = 0
    # Members of a tool's `_meta` that it honours.
    marks: tuple[str, ...] = ()
    # What names are made of: what it puts in front, and how long the whole may be.
    separator: str = "__"
    name_prefix: str = "mcp__{server}__"
    name_length: int | None = 64
    # In characters, where it cuts; 0: its model never sees them, None: it does not cut.
    instructions_length: int | None = USUAL_ROOM
    # Where results are cut.
    results: str = ""
    # What of a result with both text and structured content its model sees.
    structured: Literal["only", "both", "text"] | None = None
    # Whether it tries the stateless revision before the handshake.
    probes_modern: bool | None = None
    # What servers may ask of it, as it declares.
    declares: tuple[str, ...] | None = None
    # Whether it answers requests that it has not declared, be it with an error. One that does not is never asked.
    answers_undeclared: bool | None = None
    list_changed: Literal["fetches", "ignores"] | None = None
    read_only_skips_prompt: bool | None = None
    # How long it waits for us to be ready, and for a call; whether progress makes it wait longer.
    connect_seconds: int | None = None
    call_seconds: int | None = None
    progress_extends: bool | None = None
    # How its user is asked to sign in to a server: by a question with the page where the client declares that it can,
    # else by the page's address in the text of the result (`link`) or by the command to run.
    sign_in: Literal["ask", "link", "command"] = "ask"
    # It only looks whether we answer.
    health_check: bool = False
    checked: Literal["measured", "code", "documentation", "guess"] = "guess"
    date: str = ""
    source: str = ""

    @property
    def longest_name(self) -> int:
        """How long the name of a tool of ours may be there; 0: as long as it likes."""
        if self.name_length is None:
            return 0
        return self.name_length - len(self.name_prefix.replace("{server}", "x" * LENGTH_OF_OUR_NAME))

    @property
    def instructions_room(self) -> int:
        """How many bytes of instructions are worth writing for it."""
        if self.instructions_length is None:
            return 1 << 20
        # Those whose models never see them may show them to people.
        return self.instructions_length or USUAL_ROOM


UNKNOWN: Final = Behaviour(name="", title="other clients")


class _Info(Struct):
    name: str = ""


@cache
def behaviours() -> dict[str, Behaviour]:
    """The table by name of the client, in its order."""
    with open(TABLE, "rb") as file:
        rows = decode(file.read(), type=list[Behaviour])
    return {row.name: row for row in rows}


def behaviour_of(name: str) -> Behaviour:
    """What is known of clients that call themselves this."""
    # Bridges add theirs: `claude-ai (via mcp-remote 0.1.29)`.
    own = name.partition(" (via ")[0]
    for row in behaviours().values():
        if any(fnmatchcase(own, pattern) for pattern in row.match):
            return row
    return UNKNOWN


class Recogniser:
    """Who is meant by a `clientInfo`, with what the configuration says of clients."""

    def __init__(self, overrides: Mapping[str, dict[str, object]]) -> None:
        self.overrides = overrides
        self._found: dict[bytes, Behaviour] = {}

    def behaviour(self, client_info: bytes) -> Behaviour:
        """What is known of a client that introduces itself like this."""
        found = self._found.get(client_info)
        if found is None:
            found = self._recognise(client_info)
            if len(client_info) <= MOST_KEPT:
                if len(self._found) >= MOST_REMEMBERED:
                    self._found.clear()
                self._found[bytes(client_info)] = found
        return found

    def _recognise(self, client_info: bytes) -> Behaviour:
        try:
            name = decode(client_info, type=_Info).name
        except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError):
            return UNKNOWN
        found = row = behaviour_of(name)
        for pattern, members in self.overrides.items():
            if pattern == row.name or fnmatchcase(name, pattern):
                # Others than the row: views are kept by it.
                found = replace(found, **{**_by_field(members), "name": f"{found.name}/{pattern}"})
        return found


def _by_field(members: Mapping[str, object]) -> dict[str, object]:
    by_field = dict(zip(Behaviour.__struct_encode_fields__, Behaviour.__struct_fields__, strict=True))
    return {by_field[name]: value for name, value in members.items()}
