"""Named keys: tokens that we issue, each to a person or one of their agents.

One file each, in a folder that only its owner can read: creating and revoking are atomic in the file system, so
concurrent commands lose nothing, and a partial key is never seen. A file contains a hash of the token, never the token;
for 256 random bits a plain SHA-256 is enough, since they cannot be guessed. Knows nothing about how a token reaches us.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, Protocol

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL
from mcp_workbench.errors import WorkbenchError

log = logging.getLogger(__name__)

FOLDER_NAME: Final = "keys"
# Scanners for leaked secrets look for a prefix like this.
TOKEN_PREFIX: Final = "wbk_"
TOKEN_BYTES: Final = 32
# A record is some hundred bytes; anything larger is another file.
MAX_KEY_RECORD_BYTES: Final = 64 * 1024
# All are read when one of them changes. A larger team has an identity provider.
MAX_NAMED_KEYS: Final = 1000
# Revoked keys that are remembered in a cluster; beyond this, the oldest are forgotten.
MAX_REVOKED_KEYS: Final = 5000
# Principals that are not keys: a key must not be taken for one of them.
RESERVED: Final = frozenset(("default", "anonymous", LOCAL_PRINCIPAL, "token"))
USER_KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# If keys could not be read, for example because no more files could be opened, requests with a key try again, at most
# this often.
KEYS_RETRY_INTERVAL: Final = 1.0
# Within the folder, the hashes of revoked keys, each a file. Made by the first instance of a cluster: another machine
# may still have a key that was revoked here.
REVOKED_FOLDER: Final = "revoked"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_KEY_FILE_SUFFIX: Final = ".json"
# The file is gone, a link, or not ours: trying again will not help. Any other error reveals nothing about the key.
_LASTING_ERRORS: Final = frozenset(
    (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOTDIR, errno.EISDIR)
)


# Inode and modification time, which identify a file.
FileIdentity = tuple[int, int]


class KeyProblem(WorkbenchError):
    """Keys can be neither read nor written, or this one cannot be created."""


class KeyRecord(Struct, frozen=True, kw_only=True):
    name: str
    # SHA-256 of the token, in hexadecimal.
    sha256: str
    # Seconds since 1970.
    created: float
    expires: float | None = None
    # Globs of the toolboxes that it is limited to; None: all.
    toolboxes: tuple[str, ...] | None = None

    def has_expired(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires


def folder() -> str | None:
    """Where keys are stored; None if the user has no home."""
    return state_path(FOLDER_NAME)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class KeyFolder:
    def __init__(self, path: str) -> None:
        self.path = path

    def create(self, name: str, *, toolboxes: tuple[str, ...] | None = None, expires: float | None = None) -> str:
        """Create a key and return its token, which is not stored. Raises `KeyProblem`."""
        if not USER_KEY_NAME.fullmatch(name) or name.lower() in RESERVED:
            raise KeyProblem(
                f"`{name}` cannot be the name of a key",
                hint="use letters, digits, `.`, `_` and `-`, and none of " + ", ".join(sorted(RESERVED)),
            )
        if len(self.records()) >= MAX_NAMED_KEYS:
            raise KeyProblem(
                f"there are {MAX_NAMED_KEYS} keys already", hint="revoke some with mcp-workbench team key revoke"
            )
        token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        record = KeyRecord(name=name, sha256=digest(token), created=time.time(), expires=expires, toolboxes=toolboxes)
        try:
            self._write(record)
        except FileExistsError:
            raise KeyProblem(
                f"a key named `{name}` already exists", hint=f"revoke it first: mcp-workbench team key revoke {name}"
            ) from None
        except OSError as error:
            raise KeyProblem(
                f"`{self.path}` cannot be written: {error.strerror}", hint="check its permissions"
            ) from None
        return token

    def revoke(self, name: str) -> bool:
        """Revoke a key. Returns whether there was one. Raises `KeyProblem`."""
        if not USER_KEY_NAME.fullmatch(name):
            return False
        try:
            if os.path.isdir(self._revoked_folder):
                # First: if we are killed in between, the next instance here removes the key.
                with contextlib.suppress(FileNotFoundError, MsgspecError), open(self._file(name), "rb") as file:
                    self.note_revoked(decode(file.read(MAX_KEY_RECORD_BYTES), type=KeyRecord).sha256)
            os.unlink(self._file(name))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise KeyProblem(
                f"`{self.path}` cannot be written: {error.strerror}", hint="check its permissions"
            ) from None
        return True

    # ── in a cluster ──

    @property
    def _revoked_folder(self) -> str:
        return os.path.join(self.path, REVOKED_FOLDER)

    def note_revocations(self) -> None:
        """Keep the hashes of keys that are revoked from now on. Raises `OSError`."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        os.makedirs(self._revoked_folder, mode=0o700, exist_ok=True)
        noted = sorted(os.scandir(self._revoked_folder), key=lambda each: each.stat(follow_symlinks=False).st_mtime_ns)
        for oldest in noted[:-MAX_REVOKED_KEYS]:
            os.unlink(oldest.path)

    def revoked(self) -> set[str]:
        """The hashes of keys that were revoked. Raises `OSError`."""
        try:
            return {name for name in os.listdir(self._revoked_folder) if _HASH.fullmatch(name)}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def note_revoked(self, sha256: str) -> None:
        """Raises `OSError`."""
        if _HASH.fullmatch(sha256):
            path = os.path.join(self._revoked_folder, sha256)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | NOFOLLOW, 0o600))

    def adopt(self, record: KeyRecord) -> FileIdentity | None:
        """Store a key that was created on another machine; None if there is one of this name. Raises `OSError`."""
        try:
            self._write(record)
        except FileExistsError:
            return None
        return self.identity(record.name)

    def remove(self, record: KeyRecord) -> None:
        """Remove the file of a key that was revoked on another machine. Raises `OSError`."""
        os.unlink(self._file(record.name))

    def records(self) -> list[KeyRecord]:
        """All keys, by name. Those that are damaged, or that others may have written, are left out, which is logged.
        Raises `KeyProblem` if others may have put keys there."""
        return list(self.read()[0])

    def read(self) -> tuple[dict[KeyRecord, FileIdentity], dict[str, OSError]]:
        """All keys with the files that they are in, and the names of keys that could not be read this time, with the
        reason. Raises `KeyProblem`."""
        try:
            about = os.stat(self.path, follow_symlinks=False)
            names = sorted(os.listdir(self.path))[: 2 * MAX_NAMED_KEYS]
        except (FileNotFoundError, NotADirectoryError):
            return {}, {}
        except OSError as error:
            raise KeyProblem(f"`{self.path}` cannot be read: {error.strerror}", hint="check its permissions") from None
        if not stat.S_ISDIR(about.st_mode) or not is_own(about) or about.st_mode & 0o022:
            raise KeyProblem(
                f"the folder of keys `{self.path}` cannot be used: others may have written to it",
                hint=f"check what is in it, then run chmod 700 {self.path}",
            )
        found: dict[KeyRecord, FileIdentity] = {}
        unread: dict[str, OSError] = {}
        for name in names:
            if not name.endswith(_KEY_FILE_SUFFIX):
                continue
            try:
                read = self._read(name)
            except OSError as error:
                unread[name.removesuffix(_KEY_FILE_SUFFIX)] = error
                continue
            if read is not None:
                found[read[0]] = read[1]
        return found, unread

    def identity(self, name: str) -> FileIdentity | None:
        """The file that this key is in now, whether it can be read or not; None if there is none."""
        try:
            return _identity(os.stat(self._file(name), follow_symlinks=False))
        except OSError:
            return None

    def fingerprint(self) -> tuple[int, int, int] | None:
        """Changes when a key is created or revoked."""
        try:
            about = os.stat(self.path)
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_ctime_ns

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name + _KEY_FILE_SUFFIX)

    def _read(self, file: str) -> tuple[KeyRecord, FileIdentity] | None:
        """None if it is not accepted. Raises `OSError` if that cannot be decided now."""
        path = os.path.join(self.path, file)
        try:
            with open(path, "rb", opener=_without_following) as opened:
                about = os.fstat(opened.fileno())
                if not stat.S_ISREG(about.st_mode) or not is_own(about) or about.st_mode & 0o077:
                    log.warning("the key in `%s` is not accepted: others may have read or written it", path)
                    return None
                record = decode(opened.read(MAX_KEY_RECORD_BYTES), type=KeyRecord)
        except (OSError, MsgspecError) as error:
            if isinstance(error, OSError) and error.errno not in _LASTING_ERRORS:
                raise
            log.warning("the key in `%s` cannot be read: %s", path, error)
            return None
        if (
            record.name + _KEY_FILE_SUFFIX != file
            or not USER_KEY_NAME.fullmatch(record.name)
            or record.name.lower() in RESERVED
        ):
            log.warning("the key in `%s` is not accepted: the name in it does not match the file", path)
            return None
        return record, _identity(about)

    def _write(self, record: KeyRecord) -> None:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        draft = os.path.join(self.path, f".{secrets.token_hex(8)}.new")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(encode(record))
            # Unlike a rename, this does not replace an existing file.
            os.link(draft, self._file(record.name))
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft)


