"""Sealed states, by themselves: only what was sealed is opened, whatever is done to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.jsonrpc.messages import decode_object
from mcp_workbench.engine.protocol.sealed_state import BadState, Sealed, Sealer, digest_of

pytestmark = pytest.mark.bridge("request-state")

states = st.builds(
    Sealed,
    key=st.text(max_size=30),
    round=st.integers(0, 1000),
    principal=st.text(max_size=30),
    digest=st.text(max_size=70),
    expires=st.floats(1, 1e9),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
params = st.dictionaries(st.text(max_size=8), values, max_size=4)
SEALER = Sealer()


def opened(text: str, state: Sealed, sealer: Sealer = SEALER) -> Sealed:
    return sealer.open(text, principal=state.principal, digest=state.digest, now=0.0)


@given(states)
def test_sealing_round_trips(state: Sealed) -> None:
    text = SEALER.seal(state)
    assert SEALER.gave_out(text)
    assert opened(text, state) == state


@given(states, st.data())
def test_a_state_with_any_bit_flipped_is_refused(state: Sealed, data: st.DataObject) -> None:
    written = bytearray(SEALER.seal(state).encode())
    bit = data.draw(st.integers(0, len(written) * 8 - 1))
    written[bit // 8] ^= 1 << bit % 8
    text = written.decode("latin1")
    # What is no longer recognised as ours never gets as far as being opened; it would be refused all the same.
    with pytest.raises(BadState):
        opened(text, state)


@pytest.mark.parametrize("key", ["", "k", "ke"])
def test_every_single_bit_counts(key: str) -> None:
    """Whatever the length: base64 has bits to spare at the end of some."""
    state = Sealed(key, 1, "principal", "digest", 1.0)
    written = SEALER.seal(state).encode()
    for bit in range(len(written) * 8):
        flipped = bytearray(written)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadState):
            opened(flipped.decode("latin1"), state)


@given(states, st.text(max_size=40), st.integers(0, 200))
def test_a_state_with_something_put_into_it_or_cut_off_is_refused(state: Sealed, more: str, where: int) -> None:
    text = SEALER.seal(state)
    changed = text[:where] + more + text[where:]
    for other in {changed, text[:where], text[where:]} - {text}:
        with pytest.raises(BadState):
            opened(other, state)


@given(st.text())
def test_text_that_was_never_sealed_is_refused(text: str) -> None:
    state = Sealed("key", 1, "", "digest", 1.0)
    for other in (text, SEALER.seal(state)[: -len(text) - 1] + text):
        with pytest.raises(BadState):
            opened(other, state)


@given(states)
def test_a_state_of_another_secret_is_refused(state: Sealed) -> None:
    text = Sealer(b"one secret").seal(state)
    assert opened(text, state, Sealer(b"one secret")) == state
    with pytest.raises(BadState):
        opened(text, state, Sealer(b"another secret"))


@given(states, st.text(max_size=30), st.text(max_size=70), st.floats(0, 1e9))
def test_a_state_is_for_its_principal_its_request_and_its_time(
    state: Sealed, principal: str, digest: str, now: float
) -> None:
    text = SEALER.seal(state)
    if (principal, digest) == (state.principal, state.digest) and now < state.expires:
        assert SEALER.open(text, principal=principal, digest=digest, now=now) == state
    else:
        with pytest.raises(BadState):
            SEALER.open(text, principal=principal, digest=digest, now=now)


def digest(method: str, value: dict[str, Any], **how: Any) -> str:
    return digest_of(method, decode_object(json.dumps(value, **how).encode()))


@given(params, st.sampled_from([None, 1, 4]))
def test_a_digest_does_not_depend_on_how_the_parameters_are_written(value: dict[str, Any], indent: int | None) -> None:
    value = {key: each for key, each in value.items() if key not in ("inputResponses", "requestState")}
    turned = dict(reversed(value.items()))
    first = digest("tools/call", value)
    assert digest("tools/call", turned, indent=indent, ensure_ascii=False) == first
    retry = {**turned, "requestState": "s", "inputResponses": {"a": {}}}
    assert digest("tools/call", retry) == first, "what a retry adds is not part of the request"


@given(params, params)
def test_other_parameters_have_another_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    own = {key: value for key, value in one.items() if key not in ("inputResponses", "requestState")}
    others = {key: value for key, value in other.items() if key not in ("inputResponses", "requestState")}
    same = json.dumps(own, sort_keys=True) == json.dumps(others, sort_keys=True)
    assert (digest("tools/call", one) == digest("tools/call", other)) is same
    assert digest("tools/call", one) != digest("prompts/get", one)


@pytest.mark.parametrize("value", [b"7" * 5000, b"[" * 20_000 + b"]" * 20_000, rb'"\ud800"'])
def test_valid_json_that_python_does_not_read_has_a_digest_too(value: bytes) -> None:
    params = {"arguments": Raw(value)}
    assert digest_of("tools/call", params) == digest_of("tools/call", dict(params))
    assert digest_of("tools/call", params) != digest_of("tools/call", {"arguments": Raw(b"7")})
