"""The token of HTTP clients: from the command line, a file or a variable, or else generated and stored.

A generated token stays the same at every start, so that clients can be configured with it. It is in a file that only
the user can read, in the state folder. Owns where the token comes from; does not know how it is checked.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from mcp_workbench.engine.config.redact import TOKEN_VARIABLE
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own
from mcp_workbench.errors import ConfigError

# Anything longer is not a token file.
MAX_TOKEN_FILE_BYTES: Final = 64 * 1024
# 256 bits: impossible to guess.
TOKEN_BYTES: Final = 32
HTTP_TOKEN_FILE: Final = "http-token"
UNPROTECTED: Final = (
    "without a token, every user of this machine, and every program they run, can use your servers as you; "
    "web pages of other origins are still refused"
)


# Called with the properties of a file that a token is read from, and what it is.
OnFile = Callable[[os.stat_result, str], None]


class HttpToken(Struct, frozen=True):
    """The token that clients must present."""

    # None: no token.
    value: str | None
    # Where a generated token is stored.
    path: str | None = None
    # What the user should know about it once we serve: a label and a text.
    remark: tuple[str, str] | None = None


class TokenChoice(Struct, frozen=True):
    """What the command line says about the token."""

    value: str | None = None
    file: str | None = None
    # Serve everyone on this machine without one.
    is_none: bool = False


def chosen_token(choice: TokenChoice, environ: Mapping[str, str], *, is_loopback: bool, on_file: OnFile) -> HttpToken:
    """Return the token that clients must present. Raises `ConfigError`.

    If others can reach us, no token is generated: users who expose a server must decide what protects it.
    """
    if choice.is_none:
        if choice.value is not None or choice.file is not None:
            raise ConfigError("--no-token and a token were both given", hint="keep the token")
        return HttpToken(None, remark=("warning", UNPROTECTED))
    if choice.file is not None:
        return HttpToken(_checked(_read_given(choice.file, on_file)))
    given = environ.get(TOKEN_VARIABLE) if choice.value is None else choice.value
    if given is not None:
        return HttpToken(_checked(given))
    # Loopback is no protection: every user and every program on this machine can connect there.
    return kept_token() if is_loopback else HttpToken(None)


def kept_token() -> HttpToken:
    """Return the generated token, now or from an earlier start. Raises `ConfigError` if its file cannot be trusted."""
    path = token_path()
    if path is None:
        return _for_this_run("there is no home folder to store it in")
    found = _read_stored(path)
    if found is not None:
        return _known(found, path)
    made = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        _write_new(path, made)
    except FileExistsError:
        # Another workbench has just created one.
        found = _read_stored(path)
        return _known(found, path) if found is not None else _for_this_run("its file has been removed")
    except OSError as error:
        return _for_this_run(f"`{os.path.dirname(path)}` cannot be written: {error.strerror}")
    text = f"clients need this token: {made} (stored in {path})"
    return HttpToken(made, path, ("note", text))


def token_path() -> str | None:
    """Return the path of a generated token; None if the user has no home folder."""
    from mcp_workbench.engine.config.state_folder import state_path

    return state_path(HTTP_TOKEN_FILE)


def _known(token: str, path: str) -> HttpToken:
    text = f"clients need the token in {path}; --no-token serves without one"
    return HttpToken(token, path, ("note", text))


def _for_this_run(reason: str) -> HttpToken:
    made = secrets.token_urlsafe(TOKEN_BYTES)
    text = f"clients need this token, valid for this run only: {made}; it cannot be stored: {reason}"
    return HttpToken(made, None, ("note", text))


def _read_stored(path: str) -> str | None:
    # A link could make another file appear as the token, and a FIFO would block the start.
    without_following = NOFOLLOW | NONBLOCK
    try:
        with open(path, encoding="ascii", opener=lambda path, flags: os.open(path, flags | without_following)) as file:
            about = os.fstat(file.fileno())
            # Checks the open file, not the path: it could be replaced in between.
            if not stat.S_ISREG(about.st_mode) or not is_own(about) or about.st_mode & 0o077:
                raise _distrusted(path, "others may have read or written it")
            token = file.read(MAX_TOKEN_FILE_BYTES).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _distrusted(path, error.strerror if isinstance(error, OSError) else "not ASCII") from None
    if not _fits_into_header(token) or len(token) < TOKEN_BYTES:
        raise _distrusted(path, "it does not contain a generated token")
    return token


def _distrusted(path: str, reason: str | None) -> ConfigError:
    return ConfigError(
        f"the stored token `{path}` cannot be used: {reason}",
        hint="delete the file to generate a new token, or provide one with --token-file",
    )


def _write_new(path: str, token: str) -> None:
    """Write it whole or not at all: another process never sees half a token."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    draft = f"{path}.{secrets.token_hex(4)}.new"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600), "w") as file:
            file.write(token + "\n")
        # Unlike a rename, it fails if the file exists.
        os.link(draft, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)


def _read_given(path: str, on_file: OnFile) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            on_file(os.fstat(file.fileno()), f"token file `{path}`")
            # Editors end a file with a line break.
            return file.read(MAX_TOKEN_FILE_BYTES).rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"token file `{path}` cannot be read: {reason}") from None


def _checked(token: str) -> str:
    if not token.strip():
        hint = "remove --token, --token-file and WORKBENCH_TOKEN to have one generated on loopback"
        raise ConfigError("the token is empty", hint=hint)
    if not _fits_into_header(token):
        # A token that a header cannot carry would always be refused, for no visible reason.
        hint = "use ASCII letters, digits and punctuation only; `openssl rand -hex 32` generates one"
        raise ConfigError("the token contains white space or other characters that a header cannot carry", hint=hint)
    return token


def _fits_into_header(token: str) -> bool:
    return bool(token) and all("!" <= character <= "~" for character in token)
