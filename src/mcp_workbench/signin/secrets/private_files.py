"""Secrets of a user whose machine has no keychain: one file for each, readable only by the user.

Encrypted with AES-256-GCM if `WORKBENCH_SECRET_KEY_FILE` names a file with a key, for example a credential of
systemd; a value is bound to its name, so that files cannot be exchanged. Owns the folder and the format. Blocks.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.own_files import replace_whole
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK
from mcp_workbench.errors import DownstreamError, package_hint
from mcp_workbench.signin.secrets.secret_files import MAX_SECRET_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE_VARIABLE: Final = "WORKBENCH_SECRET_KEY_FILE"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_PLAIN: Final = b"plain\n"
_SEALED: Final = b"aes-256-gcm\n"
# A value, its form, and what encryption adds.
_MAX_FILE_BYTES: Final = MAX_SECRET_BYTES + 256


class PrivateFileUnusable(DownstreamError):
    """A secret can be neither read from its file nor written to it."""


def put(service: str, name: str, value: str, environ: Mapping[str, str]) -> bool:
    """Store a value. Returns whether it is encrypted. Raises `PrivateFileUnusable`."""
    cipher, content = _cipher(environ), value.encode(errors="surrogateescape")
    if cipher is not None:
        nonce = os.urandom(_NONCE_BYTES)
        content = _SEALED + nonce + cipher.encrypt(nonce, content, _bound(service, name))
    else:
        content = _PLAIN + content
    path = _path(service, name)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.chmod(os.path.dirname(path), 0o700)
        # Whole: a disk that fills up must not cost the value that was there.
        replace_whole(path, content, is_durable=True)
    except OSError as error:
        raise PrivateFileUnusable(f"the secret cannot be written to `{path}`: {error.strerror}") from None
    return cipher is not None


def get(service: str, name: str, environ: Mapping[str, str]) -> str | None:
    """Read a value; None if there is none. Raises `PrivateFileUnusable`."""
    path = _path(service, name)
    try:
        # Non-blocking, because the path may be a FIFO.
        with open(os.open(path, os.O_RDONLY | NONBLOCK | NOFOLLOW), "rb") as file:
            content = file.read(_MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PrivateFileUnusable(f"the secret in `{path}` cannot be read: {error.strerror}") from None
    if content.startswith(_PLAIN):
        return content.removeprefix(_PLAIN).decode(errors="surrogateescape")
    if not content.startswith(_SEALED):
        raise PrivateFileUnusable(f"`{path}` was not written by the workbench", hint=_again(service, name))
    cipher = _cipher(environ)
    if cipher is None:
        raise PrivateFileUnusable(
            f"the secret in `{path}` is encrypted, and {KEY_FILE_VARIABLE} is not set",
            hint=f"set it to the file with the key, or {_again(service, name)}",
        )
    from cryptography.exceptions import InvalidTag

    sealed = content.removeprefix(_SEALED)
    try:
        value = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound(service, name))
    except (InvalidTag, ValueError):
        raise PrivateFileUnusable(
            f"the secret in `{path}` is encrypted with another key, or was changed", hint=_again(service, name)
        ) from None
    return value.decode(errors="surrogateescape")


def delete(service: str, name: str) -> bool:
    """Delete a value, and return whether there was one."""
    return _remove(_path(service, name))


def folder() -> str:
    """Where the files are. Raises `PrivateFileUnusable`."""
    from platformdirs import user_data_dir

    data = user_data_dir("mcp-workbench", appauthor=False)
    if not os.path.isabs(data):
        raise PrivateFileUnusable("there is no folder to store secrets in", hint="set `HOME`")
    return os.path.join(data, "secrets")


def _path(service: str, name: str) -> str:
    # Names may hold anything, also what no file may be called.
    return os.path.join(folder(), hashlib.sha256(_bound(service, name)).hexdigest())


def _bound(service: str, name: str) -> bytes:
    return b"mcp-workbench secret\0" + f"{service}\0{name}".encode(errors="surrogateescape")


def _again(service: str, name: str) -> str:
    return f"run `mcp-workbench secret set {service}/{name}` again"


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PrivateFileUnusable(f"`{path}` cannot be removed: {error.strerror}") from None
    return True


def _cipher(environ: Mapping[str, str]) -> AESGCM | None:
    path = environ.get(KEY_FILE_VARIABLE)
    if not path:
        return None
    try:
        with open(os.open(path, os.O_RDONLY | NONBLOCK), "rb") as file:
            content = file.read(_MAX_FILE_BYTES)
        key = content if len(content) == _KEY_BYTES else base64.b64decode(content.strip(), b"-_", validate=True)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not base64"
        raise PrivateFileUnusable(f"the key in `{path}` ({KEY_FILE_VARIABLE}) cannot be read: {why}") from None
    if len(key) != _KEY_BYTES:
        raise PrivateFileUnusable(
            f"`{path}` ({KEY_FILE_VARIABLE}) holds no key of {_KEY_BYTES} bytes",
            hint=f"create one: `head -c {_KEY_BYTES} /dev/urandom > {path}`",
        )
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise PrivateFileUnusable(
            "encrypted secrets need the Python package `cryptography`, which is not installed",
            hint=package_hint("cryptography"),
        ) from None
    return AESGCM(key)
