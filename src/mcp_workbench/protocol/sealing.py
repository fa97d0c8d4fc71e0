"""`requestState` that we hand out: sealed, so that only what we gave out comes back, to the one we gave it to. Pure.

The specification asks for all of it: integrity, the principal, a short expiry, and a digest of the request it belongs
to. That a state is used once is up to whoever keeps what it points at.

What it needs of the standard library is imported where it is used: starting up does not need it.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import encode

# How our states begin. What follows tells those of this process from everybody else's: states of modern servers pass
# through us unread, and such a server may be a workbench too.
PREFIX: Final = "mcpwb1."
_NAME_BYTES: Final = 6
# Members of a request that differ between the first try and the next ones.
RETRY_MEMBERS: Final = frozenset({"inputResponses", "requestState"})
_MAC_BYTES: Final = 32
NOT_OURS: Final = "`requestState` was not issued here; send the request again without it"


class Sealed(Struct, frozen=True):
    """What a state says."""

    # What is kept for it here; empty where nothing is.
    key: str
    # Counts the questions of one call: an answered one cannot be answered again.
    round: int
    principal: str
    digest: str
    expires: float


class BadState(Exception):
    """A state that is not accepted. Says why, for the client."""


_decode: Final = Decoder(Sealed).decode


class Sealer:
    """Seals with a secret that never leaves this process."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or os.urandom(32)
        name = _spelled(self._mac(b"the name of whoever has this secret")[:_NAME_BYTES])
        self._prefix = f"{PREFIX}{name}."

    def gave_out(self, text: str) -> bool:
        """Whether this looks like one of ours. Whether it is, says `open`."""
        return text.startswith(self._prefix)

    def seal(self, state: Sealed) -> str:
        """A state as a string that the client hands back."""
        body = encode(state)
        return self._prefix + _spelled(self._mac(body) + body)

    def open(self, text: str, *, principal: str, digest: str, now: float) -> Sealed:
        """The state again. Raises `BadState` for anything but one of ours, for this caller and this request."""
        import base64
        import hmac

        try:
            data = base64.b64decode(text.removeprefix(self._prefix), altchars=b"-_", validate=True)
        except ValueError:
            raise BadState(NOT_OURS) from None
        mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
        # Written again, because several spellings of base64 mean the same bytes, and one of them is ours.
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
    """What identifies a request across its tries: the method and all parameters but those of the retry itself.

    Compared as values: a client may write the same parameters with other white space, and in another order.
    """
    import hashlib
    import json

    salient = {key: bytes(value) for key, value in params.items() if key not in RETRY_MEMBERS}
    try:
        values = {key: json.loads(value) for key, value in salient.items()}
        text = json.dumps([method, values], sort_keys=True).encode()
    except (ValueError, RecursionError):
        # Deeper, or with longer numbers, than Python reads: then it has to be the same to the letter.
        text = encode([method, sorted((key, value) for key, value in salient.items())])
    return hashlib.sha256(text).hexdigest()


def _spelled(data: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(data).decode()
