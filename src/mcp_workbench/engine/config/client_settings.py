"""The members of `clients`: what is known about a client, in addition to the built-in table or instead of it.

Loaded only for a file that has them. Their meaning is in `engine/face/client_behaviour.py`.
"""

from __future__ import annotations

from typing import Any, Final

from mcp_workbench.engine.config.kinds import Boolean, Kind, Schema, Separator, Whole, one_of
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import Declared, setting
from mcp_workbench.engine.faces import FACES_OF_CLIENTS

# Shorter names would consist of only the checksum that distinguishes them.
MIN_TOOL_NAME_LENGTH: Final = 32
# Limits that `null` removes.
LENGTH_LIMITS: Final = ("nameLength", "instructionsLength")


class ClientSettings(Declared, frozen=True):
    """Never made: what is set stays as written, to be laid over the built-in table."""

    face = setting(one_of(*FACES_OF_CLIENTS), "What the face `auto` shows this client.")
    flat_up_to = setting(
        Whole("tools", 0, 1_000_000),
        "With more tools than this, the face `auto` shows `proxy` instead of `flat`; 0: no limit.",
    )
    separator = setting(Separator(), "What separates the parts of a name in the face `auto`.")
    name_length = setting(
        Whole("characters", MIN_TOOL_NAME_LENGTH, 10_000, none=True),
        "The longest name it accepts, including its own prefix; `null`: any length.",
    )
    instructions_length = setting(
        Whole("characters", 0, 1_000_000, none=True), "How much of the instructions it reads; `null`: all."
    )
    call_seconds = setting(
        Whole("seconds", 1, 86_400),
        "How long it waits for a call. Tasks and programs that take longer are answered before.",
    )
    progress_extends = setting(
        Boolean(),
        "Whether progress notifications extend its timeout. If so, the workbench sends one before it expires.",
    )
    sign_in = setting(
        one_of("ask", "link", "command"),
        "How its user is asked to sign in to a server: by a question with the page where the client declares that it "
        "can (`ask`), where it does not by the page's address in the result (`link`), or by the command to run.",
    )
    health_check = setting(
        Boolean(), "It only checks that the workbench responds: no server is started to answer its list requests."
    )


_CLIENT_MEMBERS: Final = Members(ClientSettings, 'an object such as `{"face": "proxy"}`')


class _Clients(Kind):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> dict[str, dict[str, Any]] | None:
        if not isinstance(value, dict):
            reader.wrong(value, path, 'an object such as `{"codex": {"face": "proxy"}}`')
            return None
        found: dict[str, dict[str, Any]] = {}
        for client, settings in value.items():
            members = _CLIENT_MEMBERS.read_named(settings, (*path, client), reader) or {}
            # 0 would be a limit, so a removed limit stays None.
            lifted = [name for name in LENGTH_LIMITS if name in members and settings[name] is None]
            found[client] = {**members, **dict.fromkeys(lifted)}
        return found

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": _CLIENT_MEMBERS.schema()}


CLIENTS: Final = _Clients()
