"""Encrypts and authenticates what lies on the state server, which is trusted with nothing.

A value is bound to the format, the cluster, its kind, its user and its name: moved to another place, it cannot be
opened. It carries when it was written and until when it is valid: an older one than was seen before is refused, and so
is one that has expired. Names of users and sessions appear as keyed hashes only.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from mcp_workbench.engine.portable_os import NONBLOCK
from mcp_workbench.errors import ConfigError

# The first byte of a value. Another one was written by another version of the workbench, and is left alone.
SEAL_FORMAT: Final = 2
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
# How many of the places that were read or written are remembered, to notice that one has been set back.
MAX_SEEN: Final = 100_000


class SealRefused(Exception):
    """The value was not written by this cluster for this place, or is out of date."""


class OtherVersion(SealRefused):
    """It may mean something to another instance, and stays."""


class OutOfDate(SealRefused):
    """A newer one was there before."""

    def __init__(self, seconds: float) -> None:
        super().__init__("it is older than the value that was there before")
        # By how much.
        self.seconds = seconds


class Expired(SealRefused):
    """Nobody can use it any longer."""


class _Sealed(Struct, array_like=True):
    # Nanoseconds since 1970; larger than that of the value that it replaced.
    written: int
    # Seconds since 1970.
    expires: float
    name: str
    value: bytes


class OpenedValue(Struct, frozen=True):
    name: str
    value: bytes
    written: int


_FOREIGN_KEY: Final = "it was not written with this cluster's key for this place"
_encode: Final = Encoder().encode
_decode: Final = Decoder(_Sealed).decode


class Seal:
    def __init__(self, key: bytes, cluster: str, now: Callable[[], float] = time.time) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(hmac.digest(key, b"mcp-workbench/seal", "sha256"))
        self._names = hmac.digest(key, b"mcp-workbench/names", "sha256")
        self._cluster = cluster
        self.format = SEAL_FORMAT
        self._now = now
        # By place, the newest value that was read or written.
        self._seen: OrderedDict[bytes, int] = OrderedDict()

    def hidden(self, *parts: str) -> str:
        """A name for the state server: the same for the same parts, and telling nothing about them."""
        return hmac.digest(self._names, _joined(parts), "sha256")[:16].hex()

    @property
    def key_mark(self) -> bytes:
        """The same for the same key, and telling nothing about it."""
        return self.hidden("key").encode()

    def close(
        self, kind: str, principal: str, name: str, value: bytes, lifetime: float, *, is_certain: bool = True
    ) -> bytes:
        """`is_certain`: it will be written. If not, older values count until it is opened."""
        place = self._place(kind, principal, self.hidden(kind, principal, name))
        now = self._now()
        written = max(int(now * 1e9), self._seen.get(place, 0) + 1)
        if is_certain:
            self._note(place, written)
        return self._encrypted(_encode(_Sealed(written, now + lifetime, name, value)), place)

    def open(self, kind: str, principal: str, hidden: str, sealed: bytes) -> OpenedValue:
        """Open the value that lies under this hidden name. Raises `SealRefused`."""
        place = self._place(kind, principal, hidden)
        try:
            found = _decode(self._decrypted(sealed, place))
        except MsgspecError:
            raise SealRefused(_FOREIGN_KEY) from None
        if found.expires <= self._now():
            raise Expired("it has expired")
        if (newer := self._seen.get(place, 0) - found.written) > 0:
            raise OutOfDate(newer / 1e9)
        self._note(place, found.written)
        return OpenedValue(found.name, found.value, found.written)

    def close_notice(self, notice: bytes) -> bytes:
        """Seal what is told to instances that run now, and lies nowhere. Who reads it judges its age."""
        return self._encrypted(notice, self._place("notice", "", ""))

    def open_notice(self, sealed: bytes) -> bytes:
        """Raises `SealRefused`."""
        return self._decrypted(sealed, self._place("notice", "", ""))

    def _encrypted(self, plain: bytes, place: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return bytes((self.format,)) + nonce + self._cipher.encrypt(nonce, plain, place)

    def _decrypted(self, sealed: bytes, place: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        if sealed[:1] != bytes((self.format,)):
            raise OtherVersion("it was written by another version of the workbench")
        try:
            return self._cipher.decrypt(sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :], place)
        except (InvalidTag, ValueError):
            raise SealRefused(_FOREIGN_KEY) from None

    def _place(self, kind: str, principal: str, hidden: str) -> bytes:
        return _joined((str(self.format), self._cluster, kind, principal, hidden))

    def _note(self, place: bytes, written: int) -> None:
        self._seen[place] = written
        self._seen.move_to_end(place)
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)


def _joined(parts: tuple[str, ...]) -> bytes:
    # With lengths, so that no two lists of parts are written the same.
    return b"".join(b"%d:%b" % (len(part.encode()), part.encode()) for part in parts)


def new_key() -> str:
    """A key for a cluster, as text for a file."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


def read_key(path: str) -> bytes:
    """Raises `ConfigError`."""
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            written = file.read(1024)
    except OSError as error:
        raise ConfigError(
            f"the cluster's key `{path}` cannot be read: {error.strerror}",
            hint=f"mcp-workbench team cluster key > {path} makes one; all instances need the same",
        ) from None
    if not stat.S_ISREG(mode) or mode & 0o007:
        raise ConfigError(
            f"the cluster's key `{path}` can be read by every user of this machine", hint=f"chmod 600 {path}"
        )
    try:
        key = base64.urlsafe_b64decode(written.strip())
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"the file `{path}` does not hold the key of a cluster",
            hint=f"mcp-workbench team cluster key > {path} makes one; all instances need the same",
        )
    return key
