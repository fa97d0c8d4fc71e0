"""An entry of `mcpServers`: turned into a `ServerConfig`, or into its problems.

Owns what defines a server: command or address, transport, filters, durations, and the conventions of other clients'
files. Does not know in which file or toolbox it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from mcp_workbench.engine.config import server_keys as keys
from mcp_workbench.engine.config.keys import Key, field_of
from mcp_workbench.engine.config.kinds import MOST_SECONDS
from mcp_workbench.engine.config.model import (
    DEFAULT_CALL_TIMEOUT,
    DEFAULT_IDLE_TIMEOUT,
    DEFAULT_STARTUP_TIMEOUT,
    ReferringValue,
    ServerConfig,
    Share,
    Transport,
    modified_at,
)
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader

T = TypeVar("T")

# Clients that count in seconds (Cline, Roo Code) allow at most an hour; those that count in milliseconds (Gemini CLI,
# Claude Code) write thousands. So in a plain file, which another program wrote, anything larger is milliseconds.
_MOST_FOREIGN_SECONDS = 3_600
_MOST_FOREIGN_MILLISECONDS = MOST_SECONDS * 1000
_ADDRESSES = (keys.URL, keys.SERVER_URL, keys.HTTP_URL)


class WrittenServer:
    """A server as written in the file. `foreign`: the file belongs to another client, whose conventions apply.

    The result depends only on the entry and on the environment of its reader, which no other entry uses: the same entry
    can be read again, later or for another environment.
    """

    __slots__ = ("_entry", "_folder", "_foreign", "_inherit_env", "_name", "_path", "_reader", "_share")

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

    def is_disabled(self) -> bool:
        """Whether the file disables the server; it is then not validated further."""
        return self._read(keys.DISABLED) is True or self._read(keys.ENABLED) is False

    def config(self) -> ServerConfig | None:
        """Return the server with every default filled in, or None if there are problems, which the reader has.

        If only the environment is at fault, the server is returned with what it lacks.
        """
        self._check_keys()
        command = self._read(keys.COMMAND)
        env_files = self._read_env_files()
        self._reader.has_env_file = bool(env_files)
        # Only values passed to the server may contain references: the rest must be known before it is started.
        with self._reader.fetching():
            url = self._read_address()
            args = self._read(keys.ARGS) or ()
            env = self._read(keys.ENV) or {}
            headers = self._read(keys.HEADERS) or {}
        transport = self._read_transport()
        idle_timeout = self._read(keys.IDLE_TIMEOUT)
        if env or headers or args:
            self._keep_secret(env, headers, args)
        share = self._read(keys.SERVER_SHARE) or self._share
        config = ServerConfig(
            name=self._name,
            transport=transport,
            command=command,
            args=args,
            env=env,
            inherit_env=self._read_inherited() if command is not None else (),
            cwd=self._read_folder()
            # A server shared beyond one folder must not depend on which client came first.
            or (self._reader.home() if share in ("user", "everyone") and command is not None else None),
            url=url,
            headers=headers,
            oauth=self._read(keys.OAUTH),
            forward_identity=self._read(keys.FORWARD_IDENTITY),
            token_exchange=self._read(keys.TOKEN_EXCHANGE),
            tool_filters=self._read_filters(),
            rename=self._read(keys.RENAME) or {},
            timeout=self._read_timeout() or DEFAULT_CALL_TIMEOUT,
            startup_timeout=self._read(keys.STARTUP_TIMEOUT) or DEFAULT_STARTUP_TIMEOUT,
            idle_timeout=DEFAULT_IDLE_TIMEOUT if idle_timeout is None else idle_timeout or None,
            stops_in_use=bool(idle_timeout),
            protocol=self._read(keys.PROTOCOL) or "auto",
            share=share,
            ask=self._read(keys.ASK) is not False,
            result_budget=(self._read(keys.RESULT_BUDGET) or 0) if keys.RESULT_BUDGET.name in self._entry else None,
            env_files=env_files,
            env_file_times=tuple(map(modified_at, env_files)),
        )
        if share == "everyone":
            self._refuse_users_credentials(config)
        if self._reader.references:
            config = replace(config, references=self._references())
        problems = self._reader.problems
        if problems and all(problem.of_environment for problem in problems):
            return replace(config, unresolved=tuple(problems))
        return None if problems else config

    def _refuse_users_credentials(self, config: ServerConfig) -> None:
        """All users share one connection, which is ours: the server would be told that each of them is us."""
        for name, value in (
            (keys.FORWARD_IDENTITY.name, config.forward_identity),
            (keys.TOKEN_EXCHANGE.name, config.token_exchange),
        ):
            if value is not None:
                found = f"found `{name}` beside `share`: `everyone`, which has one connection for all users"
                self._reader.problem((*self._path, name), found, hint="remove `share`, so that each user has their own")

    def ignored_keys(self) -> list[str]:
        """Return the non-empty keys that have no effect here, and that their author may rely on."""
        others = [name for name, value in self._entry.items() if value and name not in keys.SERVER_KEYS]
        if not others:
            return []
        from mcp_workbench.engine.config.foreign_keys import IDLE_KEYS

        return [name for name in others if name in IDLE_KEYS]

    def _read(self, key: Key[T]) -> T | None:
        if key.name not in self._entry:
            return None
        return key.kind.read(self._entry[key.name], self._at(key), self._reader)

    def _at(self, key: Key[object]) -> Path:
        return (*self._path, key.name)

    def _check_keys(self) -> None:
        """Report unknown and unsupported keys, and require exactly one of `command` and `url`."""
        suggested: set[str] = set()
        if others := self._entry.keys() - keys.SERVER_KEYS.keys():
            suggested = self._check_other_keys([name for name in self._entry if name in others])
        ways = [key.name for key in (keys.COMMAND, *_ADDRESSES) if key.name in self._entry]
        if len(ways) > 1:
            found = " and ".join(map(quote, ways))
            self._reader.problem((*self._path, ways[1]), f"found {found}", "only one of them", at_key=True)
        # A misspelt `command` has already been reported, with the right key as a suggestion.
        elif not ways and not suggested.intersection(("command", "url", "serverUrl", "httpUrl")):
            self._reader.problem(
                self._path, "found neither `command` nor `url`", "one of them", hint=_NO_WAY_HINT, at_key=True
            )
        if not self._foreign and len(ways) == 1:
            self._check_company(ways[0])

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
                self._reader.unknown_key(path, keys.SERVER_KEYS)
                suggested.update(self._reader.problems[-1].suggestions)
        return suggested

    def _check_company(self, way: str) -> None:
        """Report keys that mean nothing for this kind of server. Only in our own files: other clients leave them
        behind."""
        of_programs = (keys.ARGS, keys.CWD, keys.ENV, keys.SERVER_INHERIT_ENV)
        of_addresses = (keys.HEADERS, keys.OAUTH, keys.FORWARD_IDENTITY, keys.TOKEN_EXCHANGE)
        idle = of_addresses if way == keys.COMMAND.name else of_programs
        for key in idle:
            if self._entry.get(key.name):
                hint = f"remove it, or replace {quote(way)}"
                found = f"{quote(key.name)} has no meaning next to {quote(way)}"
                self._reader.problem(self._at(key), found, hint=hint, at_key=True)

    def _read_inherited(self) -> tuple[str, ...]:
        """The innermost list counts, so that a server can also be given less than the others."""
        own = self._read(keys.SERVER_INHERIT_ENV)
        patterns = self._inherit_env if own is None else own
        self._reader.inherits(patterns)
        return patterns

    def _read_address(self) -> str | None:
        found = [self._read(key) for key in _ADDRESSES if key.name in self._entry]
        return found[0] if found else None

    def _read_transport(self) -> Transport:
        written = [(key, self._read(key)) for key in (keys.TRANSPORT, keys.TYPE) if key.name in self._entry]
        remote = any(key.name in self._entry for key in _ADDRESSES)
        # Gemini CLI distinguishes the two by the key: `url` is SSE there, `httpUrl` streamable HTTP. For `url` both are
        # tried.
        chosen = "http" if keys.HTTP_URL.name in self._entry else "auto" if remote else "stdio"
        for key, transport in written:
            if transport is None:
                continue
            if remote == (transport == "stdio") and transport != "auto":
                way = "an address" if remote else "`command`"
                expected = "`http`, `sse` or `auto`" if remote else "`stdio`"
                self._reader.problem(self._at(key), f"found {quote(transport)} beside {way}", expected)
            elif transport != "auto":
                chosen = transport
        if len(written) == 2 and None not in (written[0][1], written[1][1]) and written[0][1] != written[1][1]:
            self._reader.problem(self._at(keys.TRANSPORT), "`transport` and `type` disagree", "only one of them")
        return cast(Transport, chosen)

    def _read_timeout(self) -> float | None:
        value = self._entry.get(keys.TIMEOUT.name)
        if (
            self._foreign
            and isinstance(value, int | float)
            and not isinstance(value, bool)
            and _MOST_FOREIGN_SECONDS < value < _MOST_FOREIGN_MILLISECONDS
        ):
            return value / 1000
        return self._read(keys.TIMEOUT)

    def _read_folder(self) -> str | None:
        folder = self._read(keys.CWD)
        return None if folder is None else self._absolute(folder)

    def _absolute(self, path: str) -> str:
        if path == "~" or path.startswith(("~/", "~\\")):
            path = os.path.join(self._reader.home(), path[2:])
        return os.path.normpath(os.path.join(self._folder, path))

    def _read_filters(self) -> tuple[str, ...] | None:
        """Combine `toolFilters` with the equivalents of other clients; a tool that was excluded there stays
        excluded."""
        own = self._read(keys.TOOL_FILTERS)
        included = [self._read(key) for key in (keys.INCLUDE_TOOLS, keys.TOOLS) if key.name in self._entry]
        excluded: list[str] = []
        for key in (keys.EXCLUDE_TOOLS, keys.DISABLED_TOOLS):
            excluded += [name if name.startswith("!") else f"!{name}" for name in self._read(key) or ()]
        filters = own if own is not None else included[0] if included else None
        if not excluded or filters == ():
            return filters
        # A list of only exclusions means everything else.
        return (*(filters or ("*",)), *excluded)

    def _keep_secret(self, env: dict[str, str], headers: dict[str, str], args: Sequence[str]) -> None:
        from mcp_workbench.engine.config.redact import secrets_in, secrets_in_arguments

        for key, pairs in ((keys.ENV, env), (keys.HEADERS, headers)):
            for name, value in pairs.items():
                if (*self._at(key), name) not in self._reader.references:
                    self._reader.secrets.update(secrets_in(name, value))
        at = self._at(keys.ARGS)
        literal = ["" if (*at, index) in self._reader.references else argument for index, argument in enumerate(args)]
        self._reader.secrets.update(secrets_in_arguments(literal))

    def _read_env_files(self) -> tuple[str, ...]:
        return tuple(self._absolute(file) for file in self._read(keys.ENV_FILE) or ())

    def _references(self) -> tuple[ReferringValue, ...]:
        found = []
        for path, parts in self._reader.references.items():
            key, *below = path[len(self._path) :]
            if key == keys.OAUTH.name:
                below = [field_of(str(below[0]))]
            elif key in {address.name for address in _ADDRESSES}:
                key = keys.URL.name
            found.append(ReferringValue((key, *below), parts))
        return tuple(found)


_NO_WAY_HINT = "`command` starts a program, `url` connects to an address"
