"""Which project files the user trusts: path and content, recorded in a folder of the user.

A `workbench-config.json` names programs to start, and the author of a repository decides what is in it; so a file that
is merely found in the current folder is used only after the user has agreed, and a change asks again. There is one
record for each path, so that concurrent writers lose nothing and the folder can be watched. Owns the records. Does not
know which files need trust (`choose`), nor what is in them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct

from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own
from mcp_workbench.errors import ConfigError

# A record holds a path and a hash; anything larger is not a record.
_MAX_TRUST_RECORD_BYTES: Final = 64 * 1024


class TrustVerdict(Enum):
    """The verdict on a file; the value completes a sentence about it."""

    TRUSTED = "is trusted"
    UNKNOWN = "is not trusted yet"
    CHANGED = "has changed since it was trusted"


class TrustRecord(Struct, frozen=True):
    """A file that the user trusts: its path, and the hash of its content."""

    path: str
    sha256: str


def verdict(path: str, content: bytes, environ: Mapping[str, str] = os.environ) -> TrustVerdict:
    """Whether the user of this environment trusts exactly this content at this path."""
    record = _read(record_of(path, environ))
    # The name of the record is a hash of the path; the path in it is checked all the same.
    if record is None or record.path != real_path(path):
        return TrustVerdict.UNKNOWN
    return TrustVerdict.TRUSTED if record.sha256 == _hash(content) else TrustVerdict.CHANGED


def trust(path: str, content: bytes) -> None:
    """Record it as trusted. Raises `ConfigError` if that cannot be written."""
    place = record_of(path)
    if place is None:
        raise ConfigError("there is no folder to store trust records in", hint="set `HOME`")
    from mcp_workbench.engine.own_files import replace_whole

    record = TrustRecord(real_path(path), _hash(content))
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        # Whole: half a record would revoke the trust.
        replace_whole(place, msgspec.json.encode(record))
    except OSError as error:
        raise ConfigError(f"trust cannot be recorded in `{os.path.dirname(place)}`: {error.strerror}") from None


def forget(path: str) -> bool:
    """Revoke the trust. Returns whether it was trusted. Raises `ConfigError` if the record cannot be removed."""
    place = record_of(path)
    if place is None:
        return False
    try:
        os.unlink(place)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(f"the record `{place}` cannot be removed: {error.strerror}") from None
    return True


def records() -> list[TrustRecord]:
    """Return everything that is trusted, by path."""
    where = folder()
    try:
        names = os.listdir(where) if where is not None else []
    except OSError:
        names = []
    found = [_read(os.path.join(where or "", name)) for name in names if name.endswith(".json")]
    return sorted((record for record in found if record is not None), key=lambda record: record.path)


def real_path(path: str) -> str:
    """Return where a file is: its folder without links, and its own name.

    A file that is a link is where the link is. Relative paths in it start there, so a link to a trusted file is not the
    trusted file: it would run what is next to the link.
    """
    where, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(where), name)


def folder(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the folder of the records; None if the user has no home folder."""
    return state_path("trusted", environ)


def record_of(path: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the record for a file; None if the user has no home folder."""
    where = folder(environ)
    return None if where is None else os.path.join(where, f"{_hash(os.fsencode(real_path(path)))}.json")


def _read(place: str | None) -> TrustRecord | None:
    """Read a record. One that is damaged, or that other users could have written, proves nothing."""
    if place is None:
        return None
    try:
        without_following = NONBLOCK | NOFOLLOW
        with open(place, "rb", opener=lambda path, flags: os.open(path, flags | without_following)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or _is_foreign(found):
                return None
            content = file.read(_MAX_TRUST_RECORD_BYTES + 1)
            return msgspec.json.decode(content, type=TrustRecord) if len(content) <= _MAX_TRUST_RECORD_BYTES else None
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


def _is_foreign(found: os.stat_result) -> bool:
    # Others who could write the record could make any file trusted.
    return os.name == "posix" and (not is_own(found) or bool(found.st_mode & 0o022))


def _hash(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
