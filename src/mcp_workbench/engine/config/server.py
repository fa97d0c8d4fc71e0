"""An entry of `mcpServers`: turned into a `ServerConfig`, or into its problems.

Owns what defines a server: command or address, transport, filters, durations, and the conventions of other clients'
files. Does not know in which file or toolbox it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from mcp_workbench.engine.config.kinds import MAX_DURATION
from mcp_workbench.engine.config.model import ReferringValue, ServerConfig, Share, Transport, modified_at
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader

if TYPE_CHECKING:
    from mcp_workbench.engine.config.sandbox_settings import SandboxConfig

SETTINGS = ServerConfig.SETTINGS
# Clients that count in seconds (Cline, Roo Code) allow at most an hour; those that count in milliseconds (Gemini CLI,
# Claude Code) write thousands. So in a plain file, which another program wrote, anything larger is milliseconds.
_MAX_FOREIGN_SECONDS = 3_600
_MAX_FOREIGN_MILLISECONDS = MAX_DURATION * 1000
ADDRESSES = ("url", "serverUrl", "httpUrl")
_TRANSPORT_MEMBERS = ("transport", "type")
_INCLUDING = ("includeTools", "tools")
_EXCLUDING = ("excludeTools", "disabledTools")
# Settings that mean nothing for the other kind of server.
_OF_PROGRAMS = ("args", "cwd", "env", "inheritEnv", "sandbox")
_OF_ADDRESSES = ("headers", "oauth", "forwardIdentity", "tokenExchange")
# Read by themselves: before all others, or only for some servers.
_READ_APART = frozenset(("disabled", "enabled", "envFile", "inheritEnv"))


class WrittenServer:
    """A server as written in the file. `foreign`: the file belongs to another client, whose conventions apply.

    The result depends only on the entry and on the environment of its reader, which no other entry uses: the same entry
    can be read again, later or for another environment.
    """

    __slots__ = ("_entry", "_folder", "_foreign", "_inherit_env", "_name", "_path", "_reader", "_sandbox", "_share")

    def __init__(
        self,
        name: str,
        entry: dict[str, object],
        path: Path,
        reader: Reader,
        *,
        folder: str,
        foreign: bool,
        inherit_env: tuple[str, ...] = (),
        share: Share | None = None,
        sandbox: SandboxConfig | None = None,
    ) -> None:
        self._name = name
        self._entry = entry
        self._path = path
        self._reader = reader
        self._folder = folder
        self._foreign = foreign
        # The values of the toolbox or the file.
        self._inherit_env = inherit_env
        self._share = share
        self._sandbox = sandbox

    def is_disabled(self) -> bool:
        """Whether the file disables the server; it is then not validated further."""
        if "disabled" in self._entry and self._read("disabled") is True:
            return True
        return "enabled" in self._entry and self._read("enabled") is False

    def config(self) -> ServerConfig | None:
        """Return the server with every default filled in, or None if there are problems, which the reader has.

        If only the environment is at fault, the server is returned with what it lacks.
        """
        self._check_keys()
        env_files: tuple[str, ...] = ()
        if "envFile" in self._entry:
            env_files = tuple(map(self._absolute, self._read("envFile") or ()))
        self._reader.has_env_file = bool(env_files)
        found = self._read_all()
        settings = {SETTINGS[name].field: value for name, value in found.items() if SETTINGS[name].field}
        if not self._entry.keys().isdisjoint(ADDRESSES):
            settings["url"] = next(found.get(name) for name in ADDRESSES if name in self._entry)
        if "command" not in settings and "url" not in settings and self._has_image():
            settings["command"] = ""
        if "cwd" in settings:
            settings["cwd"] = self._absolute(settings["cwd"])
        if "idle_timeout" in settings:
            settings["stops_in_use"] = bool(settings["idle_timeout"])
            settings["idle_timeout"] = settings["idle_timeout"] or None
        config = ServerConfig(
            **{
                **settings,
                "name": self._name,
                "transport": self._transport(found),
                "tool_filters": self._filters(found),
                "share": settings.get("share") or self._share,
                "env_files": env_files,
                "env_file_times": tuple(map(modified_at, env_files)),
                **self._of_program(settings),
            }
        )
        self._keep_secret(config)
        if config.share == "everyone":
            self._refuse_users_credentials(config)
        if self._reader.references:
            config = replace(config, references=self._references())
        problems = self._reader.problems
        if problems and all(problem.of_environment for problem in problems):
            return replace(config, unresolved=tuple(problems))
        return None if problems else config

    def _read_all(self) -> dict[str, Any]:
        """Return the valid settings by name."""
        found = {}
        for name, written in self._entry.items():
            setting = SETTINGS.get(name)
            if setting is None or name in _READ_APART:
                continue
            if name == "timeout" and self._foreign:
                written = _in_seconds(written)
            # Only values passed to the server may contain references: the rest must be known before it is started.
            self._reader.fetches = setting.fetches
            value = setting.kind.read(written, (*self._path, name), self._reader)
            if value is not None:
                found[name] = value
        self._reader.fetches = False
        return found

    def _of_program(self, settings: dict[str, Any]) -> dict[str, Any]:
        if "command" not in settings:
            return {}
        # The innermost list counts, so that a server can also be given less than the others.
        confined = {"sandbox": settings.get("sandbox") or self._sandbox}
        own = self._read("inheritEnv") if "inheritEnv" in self._entry else None
        inherit_env = self._inherit_env if own is None else own
        self._reader.inherits(inherit_env)
        # A server shared beyond one folder must not depend on which client came first.
        if "cwd" not in settings and (settings.get("share") or self._share) in ("user", "everyone"):
            return {**confined, "inherit_env": inherit_env, "cwd": self._reader.home()}
        return {**confined, "inherit_env": inherit_env}

    def _refuse_users_credentials(self, config: ServerConfig) -> None:
        """All users share one connection, which is ours: the server would be told that each of them is us."""
        for name in ("forwardIdentity", "tokenExchange"):
            if getattr(config, SETTINGS[name].field) is not None:
                found = f"found `{name}` beside `share`: `everyone`, which has one connection for all users"
                self._reader.problem((*self._path, name), found, hint="remove `share`, so that each user has their own")

    def ignored_keys(self) -> list[str]:
        """Return the non-empty keys that have no effect here, and that their author may rely on."""
        others = [name for name, value in self._entry.items() if value and name not in SETTINGS]
        if isinstance(self._entry.get("sandbox"), dict):
            from mcp_workbench.engine.config.sandbox_settings import is_of_vs_code

            others += ["sandbox"] if is_of_vs_code(self._entry["sandbox"]) else []
        if not others:
            return []
        from mcp_workbench.engine.config.foreign_keys import IDLE_KEYS

        return [name for name in others if name in IDLE_KEYS]

    def _read(self, name: str) -> Any:
        return SETTINGS[name].kind.read(self._entry[name], (*self._path, name), self._reader)

    def _check_keys(self) -> None:
        """Report unknown and unsupported keys, and require exactly one of `command` and `url`."""
        suggested: set[str] = set()
        if others := self._entry.keys() - SETTINGS.keys():
            suggested = self._check_other_keys([name for name in self._entry if name in others])
        ways = [name for name in ("command", *ADDRESSES) if name in self._entry]
        if len(ways) > 1:
            found = " and ".join(map(quote, ways))
            self._reader.problem((*self._path, ways[1]), f"found {found}", "only one of them", at_key=True)
        # A misspelt `command` has already been reported, with the right key as a suggestion.
        elif not ways and self._has_image():
            ways = ["command"]
        elif not ways and not suggested.intersection(("command", *ADDRESSES)):
            self._reader.problem(
                self._path, "found neither `command` nor `url`", "one of them", hint=_NO_WAY_HINT, at_key=True
            )
        if not self._foreign and len(ways) == 1:
            self._check_company(ways[0])

    def _has_image(self) -> bool:
        """Whether it runs what an image runs by itself."""
        sandbox = self._entry.get("sandbox")
        return isinstance(sandbox, dict) and "image" in sandbox

    def _check_other_keys(self, names: list[str]) -> set[str]:
        """Check keys that are not ours. Returns the settings that unknown keys may be misspellings of."""
        from mcp_workbench.engine.config.foreign_keys import FOREIGN_KEYS, UNSUPPORTED_KEYS

        suggested: set[str] = set()
        for name in names:
            path = (*self._path, name)
            if (hint := UNSUPPORTED_KEYS.get(name)) is not None:
                if self._entry[name]:
                    self._reader.problem(path, f"{quote(name)} is not supported", hint=hint, at_key=True)
            elif name not in FOREIGN_KEYS:
                self._reader.unknown_key(path, SETTINGS)
                suggested.update(self._reader.problems[-1].suggestions)
        return suggested

    def _check_company(self, way: str) -> None:
        """Report keys that mean nothing for this kind of server. Only in our own files: other clients leave them
        behind."""
        for name in _OF_ADDRESSES if way == "command" else _OF_PROGRAMS:
            if self._entry.get(name):
                hint = f"remove it, or replace {quote(way)}"
                found = f"{quote(name)} has no meaning next to {quote(way)}"
                self._reader.problem((*self._path, name), found, hint=hint, at_key=True)

    def _transport(self, found: dict[str, Any]) -> Transport:
        remote = not self._entry.keys().isdisjoint(ADDRESSES)
        # Gemini CLI distinguishes the two by the key: `url` is SSE there, `httpUrl` streamable HTTP. For `url` both are
        # tried.
        chosen = "http" if "httpUrl" in self._entry else "auto" if remote else "stdio"
        for name in _TRANSPORT_MEMBERS:
            transport = found.get(name)
            if transport is None:
                continue
            if remote == (transport == "stdio") and transport != "auto":
                way = "an address" if remote else "`command`"
                expected = "`http`, `sse` or `auto`" if remote else "`stdio`"
                self._reader.problem((*self._path, name), f"found {quote(transport)} beside {way}", expected)
            elif transport != "auto":
                chosen = transport
        if len(found.keys() & _TRANSPORT_MEMBERS) == 2 and found["transport"] != found["type"]:
            place = (*self._path, "transport")
            self._reader.problem(place, "`transport` and `type` disagree", "only one of them")
        return cast(Transport, chosen)

    def _absolute(self, path: str) -> str:
        if path == "~" or path.startswith(("~/", "~\\")):
            path = os.path.join(self._reader.home(), path[2:])
        return os.path.normpath(os.path.join(self._folder, path))

    def _filters(self, found: dict[str, Any]) -> tuple[str, ...] | None:
        """Combine `toolFilters` with the equivalents of other clients; a tool that was excluded there stays
        excluded."""
        filters: tuple[str, ...] | None = found.get("toolFilters")
        for name in _INCLUDING:
            if filters is None and name in self._entry:
                filters = found.get(name)
        excluded = [each if each.startswith("!") else f"!{each}" for name in _EXCLUDING for each in found.get(name, ())]
        if not excluded or filters == ():
            return filters
        # A list of only exclusions means everything else.
        return (*(filters or ("*",)), *excluded)

    def _keep_secret(self, config: ServerConfig) -> None:
        if not (config.env or config.headers or config.args):
            return
        from mcp_workbench.engine.config.redact import secrets_in, secrets_in_arguments

        references = self._reader.references
        for key, pairs in (("env", config.env), ("headers", config.headers)):
            for name, value in pairs.items():
                if (*self._path, key, name) not in references:
                    self._reader.secrets.update(secrets_in(name, value))
        literal: Sequence[str] = config.args
        if references:
            at = (*self._path, "args")
            literal = ["" if (*at, index) in references else each for index, each in enumerate(literal)]
        self._reader.secrets.update(secrets_in_arguments(literal))

    def _references(self) -> tuple[ReferringValue, ...]:
        found = []
        for path, parts in self._reader.references.items():
            name, *below = path[len(self._path) :]
            if name == "oauth":
                from mcp_workbench.engine.config.oauth_settings import OAuthConfig

                below = [OAuthConfig.SETTINGS[str(below[0])].field]
            field = "url" if name in ADDRESSES else SETTINGS[str(name)].field
            found.append(ReferringValue((field, *below), parts))
        return tuple(found)


def _in_seconds(written: object) -> object:
    is_number = isinstance(written, int | float) and not isinstance(written, bool)
    if is_number and _MAX_FOREIGN_SECONDS < cast(float, written) < _MAX_FOREIGN_MILLISECONDS:
        return cast(float, written) / 1000
    return written


_NO_WAY_HINT = "`command` starts a program, `url` connects to an address"
