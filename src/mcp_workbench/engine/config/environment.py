"""The environment of a server: which variables it gets, and which it seems to lack. Pure.

Servers are not trusted: they get what programs need to run at all, what their entry sets (`env`), and what `inheritEnv`
lets through; never the rest of our environment, which holds the secrets of all other servers. Owns the list of harmless
variables and the matching. Does not know where the environment comes from: ours, or that of a client.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

# docs/reference/configuration.md documents this list; a test compares the two.
HARMLESS_VARIABLES: Final = (
    # user and locations
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*"),
    *("TMPDIR", "TMP", "TEMP", "XDG_*"),
    # the desktop, for servers that open a window or a browser
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
    # proxies, in both spellings
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"),
    # trust: files with certificates, no keys
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "PIP_CERT", "NPM_CONFIG_CAFILE", "npm_config_cafile"),
    *("UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "DENO_CERT", "DENO_TLS_CA_STORE", "CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE"),
    *("HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"),
    # macOS
    "__CF_USER_TEXT_ENCODING",
    # Windows
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS", "PROCESSOR_*", "NUMBER_OF_PROCESSORS"),
    *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432"),
    *("COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMMONPROGRAMW6432", "ALLUSERSPROFILE", "PUBLIC"),
    *("USERPROFILE", "HOMEDRIVE", "HOMEPATH", "USERNAME", "USERDOMAIN", "COMPUTERNAME", "PSMODULEPATH"),
)
# The harmless variables that depend on the terminal or login. docs/guides/sharing.md documents them.
OF_THE_TERMINAL: Final = ("TERM", "XDG_SESSION_*", "XDG_SEAT*", "XDG_VTNR", "XDG_ACTIVATION_TOKEN")
# The workbench's own variables, above all its token. `env` can still set them, for a server that is itself a workbench.
OWN_VARIABLES: Final = ("WORKBENCH_*", "MCP_WORKBENCH_*")
IS_WINDOWS: Final = sys.platform == "win32"

# Variables that shells set for themselves; no server needs them.
_EVERYWHERE: Final = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "HOSTNAME"})
_SHELL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPLIT: Final = re.compile(r"[^a-z0-9]+")
# Shorter names of variables are ordinary words, and shorter words match too much.
_MIN_MENTIONED_LENGTH: Final = 4
_MIN_SECRET_WORD_LENGTH: Final = 3
_MAX_MISSED_VARIABLES: Final = 4
_COMMON_WORDS: Final = frozenset(
    "mcp server servers modelcontextprotocol latest stdio npx uvx npm node bun bunx deno python docker podman run java "
    "bin sh bash src dist build index main mjs cjs jar the and for from http https local cli app api client tool tools "
    "path xdg pip".split()
)
# The variables that configure the programs that start many servers.
_RUNNER_VARIABLES: Final = {
    "npx": ("NPM_CONFIG_*", "npm_config_*"),
    "npm": ("NPM_CONFIG_*", "npm_config_*"),
    "node": ("NODE_OPTIONS", "NODE_PATH"),
    "uvx": ("UV_*",),
    "uv": ("UV_*",),
    "python": ("PYTHONPATH", "PYTHONHOME"),
    "docker": ("DOCKER_*",),
    "podman": ("CONTAINER_*",),
    "java": ("JAVA_*", "JDK_JAVA_OPTIONS"),
    "deno": ("DENO_*",),
}


def server_environment(
    base: Mapping[str, str], inherit: Iterable[str], own: Mapping[str, str], *, windows: bool = IS_WINDOWS
) -> dict[str, str]:
    """Return the environment of a server: the harmless part of `base`, the part that `inherit` names, and its `own`."""
    # Nothing else by default: every server could read whatever a shell has set, tokens included.
    passing = _patterns(HARMLESS_VARIABLES, windows).among(base)
    if inherit:
        passing |= _patterns(tuple(inherit), windows).among(base)
    passing -= _patterns(OWN_VARIABLES, windows).among(passing)
    inherited = {name: value for name, value in base.items() if name in passing}
    if windows:
        # Names are case-insensitive there.
        written = {name.upper() for name in own}
        inherited = {name: value for name, value in inherited.items() if name.upper() not in written}
    return {**inherited, **own}


def beyond_harmless(environment: Mapping[str, str], inherit: Iterable[str], own: Mapping[str, str]) -> dict[str, str]:
    """What a server is given by name: the rest describes this machine, and says nothing about a container."""
    named = _patterns(tuple(inherit), IS_WINDOWS).among(environment)
    others = _patterns((*HARMLESS_VARIABLES, *OWN_VARIABLES), IS_WINDOWS).among(environment) - named
    return {name: value for name, value in environment.items() if name in own or name not in others}


class ComparableEnvironments:
    """The environments of servers without what differs between terminals and logins although nothing depends on it:
    clients whose servers get the same environment can share them. Variables that a server asks for by name count.

    Caches the last environment, because the servers of a client are compared one after the other and nearly all inherit
    the same.
    """

    def __init__(self) -> None:
        self._base: Mapping[str, str] = {}
        self._inherit: tuple[str, ...] | None = None
        self._inherited: dict[str, str] = {}

    def of(self, base: Mapping[str, str], inherit: tuple[str, ...], own: Mapping[str, str]) -> list[tuple[str, str]]:
        # `os.environ` is not a `dict`, and may change at any time.
        if base is not self._base or inherit != self._inherit or type(base) is not dict:
            given = server_environment(base, inherit, {})
            passing = _patterns(OF_THE_TERMINAL, IS_WINDOWS).among(given).difference(inherit)
            self._base, self._inherit = base, inherit
            self._inherited = {name: value for name, value in given.items() if name not in passing}
        inherited = self._inherited
        if IS_WINDOWS:
            written = {name.upper() for name in own}
            inherited = {name: value for name, value in inherited.items() if name.upper() not in written}
        return sorted({**inherited, **own}.items())


def without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the user's own programs, which are not servers: everything except the workbench's
    variables."""
    ours = _patterns(OWN_VARIABLES, IS_WINDOWS).among(environ)
    return {name: value for name, value in environ.items() if name not in ours}


