"""What must never be printed, and how it is masked in any encoding (`encodings`).

Owns the decision which values are secret, and `Redactor`, through which logs pass. Errs on the side of hiding: only
values that cannot be secrets (numbers, booleans, plain paths, very short ones) are let through. Does not know where
texts come from or go to.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.engine.config.encodings import SecretFinder

MASK = "***"
# Shorter values occur in ordinary words; hiding them would garble the log and protect nothing.
_MIN_SECRET_LENGTH = 4

# Removed servers whose secrets are still hidden.
MAX_RELEASED_SERVERS = 64

_PLAIN_WORDS = frozenset(
    {"true", "false", "none", "null", "debug", "info", "warn", "warning", "error", "production", "development", "test"}
)
_PATH_STARTS = ("/", "~/", "./", "../", "\\", "~\\", ".\\", "..\\")
_PATH_LETTERS = " ./\\:;~@_-"
_SECRET_NAMES = ("key", "token", "secret", "passw", "pwd", "auth", "cred", "cookie", "session", "private", "dsn")
# The bearer token that clients of `serve --http` must present.
TOKEN_VARIABLE = "WORKBENCH_TOKEN"
_PROXIES = tuple(
    spelling for name in ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy") for spelling in (name, name.upper())
)
_AUTH_SCHEMES = frozenset({"bearer", "basic", "token", "digest", "apikey", "key"})
# Prefixes of keys, from the documentation of the services: OpenAI, Stripe, GitHub, GitLab, Linear, Slack, Notion, AWS,
# Google; every JWT begins with `eyJ`.
_KEY_STARTS = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "github_pat_", "glpat-", "lin_api_"),
    *("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "ntn_", "secret_", "AKIA", "AIza", "eyJ"),
)
_MIN_SECRET_KEY_LENGTH = 16
# The same keys and our own tokens within a text, credentials after the name of a scheme, and a password in a URL.
_KEY_IN_TEXT = (
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, (*_KEY_STARTS, 'wbk_')))})[\w.~+/=-]{{10,}}"
    r"|\b(?i:bearer|basic) +(?=\S*[0-9A-Z=])[\w.~+/=-]{8,}|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"
)
_MIN_SECRET_LITERAL_LENGTH = 6
# Options that are followed by a command line for a shell.
_SCRIPT_OPTIONS = ("-c", "-lc", "-ic", "/c", "/C")
_SHELL_WORD = r"""(?:[^\s;&|'"]|'[^']*'|"[^"]*")+"""

# The name of the secret, and its start and end in the text.
_Span = tuple[str, int, int]


def secrets_in(name: str, value: str) -> list[str]:
    """Return the parts of a named value (a variable, an `env` entry, a header) that must not be printed."""
    value = value.strip()
    if len(value) < _MIN_SECRET_LENGTH:
        return []
    if _is_plain(value) and not is_secret_name(name):
        return []
    found = [value]
    scheme, _, credentials = value.partition(" ")
    # A server may log the credentials without their scheme.
    if scheme.lower() in _AUTH_SCHEMES:
        found.append(credentials.strip())
    # Logs are written line by line: each line of a key file is as secret as the whole.
    if "\n" in value:
        found.extend(line.strip() for line in value.splitlines())
    return [part for part in found if len(part) >= _MIN_SECRET_LENGTH]


def secrets_fetched(value: str) -> list[str]:
    """Return the parts of a fetched value that must not be printed: it is a secret, whatever it looks like."""
    value = value.strip()
    lines = (line.strip() for line in value.splitlines()) if "\n" in value else ()
    return [part for part in (value, *lines) if len(part) >= _MIN_SECRET_LENGTH]


def secrets_in_url(url: str) -> list[str]:
    """Return password and query values of a URL: many hosted servers accept their key that way."""
    address, _, query = url.partition("#")[0].partition("?")
    # Not `urlsplit`, which refuses some URLs: a malformed URL must not keep its password from being hidden.
    authority = address.partition("://")[2].partition("/")[0]
    password = authority.rpartition("@")[0].partition(":")[2]
    found = [password] if len(password) >= _MIN_SECRET_LENGTH else []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        found += secrets_in(name, value)
    return found


def secrets_inherited(environ: Mapping[str, str], patterns: Iterable[str]) -> set[str]:
    """Return what must not be printed of the variables that a server inherits.

    Named variables are treated like `${VAR}`. A glob also matches variables that its author did not think of, so of
    those only values with a secret name, or URLs with a secret in them, are hidden: `["*"]` must not hide every word
    that some variable contains.
    """
    from mcp_workbench.engine.config.environment import server_environment

    named = {pattern for pattern in patterns if "*" not in pattern}
    harmless = server_environment(environ, (), {})
    found: set[str] = set()
    for name, value in server_environment(environ, patterns, {}).items():
        if name in harmless:
            continue
        if name in named or is_secret_name(name):
            found.update(secrets_in(name, value))
        elif "://" in value:
            found.update(secrets_in_url(value))
    return found


def secrets_around(environ: Mapping[str, str]) -> list[str]:
    """Return what must not be printed of the variables that are always in use: our token, and proxies."""
    found = secrets_in(TOKEN_VARIABLE, environ.get(TOKEN_VARIABLE, ""))
    for name in _PROXIES:
        if "@" in environ.get(name, ""):
            found += secrets_in_url(environ[name])
    return found


def is_secret_name(name: str) -> bool:
    """Whether something with this name is likely to be a secret."""
    lowered = name.lower()
    # A loop, because a generator enters a function for each word, and every argument of every server is looked at.
    for word in _SECRET_NAMES:  # noqa: SIM110
        if word in lowered:
            return True
    return False


def is_literal_secret(name: str, value: str) -> bool:
    """Whether a value has a secret name, or looks like a service's key. A reference is not a literal secret."""
    # A path in a variable called `…_KEY` names a file with the key, and is not the key.
    if "${" in value or len(value) < _MIN_SECRET_LITERAL_LENGTH or value.startswith(("/", "~", "./")):
        return False
    return is_secret_name(name) or _looks_like_key(value) or _has_password(value)


def without_keys(text: str) -> str:
    """Mask everything in the text that looks like a key, a token or a password, known or not."""
    # Compiled when it is first needed (`re` caches it): that takes a millisecond, and start-up does not need it.
    return re.sub(_KEY_IN_TEXT, MASK, text, flags=re.ASCII)


def argument_secrets(arguments: Iterable[str]) -> Iterator[tuple[int, str, int, int]]:
    """Return the literal secrets among the arguments of a program: index of the argument, name of the secret (empty if
    unknown), and its start and end.

    Recognises `--token X`, `--token=X`, `NAME=X` (as for `docker -e` and `env`), `--header "Name: X"`, the query of a
    URL, and all of these in a command line for a shell."""
    option = ""
    for index, word in enumerate(arguments):
        for name, start, end in _in_word(word, option):
            yield index, name, start, end
        option = _option(word)


def secrets_in_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the parts of arguments that must not be printed."""
    found = []
    for index, _, start, end in argument_secrets(arguments):
        found.append(arguments[index][start:end])
        found += secrets_in_url(found[-1]) if _has_password(found[-1]) else []
    return found


def after_scheme(value: str) -> int:
    """Return where the credentials begin in the value of a header."""
    scheme, _, credentials = value.partition(" ")
    return len(value) - len(credentials.lstrip()) if credentials and scheme.lower() in _AUTH_SCHEMES else 0


def _option(word: str) -> str:
    return word if word in _SCRIPT_OPTIONS or (word.startswith("-") and "=" not in word) else ""


def _in_word(word: str, option: str) -> list[_Span]:
    if not word.startswith("-"):
        return _in_value(word, option)
    name, equals, value = word.partition("=")
    return _moved(_in_value(value, name), len(name) + 1) if equals else []


def _in_value(text: str, option: str) -> list[_Span]:
    # Quotes that a shell would have removed, in a file that no shell reads.
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
    # A text that is already a single piece is not split again.
    if is_script or (len(text.split(None, 1)) > 1 and not re.fullmatch(_SHELL_WORD, text)):
        return _in_script(text)
    return _in_query(text) if "://" in text and "?" in text else []


def _in_script(text: str) -> list[_Span]:
    found = []
    option = ""
    for piece in re.finditer(_SHELL_WORD, text):
        spans = _moved(_in_word(piece[0], option), piece.start())
        # What the shell fills in is not a literal.
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
        len(value) >= _MIN_SECRET_KEY_LENGTH
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
    # Random base64 may start with a slash too, but the names of such variables reveal it.
    if not value.startswith(_PATH_STARTS) and value[1:3] not in (":\\", ":/"):
        return False
    return all(letter.isalnum() or letter in _PATH_LETTERS for letter in value)


class Redactor:
    """Replaces every secret in a text by `***`. Cheap to create: nothing is computed before the first text."""

    __slots__ = ("_finder", "_has_news", "_passing", "_released", "_secrets", "version")

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secret for secret in secrets if secret)
        # Secrets that change over time, by owner: the newest and the previous ones.
        self._passing: dict[Hashable, tuple[frozenset[str], frozenset[str]]] = {}
        self._released: list[frozenset[str]] = []
        self._finder: SecretFinder | None = None
        self._has_news = True
        # Incremented when the set of secrets changes: texts that were redacted before must be redacted again.
        self.version = 0

    def add(self, secrets: Iterable[str]) -> None:
        """Also hide these from now on."""
        both = self._secrets.union(secret for secret in secrets if secret)
        if both != self._secrets:
            self._secrets, self._finder, self._has_news = both, None, True
            self.version += 1

    def replace(self, owner: Hashable, secrets: Iterable[str]) -> None:
        """Hide these from now on, along with the owner's previous ones. Older ones are dropped: tokens that are
        refreshed for months must not fill the memory."""
        newest, before = frozenset(secrets), self._passing.get(owner, (frozenset[str](), frozenset[str]()))
        if newest != before[0]:
            self._passing[owner] = newest, before[0]
            self._finder, self._has_news = None, True
            self.version += 1

    def release(self, owner: Hashable) -> None:
        """Keep hiding the secrets of an owner that is gone, because its last messages may still be on their way."""
        released = self._passing.pop(owner, None)
        if released is not None:
            self._released = [*self._released, released[0] | released[1]][-MAX_RELEASED_SERVERS:]

    def hides(self, value: str) -> bool:
        """Whether exactly this value is one of the secrets."""
        return value in self._secrets or any(value in secrets for pair in self._passing.values() for secrets in pair)

    def known(self, *, without: object = None) -> frozenset[str]:
        """All secrets, but for those of an owner."""
        passing = (pair for owner, pair in self._passing.items() if owner != without)
        return self._secrets.union(*(secrets for pair in passing for secrets in pair), *self._released)

    def has_news(self) -> bool:
        """Whether secrets have been added since the last call."""
        had, self._has_news = self._has_news, False
        return had

    def text(self, text: str) -> str:
        if not text or not (self._secrets or self._passing or self._released):
            return text
        # Several threads redact texts, and secrets may be added at the same time.
        finder = self._finder
        if finder is None:
            from mcp_workbench.engine.config.encodings import SecretFinder

            passing = (secrets for pair in tuple(self._passing.values()) for secrets in pair)
            self._finder = finder = SecretFinder(self._secrets.union(*passing, *self._released))
        return finder.replaced(text, MASK)
