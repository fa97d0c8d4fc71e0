"""How clients behave on the wire and towards their model: the table `client_behaviour.json`, and recognising a
`clientInfo`.

Owns what is known and how reliable that is. Does not know how it is used, by faces, lists, calls and sign-ins. The
configuration's settings for a client override the table.
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

from mcp_workbench.engine.faces import DEFAULT_FACE

BEHAVIOUR_FILE: Final = os.path.join(os.path.dirname(__file__), "client_behaviour.json")
# Room for the name of the server in names that clients make: `workbench`, or what the user calls it there.
LENGTH_OF_OUR_NAME: Final = 16
# Every client that reads instructions reads at least this many bytes, so it is the default for unknown clients.
USUAL_ROOM: Final = 2_048
# A longer `clientInfo` is not cached.
MAX_CACHED_INFO_BYTES: Final = 1_024
MAX_CACHED_CLIENTS: Final = 512


# How long clients wait for a call of which this is not known: the default of the official TypeScript SDK.
USUAL_CALL_TIMEOUT: Final = 60.0
# Answered this much before the client would give up.
ANSWER_MARGIN: Final = 5.0


class Behaviour(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What is known about one client. None: unknown. Fields marked "documented" change nothing while serving:
    `docs/reference/client-behaviour.md` shows them, for people who choose settings."""

    name: str
    title: str = ""
    # Names and globs that match `clientInfo.name`.
    match: tuple[str, ...] = ()
    # Documented: whether it withholds tool definitions from its model until they are searched for.
    defers: Literal["always", "some models", "never"] | None = None
    # The face that `auto` shows it, and up to how many tools; 0: any number.
    face: str = DEFAULT_FACE
    flat_up_to: int = 0
    # Members of a tool's `_meta` that it honours.
    marks: tuple[str, ...] = ()
    # How it makes names: its prefix, and the maximum length of the whole.
    separator: str = "__"
    name_prefix: str = "mcp__{server}__"
    name_length: int | None = 64
    # In characters, where it truncates; 0: its model never sees them, None: it does not truncate.
    instructions_length: int | None = USUAL_ROOM
    # Documented: where it truncates results.
    results: str = ""
    # What its model sees of a result with both text and structured content.
    structured: Literal["only", "both", "text"] | None = None
    # Documented: whether it tries the stateless revision before the handshake.
    probes_modern: bool | None = None
    # Documented: the capabilities for servers' requests that it declares.
    declares: tuple[str, ...] | None = None
    # Documented: whether it answers requests for which it has declared no capability, even if with an error.
    answers_undeclared: bool | None = None
    # Documented: what it does about changed lists, and whether tools that only read run without asking its user.
    list_changed: Literal["fetches", "ignores"] | None = None
    read_only_skips_prompt: bool | None = None
    # Documented: how long it waits for us to be ready.
    connect_seconds: int | None = None
    # How long it waits for a call. A task that takes longer is answered with where its result will be.
    call_seconds: int | None = None
    # Whether progress extends its wait for a call.
    progress_extends: bool | None = None
    # How its user is asked to sign in to a server: with a question containing the page, if the client declares that it
    # can, or else with the page's address in the result (`link`) or the command to run.
    sign_in: Literal["ask", "link", "command"] = "ask"
    # It only checks whether we answer.
    health_check: bool = False
    # Documented: where this is from.
    checked: Literal["measured", "code", "documentation", "guess"] = "guess"
    date: str = ""
    source: str = ""

    @property
    def longest_name(self) -> int:
        """The maximum length of our tools' names there; 0: no limit."""
        if self.name_length is None:
            return 0
        return self.name_length - len(self.name_prefix.replace("{server}", "x" * LENGTH_OF_OUR_NAME))

    @property
    def instructions_room(self) -> int:
        """How many bytes of instructions are worth writing for it."""
        if self.instructions_length is None:
            return 1 << 20
        # Clients whose models never see them may show them to people.
        return self.instructions_length or USUAL_ROOM

    def patience(self, *, with_progress: bool) -> float | None:
        """After how many seconds a call should be answered at the latest; None if progress extends its wait.
        `with_progress`: it wants progress of this call."""
        if with_progress and self.progress_extends:
            return None
        seconds = self.call_seconds or USUAL_CALL_TIMEOUT
        return max(seconds - ANSWER_MARGIN, seconds / 2)


UNKNOWN_CLIENT: Final = Behaviour(name="", title="other clients")


class _Info(Struct):
    name: str = ""


@cache
def behaviours() -> dict[str, Behaviour]:
    """Return the table by name of the client, in its order."""
    with open(BEHAVIOUR_FILE, "rb") as file:
        rows = decode(file.read(), type=list[Behaviour])
    return {row.name: row for row in rows}


def behaviour_of(name: str) -> Behaviour:
    """Return what is known about clients with this name."""
    # Bridges append their name: `claude-ai (via mcp-remote 0.1.29)`.
    own = name.partition(" (via ")[0]
    for row in behaviours().values():
        if any(fnmatchcase(own, pattern) for pattern in row.match):
            return row
    return UNKNOWN_CLIENT


class Recogniser:
    """Recognises clients by their `clientInfo`, and applies the configuration's settings for them."""

    def __init__(self, overrides: Mapping[str, dict[str, object]]) -> None:
        self.overrides = overrides
        self._found: dict[bytes, Behaviour] = {}

    def behaviour(self, client_info: bytes) -> Behaviour:
        """Return what is known about a client with this `clientInfo`."""
        found = self._found.get(client_info)
        if found is None:
            found = self._recognise(client_info)
            if len(client_info) <= MAX_CACHED_INFO_BYTES:
                if len(self._found) >= MAX_CACHED_CLIENTS:
                    self._found.clear()
                self._found[bytes(client_info)] = found
        return found

    def _recognise(self, client_info: bytes) -> Behaviour:
        try:
            name = decode(client_info, type=_Info).name
        except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError):
            return UNKNOWN_CLIENT
        found = row = behaviour_of(name)
        for pattern, members in self.overrides.items():
            if pattern == row.name or fnmatchcase(name, pattern):
                # A different name from the row's, because views are cached by it.
                found = replace(found, **{**_by_field(members), "name": f"{found.name}/{pattern}"})
        return found


def _by_field(members: Mapping[str, object]) -> dict[str, object]:
    by_field = dict(zip(Behaviour.__struct_encode_fields__, Behaviour.__struct_fields__, strict=True))
    return {by_field[name]: value for name, value in members.items()}
