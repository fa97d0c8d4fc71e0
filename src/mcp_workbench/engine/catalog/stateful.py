"""Servers that are known to keep a user's state in their process: `stateful_servers.json`.

A browser with its tabs, a working directory set by a tool, a chain of thoughts: two clients sharing such a process
would mix them up. They are recognised by their package or by their tools. Owns the table and the matching. Knows
nothing about the consequences (`engine.downstream.sharing`). Imported only where several clients are served.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache
from importlib.resources import files
from typing import Final

from msgspec import Struct
from msgspec.json import decode

from mcp_workbench.engine.config.model import ServerConfig

# The part of `@scope/name@1.2`, `name==1.2`, `name[extra]>=1` and `image:tag` before the version.
_PACKAGE_NAME: Final = re.compile(r"@?[^@=<>~!\[:\s]+")


class StatefulServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Names as used by `npx`, `uvx` and `docker`, or the last part of a command.
    packages: tuple[str, ...]
    # A server with all of these tools is recognised, whatever its name; empty: not recognised by tools.
    tools: tuple[str, ...] = ()
    # Arguments, or values of variables, with which it keeps no state.
    unless: tuple[str, ...] = ()
    why: str
    source: str
    date: str


@cache
def known() -> tuple[StatefulServer, ...]:
    """Everything in the data file."""
    return decode(
        (files("mcp_workbench.engine.catalog") / "stateful_servers.json").read_bytes(), type=tuple[StatefulServer, ...]
    )


def keeps_state(config: ServerConfig, tools: Container[str]) -> bool:
    """Whether this server is known to keep a user's state. `tools` are its tools, if known."""
    return find(config, tools) is not None


def find(config: ServerConfig, tools: Container[str]) -> StatefulServer | None:
    """The matching row of the table."""
    said = {*config.args, *config.env.values()}
    program = (config.command or "").rpartition("/")[2].lower()
    names = {program, *(name for word in config.args if (name := _package(word)) is not None)}
    for kind in known():
        if said.isdisjoint(kind.unless) and (
            not names.isdisjoint(kind.packages) or (kind.tools and all(tool in tools for tool in kind.tools))
        ):
            return kind
    return None


def _package(word: str) -> str | None:
    """The package that an argument may name, without its version; for a path, its last part."""
    _, is_installed, place = word.rpartition("/node_modules/")
    if is_installed:
        parts = place.split("/")
        return "/".join(parts[: 2 if place.startswith("@") else 1]).lower()
    found = _PACKAGE_NAME.match(word)
    return None if found is None or word.startswith(("-", "/", ".", "~")) else found[0].lower()
