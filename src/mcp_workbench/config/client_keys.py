"""The members of `clients`: what is to be known of a client beside the table of the workbench, or instead of it.

Read only where a file has them. What each means is in `clients/behaviour.py`.
"""

from __future__ import annotations

from typing import Any, Final

from mcp_workbench.config.kinds import Boolean, Choice, Kind, Schema, Separator, Whole
from mcp_workbench.config.problems import Path
from mcp_workbench.config.reading import Reader
from mcp_workbench.faces import FACES_OF_CLIENTS

# Shorter names would consist of the checksum that tells them apart.
FEWEST_CHARACTERS: Final = 32

# Name, kind, and what it is for.
MEMBERS: Final[tuple[tuple[str, Kind[Any], str], ...]] = (
    ("face", Choice({name: name for name in FACES_OF_CLIENTS}), "What the face `auto` shows this client."),
    (
        "flatUpTo",
        Whole("tools", 0, 1_000_000),
        "With more tools than this, the face `auto` shows `proxy` instead of `flat`; 0: no limit.",
    ),
    ("separator", Separator(), "What separates the parts of a name in the face `auto`."),
    (
        "nameLength",
        Whole("characters", FEWEST_CHARACTERS, 10_000, none=True),
        "The longest name it accepts, including its own prefix; `null`: any length.",
    ),
    (
        "instructionsLength",
        Whole("characters", 0, 1_000_000, none=True),
        "How much of the instructions it reads; `null`: all.",
    ),
    ("callSeconds", Whole("seconds", 1, 86_400), "How long it waits for a call."),
    (
        "progressExtends",
        Boolean(),
        "Whether progress notifications extend its timeout. If so, the workbench sends one before it expires.",
    ),
    (
        "signIn",
        Choice({"ask": "ask", "link": "link", "command": "command"}),
        "How its user is asked to sign in to a server: by a question with the page where the client declares that it "
        "can (`ask`), where it does not by the page's address in the result (`link`), or by the command to run.",
    ),
    (
        "healthCheck",
        Boolean(),
        "It only checks that the workbench responds: no server is started to answer its list requests.",
    ),
)


def read(value: object, path: Path, reader: Reader) -> dict[str, dict[str, object]] | None:
    """By client, its settings; None after reporting the problems with them to the reader."""
    if not isinstance(value, dict):
        reader.wrong(value, path, 'an object such as `{"codex": {"face": "proxy"}}`')
        return None
    kinds = {name: kind for name, kind, _ in MEMBERS}
    found: dict[str, dict[str, object]] = {}
    for client, settings in value.items():
        if not isinstance(settings, dict):
            reader.wrong(settings, (*path, client), 'an object such as `{"face": "proxy"}`')
            continue
        found[client] = {}
        for name, member in settings.items():
            if name not in kinds:
                reader.unknown_key((*path, client, name), kinds)
            elif member is None and name in ("nameLength", "instructionsLength"):
                found[client][name] = None
            else:
                found[client][name] = kinds[name].read(member, (*path, client, name), reader)
    return found


def _title(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()


def schema() -> Schema:
    members = {name: {**kind.schema(), "title": _title(name), "description": about} for name, kind, about in MEMBERS}
    client = {"type": "object", "properties": members, "additionalProperties": False}
    return {"type": "object", "additionalProperties": client}
