"""Translation of a server between a client's format and ours.

Owns the differences: names of members, arrays as commands, units of time, variables, and what has no counterpart here,
which is always reported and never dropped silently. The same rules apply to all clients; a row of `DIALECTS` has the
deviations of one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeGuard

from msgspec import Struct

from mcp_workbench.setup.clients.foreign_text import (
    Piece,
    Verbatim,
    is_variable_name,
    joined,
    literal,
    reference_to,
    variable_name,
)

Entry = dict[str, Any]
_ENV: Final = (r"\$\{env:([A-Za-z_]\w*)\}", r"${\1}")
_SHELL: Final = (r"\$(?!\{)([A-Za-z_]\w*)", r"${\1}")


class Dialect(Struct, frozen=True):
    """How one client deviates."""

    # How variables are written: a pattern and its replacement; None if there are no variables.
    variables: tuple[tuple[str, str], ...] | None = (_ENV,)
    milliseconds: bool = False
    # The meaning of `url` without a `type`.
    default_transport: str = ""
    # Members that our own entry has in this client's file.
    extra: Mapping[str, Any] = {}
    command_is_list: bool = False
    command: str = "command"
    env: str = "env"
    # The member with the names of the client's variables that a server gets; "" if `env` refers to them.
    passed_on: str = ""


DIALECTS: Final[dict[str, Dialect]] = {
    "standard": Dialect(),
    "standard-in-milliseconds": Dialect(milliseconds=True),
    "windsurf": Dialect(),
    "vscode": Dialect(extra={"type": "stdio"}),
    "zed": Dialect(variables=None),
    "cline": Dialect(variables=None, default_transport="sse", extra={"type": "stdio"}),
    "continue": Dialect(variables=((r"\$\{\{\s*secrets\.([A-Za-z_]\w*)\s*\}\}", r"${\1}"),)),
    "gemini": Dialect(variables=(_ENV, _SHELL, (r"%([A-Za-z_]\w*)%", r"${\1}")), milliseconds=True),
    "codex": Dialect(variables=None, passed_on="env_vars"),
    "goose": Dialect(
        variables=(_SHELL,), extra={"type": "stdio", "enabled": True, "timeout": 300}, command="cmd", env="envs"
    ),
    "opencode": Dialect(
        variables=((r"\{env:([A-Za-z_]\w*)\}", r"${\1}"), (r"\{file:([^{}]+)\}", r"${file:\1}")),
        milliseconds=True,
        extra={"type": "local"},
        command_is_list=True,
        env="environment",
    ),
    "warp": Dialect(variables=(_ENV, (r"\{\{\s*([A-Za-z_]\w*)\s*\}\}", r"${\1}"))),
    "copilot": Dialect(extra={"type": "local", "tools": ["*"]}),
}

# Other clients' names for the same, in order of precedence.
_COMMAND: Final = ("command", "cmd")
_ENVIRONMENT: Final = ("env", "environment", "envs")
_CWD: Final = ("cwd", "working_directory")
_ADDRESS: Final = ("url", "httpUrl", "serverUrl", "uri")
_HEADERS_MEMBERS: Final = ("headers", "http_headers")
_TYPE: Final = ("type", "transport", "transportType")
_INCLUDED: Final = ("includeTools", "enabled_tools", "available_tools", "tools")
_EXCLUDED: Final = ("excludeTools", "disabledTools", "disabled_tools")
_CLIENT_TRANSPORTS: Final = {"sse": "sse", "http": "http", "streamable-http": "http", "streamableHttp": "http"}
_TRANSPORTS_HERE: Final = {**_CLIENT_TRANSPORTS, "streamable_http": "http"}
# Kinds of entries that are part of the client itself.
_BUILT_IN: Final = ("builtin", "platform", "frontend", "inline_python")
# Programs that fetch or find another program and start it, their subcommands, and their options with a value.
_WRAPPING_RUNNERS: Final = frozenset({"uvx", "uv", "pipx", "npx", "bunx", "pnpm", "env", "cmd"})
_RUNNER_WORDS: Final = frozenset({"tool", "run", "x", "dlx", "exec", "/c", "/C"})
_RUNNER_VALUES: Final = frozenset({"--from", "--with", "--python", "-p", "--directory", "--project", "--index-url"})
# Members without a counterpart here: what to do instead.
_WITHOUT_COUNTERPART: Final = {
    "headersHelper": "use `${cmd:…}` in `headers`",
    "http_headers_helper": "use `${cmd:…}` in `headers`",
    "authProviderType": "sign in with `mcp-workbench auth login`",
    "tcp": "WebSocket servers cannot be reached",
    "socket": "servers on a Unix socket cannot be reached",
}
_OAUTH_MEMBERS: Final = {
    "clientId": ("clientId", "client_id", "CLIENT_ID"),
    "clientSecret": ("clientSecret", "client_secret", "CLIENT_SECRET"),
    "callbackPort": ("callbackPort",),
}
_MAX_FOREIGN_TIMEOUT: Final = 3_600
# A path that is neither absolute nor begins with a variable or `~`.
_RELATIVE: Final = re.compile(r"(?![/\\$~%{]|[A-Za-z]:).*[/\\]")
_ASKED: Final = r"\$\{(?:input|command|config):[^}]+\}"
# What most clients understand and is written like ours. A default may contain variables, but nothing deeper.
_USUAL: Final = r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-(?:[^${}]|\$(?!\{)|\$\{[A-Za-z_][A-Za-z0-9_]*\})*)?\}"
_OURS_ALONE: Final = re.compile(r"\$\{(cmd:|file:|keyring:)")
_EDITOR: Final = {"${userHome}": "${HOME}", "${workspaceFolder}": ".", "${workspaceRoot}": ".", "${pathSeparator}": "/"}
_PROJECT_FOLDERS: Final = tuple(theirs for theirs, ours in _EDITOR.items() if ours == ".")


class Translated(Struct):
    """A server in our format; None if it is not a server. `remarks` report what was not carried over, and what to
    do."""

    entry: Entry | None
    remarks: list[str]


def translated(written: Mapping[str, Any], dialect_name: str, *, is_of_project: bool = False) -> Translated:
    """Translate a client's entry to our format. `is_of_project`: our configuration is in the folder of the project."""
    return _Translation(dict(written), DIALECTS[dialect_name], is_of_project=is_of_project).result()


