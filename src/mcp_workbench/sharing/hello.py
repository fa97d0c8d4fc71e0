"""The first line of a connection, as the workbench reads it (`sharing.front.line_protocol` writes it)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct, field

# Environments take some ten kilobytes; the system allows a few megabytes.
MAX_HELLO_BYTES: Final = 8 * 1024 * 1024


class Hello(Struct, frozen=True):
    """Who connects, from where, and with what. The first member is the same in every version."""

    hello: int
    version: str = ""
    pid: int = 0
    # When that process was started, by the monotonic clock.
    started: float = 0.0
    # One of our own commands, instead of a client or as one: see `sharing.front.line_protocol`.
    command: str = ""
    # The arguments of `serve`.
    arguments: tuple[str, ...] = ()
    folder: str = "/"
    environ: dict[str, str] = field(default_factory=dict)
    # The state that an earlier workbench sent in case of its death.
    resume: msgspec.Raw = msgspec.Raw(b"null")


class BadHello(Exception):
    """Why a first line is not a hello."""


def read_hello(line: bytes) -> Hello:
    """Raises `BadHello`."""
    try:
        hello = msgspec.json.decode(line, type=Hello)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        hello = _read_tolerantly(line)
    if not hello.version[:1].isdecimal() or hello.pid <= 0:
        # An idle workbench makes room for another version, and must not do so for arbitrary JSON.
        raise BadHello("its first line names no version and process")
    return hello


def _read_tolerantly(line: bytes) -> Hello:
    """Read variables and paths that are not Unicode: the standard library accepts the lone surrogates in them."""
    import json

    try:
        value = json.loads(line)
        resume = msgspec.Raw(json.dumps(value.pop("resume", None)).encode())
        return msgspec.structs.replace(msgspec.convert(value, Hello), resume=resume)
    except (ValueError, AttributeError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise BadHello(f"its first line cannot be read: {error}") from None