def folder_of_client(environ: Mapping[str, str], variable: str, below_home: str) -> str | None:
    """Return the folder where a client with a different environment keeps files of a kind; None if unknown."""
    chosen, home = environ.get(variable, ""), environ.get("HOME", "")
    if chosen.startswith("/"):
        return chosen
    below_home = "Library/Application Support" if sys.platform == "darwin" else below_home
    return f"{home}/{below_home}" if home.startswith("/") else None


def is_ours(pattern: str) -> bool:
    """Whether a name or glob can only match the workbench's own variables."""
    return bool(_patterns(OWN_VARIABLES, IS_WINDOWS).among((pattern,)))


def missed_variables(
    base: Mapping[str, str], inherit: Iterable[str], own: Mapping[str, str], command_line: Iterable[str], output: str
) -> list[str]:
    """Return variables that are set but not passed on and that a failing server seems to need; the likeliest first.

    First those that it mentioned in its `output`, then those named like the server (`GITHUB_TOKEN` for
    `server-github`), then those that configure its runner. `command_line` begins with the name of the server.
    """
    given = server_environment(base, inherit, own)
    ours = _patterns(OWN_VARIABLES, IS_WINDOWS).among(base)
    withheld = [name for name in base if name not in given and name not in _EVERYWHERE and name not in ours]
    if not withheld:
        return []
    name, *command = command_line
    # Programs often name the variable that they lack in their last output.
    mentioned = set(_SHELL_NAME.findall(output))
    words = {word for text in (name, *command) for word in _own_words(text)}
    runner = _patterns(_RUNNER_VARIABLES.get(_program(command[0]), ()) if command else (), IS_WINDOWS).among(withheld)
    reasons = (
        lambda variable: len(variable) >= _MIN_MENTIONED_LENGTH and variable in mentioned,
        lambda variable: variable.partition("_")[0].lower() in words,
        runner.__contains__,
    )
    ranked = [variable for is_likely in reasons for variable in withheld if is_likely(variable)]
    return list(dict.fromkeys(ranked))[:_MAX_MISSED_VARIABLES]


def advice(
    base: Mapping[str, str], inherit: Sequence[str], own: Mapping[str, str], command_line: Iterable[str], output: str
) -> str | None:
    """Suggest variables to inherit for a server that does not start; None if nothing suggests any."""
    missed = missed_variables(base, inherit, own, command_line, output)
    if not missed:
        return None
    names = " and ".join(filter(None, (", ".join(f"`{name}`" for name in missed[:-1]), f"`{missed[-1]}`")))
    written = ", ".join(f'"{name}"' for name in (*inherit, *missed))
    if len(missed) == 1:
        state, needed = "is set, but not passed on to this server", "if it needs it"
    else:
        state, needed = "are set, but not passed on to this server", "if it needs them"
    return f'{names} {state}; {needed}, add `"inheritEnv": [{written}]` to it'


def _own_words(text: str) -> Iterable[str]:
    """Return the words that identify a server or package, without those that all of them share."""
    # Only the last part of a path, and nothing of `--flag=value`: the rest does not name the server.
    text = text.rstrip("/").rpartition("/")[2] if not text.startswith("-") else ""
    return (
        word
        for word in _SPLIT.split(text.lower())
        if len(word) >= _MIN_SECRET_WORD_LENGTH and word not in _COMMON_WORDS
    )


def _program(command: str) -> str:
    """Reduce `python3.12` and `/usr/bin/npx` to `python` and `npx`."""
    return command.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe").rstrip("0123456789.")


class _Patterns:
    """Names, and globs in which `*` matches anything. Case-insensitive on Windows."""

    __slots__ = ("_globs", "_names", "_prefixes", "_windows")

    def __init__(self, patterns: Sequence[str], windows: bool) -> None:
        self._windows = windows
        folded = [pattern.upper() if windows else pattern for pattern in patterns]
        self._names = frozenset([pattern for pattern in folded if "*" not in pattern])
        # Nearly all globs are prefixes, which need no steps of ours.
        self._prefixes = tuple([pattern[:-1] for pattern in folded if pattern.find("*") == len(pattern) - 1])
        self._globs = [pattern.split("*") for pattern in folded if "*" in pattern[:-1]]

    def among(self, names: Iterable[str]) -> set[str]:
        """Return the names that match. All at once: a call for each variable adds up at every start."""
        folded = [(name, name.upper() if self._windows else name) for name in names]
        found = {name for name, key in folded if key in self._names or key.startswith(self._prefixes)}
        if self._globs:
            found |= {name for name, key in folded if any(_fits(key, parts) for parts in self._globs)}
        return found


# Those of the workbench, and the lists of a few files.
_patterns = lru_cache(maxsize=16)(_Patterns)


def _fits(name: str, parts: list[str]) -> bool:
    """Whether a name begins with the first part, ends with the last, and has the others in between, in order."""
    first, *between, last = parts
    # `a*a` does not match `a`: the two parts may not overlap.
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    position, end = len(first), len(name) - len(last)
    for part in between:
        found = name.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