def own_entry(
    dialect_name: str, name: str, command: Sequence[str], env: Mapping[str, str], passed_on: Sequence[str] = ()
) -> Entry:
    """Return the entry for the workbench itself in this client's format. `passed_on`: variables that we get only if the
    entry names them."""
    dialect = DIALECTS[dialect_name]
    if not dialect.passed_on:
        env = {**env, **{variable: f"${{{variable}}}" for variable in passed_on}}
    program, *arguments = command
    # `type` first, as these clients write it themselves.
    entry: Entry = {key: value for key, value in dialect.extra.items() if key == "type"}
    if dialect_name == "goose":
        entry["name"] = name
    if dialect.command_is_list:
        entry["command"] = list(command)
    else:
        entry |= {dialect.command: program, "args": arguments}
    if env or dialect_name == "goose":
        entry[dialect.env] = dict(env)
    if dialect.passed_on and passed_on:
        entry[dialect.passed_on] = list(passed_on)
    return entry | {key: value for key, value in dialect.extra.items() if key != "type"}


def is_own(entry: Mapping[str, Any]) -> bool:
    """Whether a server, in our format, is the workbench itself and not one of its demo servers.

    A folder of that name, or a server that gets it as an argument, is something else.
    """
    words = [str(entry.get("command", "")), *map(str, entry.get("args", ()))]
    for index, word in enumerate(words):
        after = words[index + 1 : index + 2]
        if word == "mcp_workbench" and words[index - 1] == "-m":
            return after != ["demo"]
        if _names_workbench(word) and (index == 0 or after == ["serve"] or _is_started_program(words, index)):
            return after != ["demo"]
    return False


def _names_workbench(word: str) -> bool:
    name = word.replace("\\", "/").rpartition("/")[2]
    return name.removesuffix(".exe").partition("@")[0].partition("==")[0] == "mcp-workbench"


def _is_started_program(words: list[str], index: int) -> bool:
    """Whether the word is the program that a runner (`uvx`, `pipx run`, `cmd /c`) starts."""
    runner = words[0].replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
    if runner not in _WRAPPING_RUNNERS or "/" in words[index]:
        return False
    before = iter(words[1:index])
    return all(
        (word in _RUNNER_VALUES and next(before, "") is not None) or word.startswith("-") or word in _RUNNER_WORDS
        for word in before
    )


