"""Servers that are known to keep a person's state in their process: `stateful_servers.json`.

A browser with its tabs, a working directory that a tool sets, thoughts so far: two clients on one such process mix them
up. They are recognised by the package that is started, or by their tools. Owns the table and the matching.
Refuses to know what follows from it (`downstream.sharing`). Imported where several clients are served.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache
from importlib.resources import files
from typing import Final

from msgspec import Struct
from msgspec.json import decode

from mcp_workbench.config.model import ServerConfig

# Of `@scope/name@1.2`, `name==1.2`, `name[extra]>=1` and `image:tag` what stands before the version.
_PACKAGE: Final = re.compile(r"@?[^@=<>~!\[:\s]+")


class StatefulServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # As `npx`, `uvx` and `docker` name them, or the last part of a command.
    packages: tuple[str, ...]
    # Whoever has all of these is one of them, whatever it is called; empty: cannot be recognised by tools.
    tools: tuple[str, ...] = ()
    # Arguments, or values of variables, with which it keeps nothing.
    unless: tuple[str, ...] = ()
    why: str
    source: str
    date: str


@cache
def known() -> tuple[StatefulServer, ...]:
    """Everything in the data file."""
    return decode(
        (files("mcp_workbench.catalog") / "stateful_servers.json").read_bytes(), type=tuple[StatefulServer, ...]
    )


def keeps_state(config: ServerConfig, tools: Container[str]) -> bool:
    """Whether this server is known to keep a person's state. `tools` are those that it has, as far as that is known."""
    return find(config, tools) is not None


def find(config: ServerConfig, tools: Container[str]) -> StatefulServer | None:
    """The row of the table that says so."""
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
    """The package that an argument may name, without its version; an installed one by its place."""
    _, is_installed, place = word.rpartition("/node_modules/")
    if is_installed:
        parts = place.split("/")
        return "/".join(parts[: 2 if place.startswith("@") else 1]).lower()
    found = _PACKAGE.match(word)
    return None if found is None or word.startswith(("-", "/", ".", "~")) else found[0].lower()
