"""The `requestState` values that we issue, sealed so that only the client that received one can use it. Pure.

The specification requires integrity, the principal, a short expiry, and a digest of the request it belongs to. That a
state is used only once is ensured by the owner of what it refers to.

Modules of the standard library are imported where they are used, because start-up does not need them.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import encode

# The start of our states. A random part follows that identifies this process: states of modern servers pass through
# unread, and such a server may be another workbench.
SEALED_PREFIX: Final = "mcpwb1."
_SECRET_NAME_BYTES: Final = 6
# Members in which a retry differs from the first request.
RETRY_MEMBERS: Final = frozenset({"inputResponses", "requestState"})
_MAC_BYTES: Final = 32
NOT_OURS: Final = "`requestState` was not issued here; send the request again without it"


class Sealed(Struct, frozen=True):
    """The content of a state."""

    # The key of what we keep for it; empty if nothing.
    key: str
    # Counts the questions of one call, so that none can be answered twice.
    round: int
    principal: str
    digest: str
    expires: float


class BadState(Exception):
    """A state that is not accepted, with the reason for the client."""


_decode: Final = Decoder(Sealed).decode


class Sealer:
    """Seals with a secret that never leaves this process."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or os.urandom(32)
        name = _spelled(self._mac(b"the name of whoever has this secret")[:_SECRET_NAME_BYTES])
        self._prefix = f"{SEALED_PREFIX}{name}."

    def gave_out(self, text: str) -> bool:
        """Whether this looks like one of our states. `open` verifies it."""
        return text.startswith(self._prefix)

    def seal(self, state: Sealed) -> str:
        """The state as a string for the client to send back."""
        body = encode(state)
        return self._prefix + _spelled(self._mac(body) + body)

    def open(self, text: str, *, principal: str, digest: str, now: float) -> Sealed:
        """Verify and decode a state. Raises `BadState` unless we issued it to this caller for this request."""
        import base64
        import hmac

        try:
            data = base64.b64decode(text.removeprefix(self._prefix), altchars=b"-_", validate=True)
        except ValueError:
            raise BadState(NOT_OURS) from None
        mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
        # Compare the encoded form too: several base64 strings decode to the same bytes, and only one is ours.
        if not hmac.compare_digest(mac, self._mac(body)) or self._prefix + _spelled(data) != text:
            raise BadState(NOT_OURS)
        try:
            state = _decode(body)
        except (DecodeError, ValidationError):
            raise BadState(NOT_OURS) from None
        if state.principal != principal:
            raise BadState("`requestState` belongs to another user")
        if state.expires <= now:
            raise BadState("`requestState` has expired; send the request again without it")
        if state.digest != digest:
            raise BadState("`requestState` belongs to another request; retry with the same method and parameters")
        return state

    def _mac(self, body: bytes) -> bytes:
        import hmac

        return hmac.digest(self._secret, body, "sha256")


def digest_of(method: str, params: dict[str, Raw]) -> str:
    """A digest that identifies a request across retries: the method and all parameters except those of the retry.

    Computed from values, because a client may write the same parameters with different white space or in another order.
    """
    import hashlib
    import json

    salient = {key: bytes(value) for key, value in params.items() if key not in RETRY_MEMBERS}
    try:
        values = {key: json.loads(value) for key, value in salient.items()}
        text = json.dumps([method, values], sort_keys=True).encode()
    except (ValueError, RecursionError):
        # Nested too deeply, or with numbers too long, for Python: then the bytes have to be the same.
        text = encode([method, sorted((key, value) for key, value in salient.items())])
    return hashlib.sha256(text).hexdigest()


def _spelled(data: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(data).decode()