class _Translation:
    def __init__(self, written: Entry, dialect: Dialect, *, is_of_project: bool) -> None:
        nested = written.get("transport")
        if isinstance(nested, dict):
            # Cline's command nests what belongs to the transport one level deeper.
            written = {**{key: value for key, value in written.items() if key != "transport"}, **nested}
        self._written = written
        self._dialect = dialect
        self._is_of_project = is_of_project
        self._remarks: list[str] = []

    def result(self) -> Translated:
        kind = self._first(_TYPE)
        if kind in _BUILT_IN:
            return Translated(None, [f"is part of the client (`{kind}`)"])
        entry: Entry = {}
        command, address = self._first(_COMMAND), self._first(_ADDRESS)
        if command:
            self._program(entry, command)
            if address:
                self._remarks.append("has a command and an address: the command is taken, the address is not")
        elif isinstance(address, str) and address:
            self._address(entry, address, kind)
        else:
            why = (
                "comes from an extension of the client" if "settings" in self._written else "has no command or address"
            )
            return Translated(None, [f"{why}, so it cannot be started here"])
        self._both(entry)
        for key, instead in _WITHOUT_COUNTERPART.items():
            if self._written.get(key):
                self._remarks.append(f"`{key}` is not carried over: {instead}")
        return Translated(entry, list(dict.fromkeys(self._remarks)))

    def _program(self, entry: Entry, command: object) -> None:
        words = [str(word) for word in command] if isinstance(command, list) else [str(command)]
        arguments = self._written.get("args")
        words += [str(word) for word in arguments] if isinstance(arguments, list) else []
        entry["command"] = self._text(words[0])
        if len(words) > 1:
            entry["args"] = [self._text(word) for word in words[1:]]
        env = self._mapping(_ENVIRONMENT)
        for name in self._names("env_keys"):
            if not is_variable_name(name):
                self._remarks.append(f"`{name}` is not carried over: no variable can be called so")
                continue
            env[name] = f"${{{name}}}"
            self._remarks.append(f"`{name}` is in the client's own keyring: set the variable, or store it with "
                                 f"`mcp-workbench secret set {name}` and write `${{keyring:{name}}}`")  # fmt: skip
        if env:
            entry["env"] = env
        if inherited := self._names("env_vars"):
            entry["inheritEnv"] = inherited
        folder = self._first(_CWD)
        if isinstance(folder, str) and folder not in ("", *_PROJECT_FOLDERS):
            self._path(entry, "cwd", folder)
        # Without `cwd`, a program starts in the client's folder, which is the project if the file is of the project.
        elif folder and not self._is_of_project:
            self._remarks.append(f"`cwd` is not carried over: only the editor knows `{folder}`; the server starts in "
                                 "the client's folder")  # fmt: skip
        elif not folder and not self._is_of_project and _RELATIVE.match(words[0]):
            self._remarks.append(
                f"`{words[0]}` depends on the folder that the client starts in: write an absolute path"
            )

    def _address(self, entry: Entry, address: str, kind: object) -> None:
        if not address.startswith(("http://", "https://", "$", "{")):
            self._remarks.append(f"`{address.partition(':')[0]}:` addresses cannot be reached")
        entry["url"] = self._text(address)
        if isinstance(kind, str) and kind in _TRANSPORTS_HERE:
            entry["type"] = _TRANSPORTS_HERE[kind]
        elif "httpUrl" in self._written:
            entry["type"] = "http"
        # Cline treats an address without a type as SSE.
        elif kind is None and self._dialect.default_transport:
            entry["type"] = self._dialect.default_transport
        elif kind == "ws":
            self._remarks.append("WebSocket servers cannot be reached")
        headers = self._mapping(_HEADERS_MEMBERS)
        options = self._written.get("requestOptions")
        if isinstance(options, dict) and isinstance(options.get("headers"), dict):
            headers |= {str(name): self._text(str(value)) for name, value in options["headers"].items()}
        named = self._written.get("env_http_headers")
        if isinstance(named, dict):
            for header, variable in named.items():
                self._header(headers, str(header), [], str(variable))
        if isinstance(variable := self._written.get("bearer_token_env_var"), str):
            self._header(headers, "Authorization", ["Bearer "], variable)
        # Continue's shorthand for a bearer token.
        if isinstance(key := self._written.get("apiKey"), str):
            headers["Authorization"] = f"Bearer {self._text(key)}"
        if headers:
            entry["headers"] = headers
        # Cursor calls it `auth`, with names as in an environment.
        oauth = self._first(("oauth", "auth"))
        if isinstance(oauth, dict):
            self._oauth(entry, oauth)

    def _header(self, headers: Entry, name: str, before: list[Piece], variable: str) -> None:
        reference = reference_to(variable)
        if reference is None:
            self._remarks.append(f"the header `{name}` is not carried over: no variable is called `{variable}`")
        else:
            headers[name] = joined([*before, reference])

    def _oauth(self, entry: Entry, oauth: Mapping[str, Any]) -> None:
        kept: Entry = {}
        for ours, theirs in _OAUTH_MEMBERS.items():
            value = next((oauth[key] for key in theirs if oauth.get(key)), None)
            if value is not None:
                kept[ours] = self._text(value) if isinstance(value, str) else value
        scopes = oauth.get("scopes")
        if isinstance(scopes, str | list) and scopes:
            kept["scopes"] = [self._text(str(one)) for one in (scopes.split() if isinstance(scopes, str) else scopes)]
        elif scopes:
            self._remarks.append("`scopes` is not carried over: it is neither a text nor a list")
        if kept:
            entry["oauth"] = kept

    def _both(self, entry: Entry) -> None:
        if isinstance(file := self._written.get("envFile"), str):
            self._path(entry, "envFile", file)
        timeout = self._written.get("timeout", self._written.get("tool_timeout_sec"))
        if _is_positive(timeout):
            # Clients that count in seconds allow at most an hour, so larger values are milliseconds in any file.
            is_thousandth = self._dialect.milliseconds or timeout > _MAX_FOREIGN_TIMEOUT
            entry["timeout"] = timeout / 1000 if is_thousandth else timeout
        if _is_positive(seconds := self._written.get("startup_timeout_sec")):
            entry["startupTimeout"] = seconds
        elif _is_positive(milliseconds := self._written.get("startup_timeout_ms")):
            entry["startupTimeout"] = milliseconds / 1000
        if self._written.get("disabled") is True or self._written.get("enabled") is False:
            entry["disabled"] = True
        included = next((names for key in _INCLUDED if (names := self._names(key))), [])
        excluded = [f"!{name}" for key in _EXCLUDED for name in self._names(key)]
        if filters := ([] if included == ["*"] else included) + excluded:
            entry["toolFilters"] = filters if included not in ([], ["*"]) else ["*", *excluded]

    def _path(self, entry: Entry, key: str, path: str) -> None:
        """Our paths are relative to the configuration, which is not the project unless the file is there."""
        theirs = next((folder for folder in _PROJECT_FOLDERS if folder in path), None)
        if theirs is None:
            entry[key] = self._text(path)
        elif self._is_of_project and self._dialect.variables is not None:
            entry[key] = self._text(path.replace(theirs, "."))
        else:
            self._remarks.append(
                f"`{key}` is not carried over: only the editor knows `{theirs}`; write `{key}` as an absolute path"
            )

    def _first(self, keys: Sequence[str]) -> Any:
        return next((self._written[key] for key in keys if self._written.get(key) is not None), None)

    def _names(self, key: str) -> list[str]:
        values = self._written.get(key)
        if not isinstance(values, list):
            return []
        named = (value["name"] if isinstance(value, dict) and "name" in value else value for value in values)
        return [literal(str(name)) for name in named]

    def _mapping(self, keys: Sequence[str]) -> Entry:
        values = self._first(keys)
        if not isinstance(values, dict):
            return {}
        return {str(name): self._value(value) for name, value in values.items() if value is not None}

    def _value(self, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        return self._text(str(value))

    def _text(self, text: str) -> str:
        """Translate the client's variables to ours, and keep everything else as literal text: what is a reference here
        may not be one there."""
        if self._dialect.variables is None:
            return literal(text)
        pieces: list[Piece] = []
        end = 0
        for found in _variables_of(self._dialect.variables).finditer(text):
            pieces += [text[end : found.start()], self._variable(found)]
            end = found.end()
        pieces.append(text[end:])
        for kind in _OURS_ALONE.findall("".join(piece for piece in pieces if isinstance(piece, str))):
            self._remarks.append(f"`${{{kind}…}}` means nothing to the client, so it is kept as text")
        return joined(pieces)

    def _variable(self, found: re.Match[str]) -> Piece:
        assert self._dialect.variables is not None and found.lastgroup is not None
        theirs = found[0]
        if (ours := _EDITOR.get(theirs)) is not None:
            if ours == ".":
                self._remarks.append(
                    f"`{theirs}` is known only to the editor, so `.`, the client's folder, is used instead"
                )
            return Verbatim(ours) if ours.startswith("$") else ours
        if found.lastgroup == "asked":
            return Verbatim(self._asked_for(theirs))
        if found.lastgroup == "usual":
            return Verbatim(theirs)
        pattern, replacement = self._dialect.variables[int(found.lastgroup[1:])]
        return Verbatim(re.sub(pattern, replacement, theirs))

    def _asked_for(self, theirs: str) -> str:
        variable = variable_name(theirs[2:-1].partition(":")[2]) or "VALUE"
        self._remarks.append(f"`{theirs}` is asked for by the editor: set the variable `{variable}`")
        return f"${{{variable}}}"


@lru_cache(maxsize=len(DIALECTS))
def _variables_of(patterns: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """Return the pattern for variables of a dialect; the name of the group tells which kind."""
    own = [f"(?P<_{number}>{pattern})" for number, (pattern, _) in enumerate(patterns)]
    return re.compile("|".join([*own, rf"(?P<asked>{_ASKED})", rf"(?P<usual>{_USUAL})"]))


def _is_positive(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
