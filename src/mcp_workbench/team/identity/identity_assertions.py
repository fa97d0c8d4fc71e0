"""Our assertions about who the user is: JWTs that servers check with our public key.

The key is created with the first assertion and kept, so that servers may cache it. Owns the key and the claims; knows
nothing about how an assertion is transmitted. `joserfc` is imported with the first one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING, Any, Final

from msgspec import MsgspecError
from msgspec.json import decode, encode

from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own
from mcp_workbench.errors import DownstreamError, package_hint
from mcp_workbench.team.identity.identities import Identity

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

ASSERTION_KEY_FILE: Final = "identity-key.json"
ASSERTION_ALGORITHM: Final = "ES256"
# Valid for the requests of a few minutes, so that assertions found later in a server's log are useless.
ASSERTION_LIFETIME: Final = 300
MAX_SIGNING_KEY_BYTES: Final = 16 * 1024
# The issuer if the public address of the endpoint is not configured.
UNNAMED_ISSUER: Final = "urn:mcp-workbench"


class IdentityAssertions:
    """Signs with the key of this user's workbenches."""

    def __init__(self, path: str, issuer: str | None = None) -> None:
        self.issuer = issuer or UNNAMED_ISSUER
        self._path = path
        self._key: ECKey | None = None

    def sign(self, identity: Identity, audience: str, now: float) -> str:
        """Assert who is calling, for this server alone. Raises `DownstreamError`."""
        from joserfc import jwt

        key = self._own_key()
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": identity.principal,
            "aud": audience,
            "iat": int(now),
            "exp": int(now) + ASSERTION_LIFETIME,
            "jti": secrets.token_hex(16),
        }
        if identity.groups:
            claims["groups"] = sorted(identity.groups)
        return jwt.encode({"alg": ASSERTION_ALGORITHM, "typ": "JWT", "kid": key.thumbprint()}, claims, key)

    def jwks(self) -> bytes:
        """The public key, as served to servers. Raises `DownstreamError`."""
        key = self._own_key()
        public = {**key.as_dict(private=False), "kid": key.thumbprint(), "use": "sig", "alg": ASSERTION_ALGORITHM}
        return encode({"keys": [public]})

    def _own_key(self) -> ECKey:
        if self._key is None:
            try:
                from joserfc.errors import JoseError
                from joserfc.jwk import ECKey
            except ImportError:
                raise DownstreamError(
                    "`forwardIdentity` needs the Python package `joserfc`, which is not installed",
                    hint=package_hint("joserfc"),
                ) from None
            try:
                written = self._read()
                if written is None:
                    written = self._make(ECKey.generate_key("P-256").as_dict(private=True))
                self._key = ECKey.import_key(written)
                # A public key can be imported too, and would fail with the first signature.
                _ = self._key.private_key
            except (OSError, MsgspecError, JoseError, ValueError, TypeError, KeyError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is damaged, or others can read it"
                raise DownstreamError(
                    f"the key in `{self._path}` cannot be used: {reason}",
                    hint="delete the file to have a new key created; servers fetch it",
                ) from None
        return self._key

    def _read(self) -> dict[str, Any] | None:
        try:
            with open(self._path, "rb", opener=_without_following) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode) or not is_own(about) or about.st_mode & 0o077:
                    raise ValueError
                return decode(file.read(MAX_SIGNING_KEY_BYTES), type=dict[str, Any])
        except FileNotFoundError:
            return None

    def _make(self, key: dict[str, Any]) -> dict[str, Any]:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        draft = f"{self._path}.{secrets.token_hex(4)}.new"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(encode(key))
            # Another workbench may have just created one: then both use that.
            with contextlib.suppress(FileExistsError):
                os.link(draft, self._path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        found = self._read()
        return key if found is None else found


def key_path() -> str | None:
    """Where the key is stored; None if the user has no home."""
    return state_path(ASSERTION_KEY_FILE)


def _without_following(path: str, flags: int) -> int:
    return os.open(path, flags | NOFOLLOW | NONBLOCK)