def _identity(about: os.stat_result) -> FileIdentity:
    return about.st_ino, about.st_mtime_ns


# The keys in the folder, each with its file, which is unknown while the folder cannot be written.
Files = dict[KeyRecord, FileIdentity | None]


class KeysElsewhere(Protocol):
    """What other machines know of keys."""

    def merged(self, files: Files, unread: Collection[str]) -> Files:
        """The keys in force everywhere, from those in the folder. `unread`: names of keys that could not be read."""
        ...


class KeysInForce:
    """The current keys, by the hash of their token."""

    def __init__(
        self,
        keys: KeyFolder,
        now: Callable[[], float] = time.time,
        age: Callable[[], float] = time.monotonic,
        elsewhere: KeysElsewhere | None = None,
    ) -> None:
        """`elsewhere`: None if this machine is alone."""
        self._keys = keys
        self._elsewhere = elsewhere
        self._now = now
        self._age = age
        # When to read them again after a failure; and the failure, so that it is logged once.
        self._retry_at: float | None = None
        self._problem = ""
        self._by_hash: dict[str, KeyRecord] = {}
        # By name, the file that each was read from.
        self._files: dict[str, FileIdentity | None] = {}
        self._hashes: dict[str, str] = {}
        self._fingerprint: tuple[int, int, int] | None = None
        # Another number whenever the keys were read again: what was found before need not hold any longer.
        self.generation = 0
        # Called with the names of revoked keys.
        self.on_revoked: list[Callable[[frozenset[str]], None]] = []
        # The same with whom these names stood for (`holder_of`).
        self.on_holders_gone: list[Callable[[frozenset[str]], None]] = []
        self.reload()

    def __len__(self) -> int:
        return len(self._by_hash)

    @property
    def path(self) -> str:
        return self._keys.path

    def find(self, token: str) -> KeyRecord | None:
        """The key with this token; None if there is none, or it is no longer valid."""
        if self._retry_at is not None and self._age() >= self._retry_at:
            self.reload()
        hashed = digest(token)
        # A look-up by hash does not reveal how much of a guessed token was right.
        record = self._by_hash.get(hashed)
        if record is None and token.startswith(TOKEN_PREFIX) and self._keys.fingerprint() != self._fingerprint:
            # A key that has just been created is valid at once.
            self.reload()
            record = self._by_hash.get(hashed)
        return None if record is None or record.has_expired(self._now()) else record

    def holder_of(self, principal: str) -> str:
        """Another value for each key that a principal of this name has had."""
        sha256 = self._hashes.get(principal)
        return principal if sha256 is None else key_holder(principal, sha256)

    def standing(self, record: KeyRecord) -> Callable[[], bool]:
        """Whether a key that was found now is still valid, without its token. False also if that is uncertain."""
        return partial(self._stands, self.generation, record)

    def _stands(self, generation: int, record: KeyRecord) -> bool:
        return (
            generation == self.generation
            and self._retry_at is None
            and (record.expires is None or self._now() < record.expires)
        )

    def reload(self) -> None:
        """Read the keys from disk. Those that cannot be read remain valid, which is logged, and are read again soon: a
        revocation must not be lost because it could not be seen at once."""
        self.generation += 1
        # Before reading: changes in the meantime then cause another read.
        self._fingerprint = self._keys.fingerprint()
        try:
            records, unread = self._read()
        except KeyProblem as error:
            self._note(str(error))
            if self._elsewhere is None:
                return
            # What was revoked on other machines is refused all the same.
            records = {record: self._files.get(record.name) for record in self._by_hash.values()}
            unread = frozenset(record.name for record in records)
        if self._elsewhere is not None:
            records = self._elsewhere.merged(records, unread)
        self._by_hash = {record.sha256: record for record in records}
        self._files = {record.name: file for record, file in records.items()}
        before, self._hashes = self._hashes, {record.name: record.sha256 for record in records}
        gone = frozenset(name for name, hashed in before.items() if self._hashes.get(name) != hashed)
        for name in sorted(gone):
            log.info("the key `%s` is revoked", name)
        if gone:
            for on_revoked in self.on_revoked:
                on_revoked(gone)
            for on_gone in self.on_holders_gone:
                on_gone(frozenset(key_holder(name, before[name]) for name in gone))

    def _read(self) -> tuple[Files, Collection[str]]:
        found, unread = self._keys.read()
        records: Files = {**found}
        first = next(iter(unread), "")
        self._note(f"`{first}` and perhaps others: {unread[first].strerror}" if unread else "")
        for record in self._by_hash.values():
            known = self._files.get(record.name)
            # `stat` needs no descriptor. A key that was revoked and created again is in another file.
            if record.name in unread and known is not None and known == self._keys.identity(record.name):
                records[record] = known
        return records, unread

    def _note(self, problem: str) -> None:
        self._retry_at = self._age() + KEYS_RETRY_INTERVAL if problem else None
        if problem and problem != self._problem:
            log.error("keys cannot be read again: %s", problem)
        self._problem = problem


def key_holder(name: str, sha256: str) -> str:
    """Whom the name of a key stands for, as long as it has this token."""
    return f"{name} {sha256}"


def _without_following(path: str, flags: int) -> int:
    return os.open(path, flags | NOFOLLOW | NONBLOCK)
