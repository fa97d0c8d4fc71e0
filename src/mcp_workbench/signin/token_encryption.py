"""Sign-ins encrypted at rest: AES-256-GCM with a master key in the system's keychain.

Only the key is in the keychain, because keychain entries are too small for tokens. The file names the key it was sealed
with, so that a keychain with a different key can be told from a damaged file. Owns the key and the envelope. Blocks
while it queries the keychain.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from mcp_workbench.errors import package_hint
from mcp_workbench.signin.secrets import keychain
from mcp_workbench.signin.secrets.keychain import KeychainMissing, KeychainUnusable
from mcp_workbench.signin.store_location import StoreUnusable, mark_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_NAME: Final = "master-key"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_CIPHER_NAME: Final = "aes-256-gcm"


class _Envelope(Struct, frozen=True):
    # Must be the first field: `store_location.SEALED_HEAD`.
    sealed: str
    format: int
    # The id of the key.
    key: str
    nonce: bytes
    data: bytes
    # Hashes of the servers inside, so that a file without the server in question need not be decrypted.
    servers: tuple[str, ...] = ()


class Damaged(Exception):
    """The file was not written by us, or has been modified."""


class MasterKey:
    """The key, once it has been fetched."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._key: bytes | None = None

    @property
    def is_known(self) -> bool:
        """Whether the key has been fetched already."""
        return self._key is not None

    def fetch(self, *, create: bool) -> bytes:
        """Fetch the key; with `create`, make one if the keychain has none. Raises `StoreUnusable`."""
        if self._key is None:
            try:
                found = keychain.get(keychain.SERVICE, KEY_NAME, self._environ)
                if found is None and create:
                    # Then read it back: a key that cannot be read again must not encrypt anything.
                    keychain.put(keychain.SERVICE, KEY_NAME, _text(os.urandom(_KEY_BYTES)), self._environ)
                    found = keychain.get(keychain.SERVICE, KEY_NAME, self._environ)
            except KeychainUnusable as error:
                raise _without_key(error, create=create) from None
            if found is None:
                raise StoreUnusable(
                    "your sign-ins are encrypted, and the key is no longer in the keychain",
                    hint="restore the keychain; or move the file of sign-ins away and sign in again",
                )
            self._key = _bytes(found)
        return self._key


def _without_key(error: KeychainUnusable, *, create: bool) -> StoreUnusable:
    hint = keychain.START_ONE if isinstance(error, KeychainMissing) else error.hint
    if not create:
        return StoreUnusable(f"your sign-ins cannot be decrypted: {error.message}", hint=hint)
    if isinstance(error, KeychainMissing):
        hint = f"{hint}; without a keychain, sign-ins can only be stored unencrypted, readable only by you"
    return StoreUnusable(f"sign-ins cannot be encrypted: {error.message}", hint=hint)


def seal(content: bytes, key: bytes, servers: Iterable[str]) -> bytes:
    """Encrypt the content, so that only the holder of the key can read or change it."""
    # New each time: with AES-GCM, a nonce used twice gives away both texts.
    nonce = os.urandom(_NONCE_BYTES)
    # The name of the algorithm is authenticated with it, so that nobody can have it read as another.
    data = _cipher(key).encrypt(nonce, content, _CIPHER_NAME.encode())
    marks = tuple(sorted({mark_of(server) for server in servers}))
    return encode(_Envelope(_CIPHER_NAME, 1, _id_of(key), nonce, data, marks)) + b"\n"


def unseal(content: bytes, key: bytes) -> bytes:
    """Decrypt the content. Raises `Damaged`, or `StoreUnusable` if it needs a different key."""
    try:
        envelope = decode(content, type=_Envelope)
    except (MsgspecError, UnicodeError, RecursionError):
        raise Damaged from None
    if envelope.sealed != _CIPHER_NAME or envelope.format != 1:
        raise StoreUnusable("your sign-ins were encrypted by a newer workbench", hint="update this one")
    if envelope.key != _id_of(key):
        raise StoreUnusable(
            "your sign-ins are encrypted with a different key than the one in the keychain",
            hint="restore the keychain; or move the file of sign-ins away and sign in again",
        )
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(envelope.nonce, envelope.data, _CIPHER_NAME.encode())
    except (InvalidTag, ValueError):
        raise Damaged from None


def _cipher(key: bytes) -> AESGCM:
    return _aesgcm()(key)


def _aesgcm() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise StoreUnusable(
            "encrypted sign-ins need the Python package `cryptography`, which is not installed",
            hint=package_hint("keyring", "cryptography"),
        ) from None
    return AESGCM


def _id_of(key: bytes) -> str:
    # Says whether it is the right key before anything is decrypted, and nothing about the key itself.
    return hashlib.sha256(b"mcp-workbench key\0" + key).hexdigest()[:16]


def _text(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode()


def _bytes(text: str) -> bytes:
    try:
        key = base64.urlsafe_b64decode(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise StoreUnusable(
            f"the entry `{keychain.SERVICE}/{KEY_NAME}` in the keychain is not a key of the workbench",
            hint="restore the keychain; or remove the entry, move the file of sign-ins away and sign in again",
        )
    return key
