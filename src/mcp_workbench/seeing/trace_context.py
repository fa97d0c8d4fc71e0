"""The context of a trace in `params._meta` (W3C `traceparent` and `tracestate`, by SEP-414), and which traces are kept.

Functions of bytes: nothing is remembered here. An invalid context is none, as the W3C's recommendation wants it.
"""

from __future__ import annotations

import re
from random import Random, SystemRandom
from typing import Final, Literal, NamedTuple

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import decode_object, encode

SAMPLED_FLAG: Final = 1
# As many as there are second halves of an id.
_ALL: Final = 1 << 64
# As many as `random` has values.
_CHANCES: Final = 1 << 53
_NOT_ZERO: Final = 1 << 64 | 1
# W3C, *Trace Context*: what any vendor has to be able to pass on; longer ones are not repeated in spans.
MAX_TRACE_STATE: Final = 512
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
# Seeded by the system, and far quicker than asking it for each id.
_random: Final = Random(SystemRandom().getrandbits(256))


class TraceContext(NamedTuple):
    """The span that a request comes from."""

    trace_id: int
    span_id: int
    flags: int
    state: str = ""


class _TraceMeta(Struct, gc=False):
    traceparent: Raw = Raw(b"")
    tracestate: Raw = Raw(b"")


_read: Final = Decoder(_TraceMeta).decode
_read_text: Final = Decoder(str).decode


def read_context(meta: bytes) -> TraceContext | None:
    """The context in a request's `_meta`; None if there is no valid one."""
    # Looked for first, because most clients send none. An escaped name has a backslash.
    if meta.find(b'"traceparent"') < 0 and meta.find(b"\\") < 0:
        return None
    try:
        found = _read(meta)
        parent = parse_traceparent(_read_text(found.traceparent))
    except (DecodeError, ValidationError):
        return None
    if parent is None:
        return None
    try:
        state = _read_text(found.tracestate) if found.tracestate else ""
    except (DecodeError, ValidationError):
        state = ""
    return parent._replace(state=state) if 0 < len(state) <= MAX_TRACE_STATE else parent


def parse_traceparent(text: str) -> TraceContext | None:
    """Read the value of `traceparent`; of a later version, what this one knows."""
    form = _TRACEPARENT.fullmatch(text)
    if form is None:
        return None
    version, trace_id, span_id, flags, rest = form.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(int(trace_id, 16), int(span_id, 16), int(flags, 16))


def with_traceparent(meta: bytes | None, trace_id: bytes, span_id: bytes, flags: int, *, has_parent: bool) -> bytes:
    """`_meta` for a server whose span is a child of this one, with hexadecimal ids. Everything else in it stays as it
    is, except a `tracestate` that belongs to no valid `traceparent`."""
    if meta is None:
        return b'{"traceparent":"00-%b-%b-%02x"}' % (trace_id, span_id, flags)
    own = b'"traceparent":"00-%b-%b-%02x"' % (trace_id, span_id, flags)
    if not has_parent and b'"trace' not in meta and b"\\" not in meta:
        body = meta.rstrip()[:-1]
        return body + (own if body.strip() == b"{" else b"," + own) + b"}"
    fields = decode_object(meta)
    if not has_parent:
        fields.pop("tracestate", None)
    fields["traceparent"] = Raw(own.partition(b":")[2])
    return encode(fields)


# Whether a new trace is kept: if it is below the sampler's ratio. From 0 to 1.
draw: Final = _random.random


def new_trace_id(drawn: float) -> bytes:
    """The id of a new trace that is kept, hexadecimal. Its second half begins with what was drawn, so that others keep
    it, too, if they decide by the id as `Sampler.keeps` does."""
    # Never zero.
    first = _random.getrandbits(64) | 1
    return b"%016x%016x" % (first, int(drawn * _CHANCES) << 11 | _random.getrandbits(11))


def two_span_ids() -> bytes:
    """Two new ids, hexadecimal, neither of which is zero."""
    return b"%032x" % (_random.getrandbits(128) | _NOT_ZERO)


class Sampler(NamedTuple):
    """Which calls are traced, as `OTEL_TRACES_SAMPLER` names it."""

    # Of the traces that begin here, or of all if the client's decision does not count.
    ratio: float = 1.0
    follows_parent: bool = True

    def keeps(self, parent: TraceContext) -> bool:
        """Whether a call of this trace is traced."""
        if self.follows_parent:
            return bool(parent.flags & SAMPLED_FLAG)
        # As OpenTelemetry's `TraceIdRatioBased`, so that other programs with the same ratio keep the same traces.
        return (parent.trace_id & (1 << 64) - 1) < self.ratio * _ALL


SAMPLERS: Final[dict[str, tuple[bool, Literal["on", "off", "ratio"]]]] = {
    "always_on": (False, "on"),
    "always_off": (False, "off"),
    "traceidratio": (False, "ratio"),
    "parentbased_always_on": (True, "on"),
    "parentbased_always_off": (True, "off"),
    "parentbased_traceidratio": (True, "ratio"),
}


def named_sampler(name: str, ratio: float) -> Sampler:
    follows_parent, kind = SAMPLERS[name]
    return Sampler({"on": 1.0, "off": 0.0, "ratio": ratio}[kind], follows_parent)
