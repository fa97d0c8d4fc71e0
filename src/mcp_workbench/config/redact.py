"""What must never be printed, and the replacing of it, however it is written (`encodings`).

Owns the judgement which values are secret, and `Redactor`, through which logs pass. Errs on the side of hiding: only
values that cannot be secrets (numbers, booleans, plain paths, very short ones) are let through. Refuses to know where
texts come from or go to.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.config.encodings import SecretFinder

MASK = "***"
# Shorter values occur in ordinary words; hiding them would garble the log and protect nothing.
_SHORTEST = 4

# Servers that are gone, and whose secrets are hidden on.
MOST_RELEASED = 64

_PLAIN_WORDS = frozenset(
    {"true", "false", "none", "null", "debug", "info", "warn", "warning", "error", "production", "development", "test"}
)
_PATH_STARTS = ("/", "~/", "./", "../", "\\", "~\\", ".\\", "..\\")
_PATH_LETTERS = " ./\\:;~@_-"
_SECRET_NAMES = ("key", "token", "secret", "passw", "pwd", "auth", "cred", "cookie", "session", "private", "dsn")
# The bearer token that clients of `serve --http` must show.
TOKEN_VARIABLE = "WORKBENCH_TOKEN"
_PROXIES = tuple(
    spelling for name in ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy") for spelling in (name, name.upper())
)
_SCHEMES = frozenset({"bearer", "basic", "token", "digest", "apikey", "key"})
# How keys begin that services give out.
# From the documentation of the services: OpenAI, Stripe, GitHub, GitLab, Linear, Slack, Notion, AWS, Google; `eyJ` is
# how every JWT begins.
_KEY_STARTS = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "github_pat_", "glpat-", "lin_api_"),
    *("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "ntn_", "secret_", "AKIA", "AIza", "eyJ"),
)
_SHORTEST_KEY = 16
# The same and tokens of ours within a text, what follows the name of a scheme, and a password in an address.
_KEY_IN_TEXT = re.compile(
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, (*_KEY_STARTS, 'wbk_')))})[\w.~+/=-]{{10,}}"
    r"|\b(?i:bearer|basic) +(?=\S*[0-9A-Z=])[\w.~+/=-]{8,}|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)",
    re.ASCII,
)
_SHORTEST_LITERAL = 6
# A shell's command line follows.
_SCRIPT_OPTIONS = ("-c", "-lc", "-ic", "/c", "/C")
_PIECE = r"""(?:[^\s;&|'"]|'[^']*'|"[^"]*")+"""

# What the secret is called, and from where to where in the text it stands.
_Span = tuple[str, int, int]


def secrets_in(name: str, value: str) -> list[str]:
    """The parts of a named value (a variable, an `env` entry, a header) that must not be printed."""
    value = value.strip()
    if len(value) < _SHORTEST:
        return []
    lowered = name.lower()
    if _is_plain(value) and not any(word in lowered for word in _SECRET_NAMES):
        return []
    found = [value]
    scheme, _, credentials = value.partition(" ")
    # A server may log the credentials without their scheme.
    if scheme.lower() in _SCHEMES:
        found.append(credentials.strip())
    # Logs are written line by line: each line of a key file is as secret as the whole.
    if "\n" in value:
        found.extend(line.strip() for line in value.splitlines())
    return [part for part in found if len(part) >= _SHORTEST]


def secrets_fetched(value: str) -> list[str]:
    """The parts that must not be printed of what a reference brought in: a secret by itself, whatever it looks like."""
    value = value.strip()
    lines = (line.strip() for line in value.splitlines()) if "\n" in value else ()
    return [part for part in (value, *lines) if len(part) >= _SHORTEST]


def secrets_in_url(url: str) -> list[str]:
    """Password and query values of an address: many hosted servers take their key that way."""
    address, _, query = url.partition("#")[0].partition("?")
    # Not `urlsplit`, which refuses some addresses: what is wrong with one must not keep its password from being hidden.
    authority = address.partition("://")[2].partition("/")[0]
    password = authority.rpartition("@")[0].partition(":")[2]
    found = [password] if len(password) >= _SHORTEST else []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        found += secrets_in(name, value)
    return found


def secrets_inherited(environ: Mapping[str, str], patterns: Iterable[str]) -> set[str]:
    """What must not be printed of the variables that a server inherits.

    One that is named is treated as `${VAR}` is. A glob lets through what its author did not think of, so of the
    rest only what is called a secret, or is an address with one in it: `["*"]` must not hide every word that some
    variable holds.
    """
    from mcp_workbench.config.environment import server_environment

    named = {pattern for pattern in patterns if "*" not in pattern}
    harmless = server_environment(environ, (), {})
    found: set[str] = set()
    for name, value in server_environment(environ, patterns, {}).items():
        if name in harmless:
            continue
        if name in named or any(word in name.lower() for word in _SECRET_NAMES):
            found.update(secrets_in(name, value))
        elif "://" in value:
            found.update(secrets_in_url(value))
    return found


def secrets_around(environ: Mapping[str, str]) -> list[str]:
    """What must not be printed of the variables that are in use whatever the file says: our token, and proxies."""
    found = secrets_in(TOKEN_VARIABLE, environ.get(TOKEN_VARIABLE, ""))
    for name in _PROXIES:
        if "@" in environ.get(name, ""):
            found += secrets_in_url(environ[name])
    return found


def is_secret_name(name: str) -> bool:
    """Whether something that is called so is likely to be a secret."""
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_NAMES)


def is_literal_secret(name: str, value: str) -> bool:
    """Whether a value is called a secret, or looks like a key that a service gives out. A reference is none."""
    # A path in a variable called `…_KEY` leads to a file with the key, and is none.
    if "${" in value or len(value) < _SHORTEST_LITERAL or value.startswith(("/", "~", "./")):
        return False
    return is_secret_name(name) or _looks_like_key(value) or _has_password(value)


def without_keys(text: str) -> str:
    """The text without what looks like a key, a token or a password, whoever it belongs to."""
    return _KEY_IN_TEXT.sub(MASK, text)


def argument_secrets(arguments: Iterable[str]) -> Iterator[tuple[int, str, int, int]]:
    """The literal secrets among the arguments of a program: which argument, what the secret is called (empty where
    nothing tells), and from where to where in it.

    Read are `--token X`, `--token=X`, `NAME=X` (as `docker -e` and `env` take it), `--header "Name: X"`, the query of
    an address, and all of these in a command line for a shell."""
    option = ""
    for index, word in enumerate(arguments):
        for name, start, end in _in_word(word, option):
            yield index, name, start, end
        option = _option(word)


def secrets_in_arguments(arguments: Sequence[str]) -> list[str]:
    """The parts of arguments that must not be printed."""
    found = []
    for index, _, start, end in argument_secrets(arguments):
        found.append(arguments[index][start:end])
        found += secrets_in_url(found[-1]) if _has_password(found[-1]) else []
    return found


def after_scheme(value: str) -> int:
    """Where in the value of a header the credentials begin."""
    scheme, _, credentials = value.partition(" ")
    return len(value) - len(credentials.lstrip()) if credentials and scheme.lower() in _SCHEMES else 0


def _option(word: str) -> str:
    return word if word in _SCRIPT_OPTIONS or (word.startswith("-") and "=" not in word) else ""


def _in_word(word: str, option: str) -> list[_Span]:
    if not word.startswith("-"):
        return _in_value(word, option)
    name, equals, value = word.partition("=")
    return _moved(_in_value(value, name), len(name) + 1) if equals else []


def _in_value(text: str, option: str) -> list[_Span]:
    # Quotes that a shell would have taken off, in a file that no shell reads.
    if len(text) > 2 and text[0] in "'\"" and text[-1] == text[0]:
        return _moved(_in_value(text[1:-1], option), 1)
    if option == "-H" or "header" in option.lower():
        name, _, value = text.partition(":")
        start = len(text) - len(value.lstrip())
        start += after_scheme(text[start:])
        return [(name.strip(), start, len(text))] if is_literal_secret(name, text[start:]) else []
    name, equals, value = text.partition("=")
    is_script = option in _SCRIPT_OPTIONS
    if not is_script:
        if equals and name.isidentifier() and (found := _in_value(value, name)):
            return _moved(found, len(name) + 1)
        if is_literal_secret(option, text):
            return [(option, 0, len(text))]
    # A text that is one piece already is not taken apart again.
    if is_script or (len(text.split(None, 1)) > 1 and not re.fullmatch(_PIECE, text)):
        return _in_script(text)
    return _in_query(text) if "://" in text and "?" in text else []


def _in_script(text: str) -> list[_Span]:
    found = []
    option = ""
    for piece in re.finditer(_PIECE, text):
        spans = _moved(_in_word(piece[0], option), piece.start())
        # What the shell fills in is no literal.
        found += [span for span in spans if text[span[1]] not in "$`"]
        option = _option(piece[0])
    return found


def _in_query(text: str) -> list[_Span]:
    start = text.index("?") + 1
    found = []
    for pair in text[start:].partition("#")[0].split("&"):
        name, _, value = pair.partition("=")
        if is_literal_secret(name, value):
            found.append((name, start + len(name) + 1, start + len(pair)))
        start += len(pair) + 1
    return found


def _moved(spans: list[_Span], by: int) -> list[_Span]:
    return [(name, start + by, end + by) for name, start, end in spans]


def _looks_like_key(value: str) -> bool:
    return (
        len(value) >= _SHORTEST_KEY
        and value.startswith(_KEY_STARTS)
        and all(letter.isalnum() or letter in "-_." for letter in value)
    )


def _has_password(value: str) -> bool:
    scheme, separator, rest = value.partition("://")
    user, _, password = rest.partition("/")[0].rpartition("@")[0].partition(":")
    return bool(separator and scheme.isidentifier() and user and password)


def _is_plain(value: str) -> bool:
    return value.lower() in _PLAIN_WORDS or not value.strip("0123456789.,:+-") or _is_path(value)


def _is_path(value: str) -> bool:
    # Random base64 may start with a slash too, but the names of such variables tell them.
    if not value.startswith(_PATH_STARTS) and value[1:3] not in (":\\", ":/"):
        return False
    return all(letter.isalnum() or letter in _PATH_LETTERS for letter in value)


class Redactor:
    """Replaces every secret in a text by `***`. Cheap to make: nothing is worked out before the first text."""

    __slots__ = ("_finder", "_has_news", "_passing", "_released", "_secrets", "version")

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secret for secret in secrets if secret)
        # Secrets that are replaced now and then, by whose they are: the newest and those before.
        self._passing: dict[Hashable, tuple[frozenset[str], frozenset[str]]] = {}
        self._released: list[frozenset[str]] = []
        self._finder: SecretFinder | None = None
        self._has_news = True
        # Moves on when other secrets are hidden than before: texts that were looked at have to be looked at again.
        self.version = 0

    def add(self, secrets: Iterable[str]) -> None:
        """Hide these too from now on."""
        both = self._secrets.union(secret for secret in secrets if secret)
        if both != self._secrets:
            self._secrets, self._finder, self._has_news = both, None, True
            self.version += 1

    def replace(self, owner: Hashable, secrets: Iterable[str]) -> None:
        """Hide these from now on, and those before them of the same owner. Older ones are forgotten: tokens that are
        refreshed for months must not fill the memory."""
        newest, before = frozenset(secrets), self._passing.get(owner, (frozenset[str](), frozenset[str]()))
        if newest != before[0]:
            self._passing[owner] = newest, before[0]
            self._finder, self._has_news = None, True
            self.version += 1

    def release(self, owner: Hashable) -> None:
        """The owner is gone. What was said of it last may still be on its way."""
        released = self._passing.pop(owner, None)
        if released is not None:
            self._released = [*self._released, released[0] | released[1]][-MOST_RELEASED:]

    def hides(self, value: str) -> bool:
        """Whether this very value is one of the secrets."""
        return value in self._secrets or any(value in secrets for pair in self._passing.values() for secrets in pair)

    def has_news(self) -> bool:
        """Whether secrets have come since this was asked last."""
        had, self._has_news = self._has_news, False
        return had

    def text(self, text: str) -> str:
        if not text or not (self._secrets or self._passing or self._released):
            return text
        # Several threads write down what has happened, and secrets may come meanwhile.
        finder = self._finder
        if finder is None:
            from mcp_workbench.config.encodings import SecretFinder

            passing = (secrets for pair in tuple(self._passing.values()) for secrets in pair)
            self._finder = finder = SecretFinder(self._secrets.union(*passing, *self._released))
        return finder.replaced(text, MASK)
