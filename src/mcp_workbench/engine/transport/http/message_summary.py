"""What a transport needs to know about a message: its kind, its id, and the values that headers mirror.

Owns the few fields that HTTP routes by. Looks at nothing else; the receiver decides whether a message is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import (
    LARGE_REQUEST,
    READING_ERRORS,
    LargeObject,
    decode_string,
    interned,
    remembered_if_short,
)
from mcp_workbench.engine.protocol.constants import PROTOCOL_VERSION
from mcp_workbench.engine.slices import sliced
from mcp_workbench.engine.transport.http.header_names import NAMED_BY

MessageKind = Literal["request", "notification", "result", "error"]

# Messages of a large batch that are handled before other tasks get a turn.
BATCH_AT_ONCE: Final = 1000


class _Meta(Struct, gc=False):
    version: Raw | UnsetType = field(name=PROTOCOL_VERSION, default=UNSET)


class _AgreedVersion(Struct, gc=False):
    version: str = field(name="protocolVersion")


class _InitializeAnswer(Struct, gc=False):
    result: _AgreedVersion


_decode_initialize_answer: Final = Decoder(_InitializeAnswer).decode
_decode_meta: Final = Decoder(_Meta).decode
_decode_list: Final = Decoder(list[Raw]).decode


def version_in_answer(message: bytes) -> str | None:
    """The revision in the answer to `initialize`; None if it is an error."""
    try:
        return _decode_initialize_answer(message).result.version
    except (DecodeError, ValidationError):
        return None


class MessageSummary(Struct, eq=False):
    """The fields of one message that HTTP routes by."""

    kind: MessageKind
    id: bytes | None
    method: str
    # The members of its params; None if params is not an object.
    params: dict[str, Raw] | None
    # The revision in the `_meta` of a modern request; empty if it is not a string.
    version: str | None = None
    # The parsed envelope of a large message, so that the receiver need not parse it again.
    envelope: messages.Envelope | None = None

    @property
    def name(self) -> str | None:
        """The value that `Mcp-Name` mirrors; None if the method has none, or the message lacks it."""
        key = NAMED_BY.get(self.method)
        raw = None if key is None or self.params is None else self.params.get(key)
        if raw is None or (type(self.params) is LargeObject and memoryview(raw).nbytes > LARGE_REQUEST):
            # The session refuses a name of that size.
            return None
        try:
            return decode_string(raw)
        except READING_ERRORS:
            return None

    @property
    def arguments(self) -> Raw | None:
        return None if self.params is None else self.params.get("arguments")

    @property
    def cancels(self) -> bytes | None:
        """The id of the request that a `notifications/cancelled` cancels."""
        if self.params is None or self.method != "notifications/cancelled":
            return None
        id = self.params.get("requestId")
        return None if id is None else bytes(id)


@remembered_if_short
def _version_of(stamp: bytes) -> str | None:
    try:
        version = _decode_meta(stamp).version
    except READING_ERRORS:
        return None
    if version is UNSET:
        return None
    try:
        return decode_string(version)
    except READING_ERRORS:
        return ""


_last_stamp: tuple[bytes, tuple[Raw, str | None]] = (b"", (Raw(b""), None))


def stamp_and_version(piece: Raw) -> tuple[Raw, str | None]:
    """The stamp, interned, and its revision. Nearly always the last one again: comparing it is faster than to compute
    its hash."""
    global _last_stamp
    written = bytes(piece)
    known, found = _last_stamp
    if written == known:
        return found
    stamp = interned(piece)
    found = stamp, _version_of(stamp)
    if stamp is not piece:
        _last_stamp = written, found
    return found


def summarise_short(request: messages.ShortRequest) -> MessageSummary:
    """What `summarise` says of it."""
    members, version = request.params, None
    stamp = members.get("_meta")
    if stamp is not None:
        members["_meta"], version = stamp_and_version(stamp)
    return MessageSummary("request", bytes(request.id), request.method, members, version)


def summarise(
    message: bytes,
    found: messages.Envelope | None = None,
    decode: Callable[[bytes], messages.Envelope] = messages.decode_client_envelope,
) -> MessageSummary:
    """Summarise a client's message. Raises `Malformed` if it is not one. `found` is the parsed envelope of a large
    message."""
    envelope = found
    if found is None:
        found = messages.read(message, decode)
    elif messages.has_other_version(found):
        raise messages.Malformed(messages.OTHER_VERSION, messages.find_id(message), code=messages.INVALID_REQUEST)
    id = None if found.id is UNSET else bytes(found.id)
    method = found.method
    if method is UNSET:
        if found.result is UNSET and found.error is UNSET:
            known = id if id is not None and messages.is_valid_id(id) else None
            raise messages.Malformed(messages.NOT_A_MESSAGE, known, code=messages.INVALID_REQUEST)
        return MessageSummary("result" if found.error is UNSET else "error", id, "", {}, None, envelope)
    members: dict[str, Raw] | None = {}
    version = None
    if found.params is not UNSET:
        try:
            known = None if envelope is None else getattr(envelope, "members", None)
            members = known or messages.decode_object(found.params)
            if known is None and len(message) > LARGE_REQUEST:
                members = LargeObject(members)
        except READING_ERRORS:
            members = None
        else:
            stamp = members.get("_meta")
            if stamp is not None:
                members["_meta"], version = stamp_and_version(stamp)
    return MessageSummary("notification" if id is None else "request", id, method, members, version, envelope)


# How we and many others write messages: enough to recognise an answer without parsing all of it. The result that
# follows may be large.
_MESSAGE_HEAD: Final = re.compile(
    rb'\s*\{"jsonrpc":\s?"2\.0",\s?(?:"id":\s?(-?[0-9]{1,18}|"[^"\\]{0,200}"),\s?"(method|result|error)"|"method"):'
)
_MESSAGE_KINDS: Final[dict[bytes, MessageKind]] = {b"method": "request", b"result": "result", b"error": "error"}


def kind_and_id(message: bytes) -> tuple[MessageKind, bytes | None]:
    """The kind and id of a message. If its members are in the usual order, only its beginning is read.

    Raises `Malformed` if it is neither in that order nor a complete message.
    """
    found = _MESSAGE_HEAD.match(message)
    if found is None:
        summary = summarise(message, decode=messages.decode_envelope)
        return summary.kind, summary.id
    if found[1] is None:
        return "notification", None
    return _MESSAGE_KINDS[found[2]], found[1]


def split_batch(message: bytes) -> list[bytes]:
    """The messages of a batch. Raises `Malformed`."""
    try:
        return [bytes(each) for each in _decode_list(message)]
    except READING_ERRORS as error:
        raise messages.Malformed(str(error)) from None


def split_large_batch(message: bytes) -> Iterator[list[bytes]]:
    """The same in groups; each step is short. Raises `Malformed`."""
    try:
        for some in sliced(message, _decode_list):
            for start in range(0, len(some), BATCH_AT_ONCE):
                yield [bytes(each) for each in some[start : start + BATCH_AT_ONCE]]
    except READING_ERRORS as error:
        raise messages.Malformed(str(error)) from None


def is_batch(message: bytes) -> bool:
    return message[:64].lstrip()[:1] == b"["


def single_line(message: bytes) -> bytes:
    """The same message without line breaks.

    Over HTTP a message may span several lines; over stdio a line break ends it, and payloads are passed between the two
    unchanged. Outside strings a line break is white space, and inside strings JSON forbids it.
    """
    if b"\n" in message:
        message = message.replace(b"\n", b" ")
    if b"\r" in message:
        message = message.replace(b"\r", b" ")
    return message
