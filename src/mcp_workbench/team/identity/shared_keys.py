"""Named keys of all machines of a cluster: a key that is created or revoked on one is so on all.

Each machine's folder has a copy of every key, so that all of them are known while the cluster's state is away. Both
keys and revocations are kept by the hash of the token, and nothing under a hash ever changes: whoever puts an older
value back cannot make a revoked key valid for an instance that knows of the revocation, whatever the clocks say.
Owns what the others know; the folder is `named_keys`'.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection

from msgspec import MsgspecError
from msgspec.json import decode, encode

from mcp_workbench.engine.lasting_state import NAMED_KEY, REVOKED_KEY, LastingState
from mcp_workbench.team.identity.named_keys import RESERVED, USER_KEY_NAME, Files, KeyFolder, KeyRecord

log = logging.getLogger(__name__)


class SharedKeys:
    """For one `KeysInForce` (`KeysElsewhere`)."""

    def __init__(self, state: LastingState, folder: KeyFolder, changed: Callable[[], None]) -> None:
        """`changed`: the keys have to be merged again."""
        self._state = state
        self._folder = folder
        self._changed = changed
        # By hash: the keys of the cluster, the revoked ones, and which of both others can read.
        self._records: dict[str, KeyRecord] = {}
        self._revoked: set[str] = set()
        self._shared: set[str] = set()
        self._shared_revoked: set[str] = set()
        # Names by hash of what was in the folder when it was last read.
        self._in_folder: dict[str, str] = {}
        try:
            folder.note_revocations()
        except OSError as error:
            log.warning("keys of other machines cannot be stored in `%s`: %s", folder.path, error.strerror)
        state.follow(REVOKED_KEY, self._on_revoked)
        state.follow(NAMED_KEY, self._on_keys)

    def _on_keys(self, values: dict[str, bytes]) -> None:
        self._shared = set(values)
        self._records = {sha256: record for sha256, value in values.items() if (record := _read(sha256, value))}
        self._changed()

    def _on_revoked(self, values: dict[str, bytes]) -> None:
        self._shared_revoked = set(values)
        self._revoked |= self._shared_revoked
        self._changed()

    def merged(self, files: Files, unread: Collection[str]) -> Files:
        with contextlib.suppress(OSError):
            self._revoked |= self._folder.revoked()
        in_folder = {record.sha256: record.name for record in files}
        if self._folder.fingerprint() is not None:
            # A file that is gone was revoked, also without our command. A folder that is gone says nothing.
            gone = {sha256 for sha256, name in self._in_folder.items() if name not in unread} - in_folder.keys()
            self._revoke(gone)
        found: dict[str, KeyRecord] = {}
        for record in (*files, *self._records.values()):
            if record.sha256 in self._revoked:
                continue
            other = found.get(record.name, record)
            found[record.name] = max(record, other, key=lambda each: (each.created, each.sha256))
            if other.sha256 != record.sha256:
                # Created on two machines that did not know of each other. One name is one user.
                log.warning("there are two keys named `%s`; the one created last is valid", record.name)
                self._revoke({record.sha256, other.sha256} - {found[record.name].sha256})
        self._remove({record for record in files if record.sha256 in self._revoked})
        merged: Files = {record: files.get(record) for record in found.values()}
        for record, file in merged.items():
            if file is None and record.name not in unread:
                merged[record] = self._store(record)
        self._in_folder = {record.sha256: record.name for record, file in merged.items() if file is not None}
        self._share(merged)
        return merged

    def _revoke(self, hashes: set[str]) -> None:
        for sha256 in hashes - self._revoked:
            self._revoked.add(sha256)
            with contextlib.suppress(OSError):
                self._folder.note_revoked(sha256)

    def _remove(self, records: set[KeyRecord]) -> None:
        for record in records:
            try:
                self._folder.note_revoked(record.sha256)
                self._folder.remove(record)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("the revoked key `%s` cannot be removed here: %s", record.name, error.strerror)

    def _store(self, record: KeyRecord) -> tuple[int, int] | None:
        # It is valid without a file, too, until the last instance has ended.
        with contextlib.suppress(OSError):
            return self._folder.adopt(record)
        return None

    def _share(self, records: Collection[KeyRecord]) -> None:
        """Leave what others do not know."""
        for record in records:
            if record.sha256 not in self._shared:
                self._shared.add(record.sha256)
                self._state.keep(NAMED_KEY, "", record.sha256, encode(record))
        for sha256 in self._revoked - self._shared_revoked:
            self._shared_revoked.add(sha256)
            self._state.keep(REVOKED_KEY, "", sha256, b"{}")
        for sha256 in self._revoked & self._shared:
            self._shared.discard(sha256)
            self._state.drop(NAMED_KEY, "", sha256)


def _read(sha256: str, value: bytes) -> KeyRecord | None:
    try:
        record = decode(value, type=KeyRecord)
    except MsgspecError:
        return None
    is_valid = USER_KEY_NAME.fullmatch(record.name) and record.name.lower() not in RESERVED and record.sha256 == sha256
    return record if is_valid else None
