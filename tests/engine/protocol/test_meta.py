"""`_meta` on its way from a client of either era to a server of either era."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.protocol.constants import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from mcp_workbench.engine.protocol.meta import (
    HOP_KEYS,
    MAX_CAPABILITIES_BYTES,
    TOO_CAPABLE,
    BadStamp,
    Stamp,
    canonical,
    meta_for_server,
    read_stamp,
    usable,
    without_capabilities,
)
from mcp_workbench.engine.protocol.revisions import Era, Revision, newest

LEGACY, MODERN = newest("legacy"), newest("modern")
NEXT = Revision("2027-06-30")
INFO, CAPABILITIES = b'{"name":"client","version":"1"}', b'{"sampling":{}}'
STAMP = {
    PROTOCOL_VERSION: "2026-07-28",
    CLIENT_INFO: {"name": "client", "version": "1"},
    CLIENT_CAPABILITIES: {"sampling": {}},
}
THEIR_STAMP = {
    PROTOCOL_VERSION: "2026-07-28",
    CLIENT_INFO: {"name": "other", "version": "2"},
    CLIENT_CAPABILITIES: {"roots": {}},
}
THEIR_INFO = json.dumps(THEIR_STAMP[CLIENT_INFO]).encode()


def sent(
    meta: dict[str, Any] | None, era: Era, *, from_modern: bool, token: int | None = None, level: str | None = None
) -> dict[str, Any] | None:
    return between(MODERN if from_modern else LEGACY, newest(era), meta, token, level)


def between(
    client: Revision,
    server: Revision,
    meta: dict[str, Any] | None,
    token: int | None = None,
    level: str | None = None,
) -> dict[str, Any] | None:
    written = meta_for_server(
        None if meta is None else Raw(json.dumps(meta).encode()),
        client=client,
        server=server,
        info=INFO,
        capabilities=CAPABILITIES,
        progress_token=token,
        log_level=level,
    )
    if written is None:
        return None
    read: dict[str, Any] = json.loads(written)
    return read


def test_a_legacy_request_to_a_legacy_server_keeps_its_meta() -> None:
    assert sent(None, "legacy", from_modern=False) is None
    assert sent({}, "legacy", from_modern=False) is None
    assert sent({"a": 1}, "legacy", from_modern=False) == {"a": 1}


def test_a_legacy_request_to_a_modern_server_is_stamped() -> None:
    assert sent(None, "modern", from_modern=False) == STAMP
    assert sent({"a": 1}, "modern", from_modern=False) == {**STAMP, "a": 1}
    assert sent(None, "modern", from_modern=False, level="info") == {**STAMP, LOG_LEVEL: "info"}
    assert sent({"a": 1, **THEIR_STAMP, LOG_LEVEL: "debug"}, "modern", from_modern=False) == {**STAMP, "a": 1}, (
        "what a legacy client declared in its handshake counts"
    )


def test_a_modern_request_to_a_modern_server_keeps_its_own_stamp() -> None:
    meta = {**THEIR_STAMP, LOG_LEVEL: "debug", "a": [1, None]}
    assert sent(meta, "modern", from_modern=True) == meta


@pytest.mark.parametrize("token", [None, 7])
@pytest.mark.parametrize(("client", "server"), [(MODERN, NEXT), (NEXT, MODERN)])
def test_a_server_is_sent_the_revision_that_it_agreed_to(client: Revision, server: Revision, token: int | None) -> None:
    meta = {**THEIR_STAMP, PROTOCOL_VERSION: client.name, "a": 1, "progressToken": 1}
    expected = {**meta, PROTOCOL_VERSION: server.name, **({} if token is None else {"progressToken": token})}
    assert between(client, server, meta, token) == expected
    assert between(LEGACY, server, None) == {**STAMP, PROTOCOL_VERSION: server.name}


def test_modern_request_to_a_legacy_server_loses_hop_metadata() -> None:
    assert sent({**THEIR_STAMP, LOG_LEVEL: "debug"}, "legacy", from_modern=True) is None
    assert sent({**THEIR_STAMP, "a": 1}, "legacy", from_modern=True) == {"a": 1}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("from_modern", [False, True])
def test_a_progress_token_is_replaced_by_ours(era: Era, from_modern: bool) -> None:
    meta = {**(THEIR_STAMP if from_modern else {}), "progressToken": "the client's", "a": 1}
    received = sent(meta, era, from_modern=from_modern, token=42)
    assert received is not None
    assert (received["progressToken"], received["a"]) == (42, 1)
    if era == "legacy":
        assert received == {"progressToken": 42, "a": 1}, "the stamp belongs to the hop"


@pytest.mark.requirement("faithful.meta")
@given(
    st.dictionaries(st.text(max_size=10), st.integers() | st.text(max_size=5) | st.none(), max_size=5),
    st.sampled_from(["legacy", "modern"]),
    st.booleans(),
)
def test_metadata_of_no_era_always_passes(meta: dict[str, Any], era: Era, from_modern: bool) -> None:
    own = {key: value for key, value in meta.items() if key not in HOP_KEYS and key != "progressToken"}
    received = sent({**own, **(THEIR_STAMP if from_modern else {})}, era, from_modern=from_modern) or {}
    assert {key: value for key, value in received.items() if key not in HOP_KEYS} == own


def test_numbers_in_meta_are_not_decoded_and_encoded_again() -> None:
    raw = Raw(b'{"a":1.10,"b":123456789012345678901234567890,"progressToken":1}')
    written = meta_for_server(
        raw, client=LEGACY, server=LEGACY, info=INFO, capabilities=CAPABILITIES, progress_token=7, log_level=None
    )
    assert written == b'{"a":1.10,"b":123456789012345678901234567890,"progressToken":7}'


def stamped(**more: object) -> Raw:
    return Raw(json.dumps({**THEIR_STAMP, **more}).encode())


def test_stamp_has_version_client_and_capabilities() -> None:
    stamp = read_stamp(stamped(**{LOG_LEVEL: "info", "progressToken": "t", "a": 1}))
    assert stamp == Stamp(MODERN, b'{"roots":{}}', "info", Raw(b'"t"'), THEIR_INFO)
    assert read_stamp(stamped()) == Stamp(MODERN, b'{"roots":{}}', client_info=THEIR_INFO)
    assert read_stamp(Raw(b'{"a":1,"progressToken":5}')) == Stamp(progress_token=Raw(b"5")), "not a stamp at all"


def test_order_of_capabilities_does_not_matter() -> None:
    one, other = ({"roots": {}, "sampling": {"a": 1, "b": 2}}, {"sampling": {"b": 2, "a": 1}, "roots": {}})
    stamps = [read_stamp(stamped(**{CLIENT_CAPABILITIES: each})) for each in (one, other)]
    assert isinstance(stamps[0], Stamp) and stamps[0] == stamps[1]
    assert read_stamp(stamped(**{CLIENT_CAPABILITIES: []})) == Stamp(MODERN, client_info=THEIR_INFO), (
        "what makes no sense is none"
    )


@pytest.mark.parametrize(
    ("meta", "code", "words"),
    [
        (stamped(**{PROTOCOL_VERSION: "2027-01-01"}), -32022, "Unsupported protocol version"),
        (stamped(**{PROTOCOL_VERSION: LEGACY.name}), -32022, "Unsupported protocol version"),
        (stamped(**{PROTOCOL_VERSION: 5}), -32602, "`_meta` cannot be used"),
        (Raw(b"[]"), -32602, "`_meta` cannot be used"),
        (Raw(b'{"%b":"2026-07-28"}' % PROTOCOL_VERSION.encode()), -32602, "clientCapabilities"),
        (stamped(**{LOG_LEVEL: "loud"}), -32602, "logLevel"),
        (stamped(**{CLIENT_CAPABILITIES: {"x": "y" * MAX_CAPABILITIES_BYTES}}), -32602, TOO_CAPABLE),
    ],
)
def test_a_bad_stamp_is_refused_each_time(meta: Raw, code: int, words: str) -> None:
    for _ in range(2):
        found = read_stamp(meta)
        assert isinstance(found, BadStamp)
        assert found.code == code and words in found.message
        if code == -32022:
            asked = json.loads(bytes(meta))[PROTOCOL_VERSION]
            assert found.data == {"supported": ("2026-07-28",), "requested": asked}


def test_that_a_client_announces_changed_roots_is_usable() -> None:
    assert usable(b'{"roots":{"listChanged":true},"sampling":true}') == b'{"roots":{"listChanged":true},"sampling":{}}'
    assert usable(b'{"roots":{"listChanged":false}}') == usable(b'{"roots":{}}') == b'{"roots":{}}'


def test_capabilities_may_be_as_large_as_the_limit() -> None:
    written = b'{"x":"%b"}'
    largest = written % (b"y" * (MAX_CAPABILITIES_BYTES - len(written % b"")))
    assert len(largest) == MAX_CAPABILITIES_BYTES and canonical(largest) == largest
    assert canonical(largest + b" ") is None


def test_a_stamp_without_its_capabilities_keeps_the_rest() -> None:
    meta = {**THEIR_STAMP, "a": 1}
    assert json.loads(bytes(without_capabilities(stamped(a=1)))) == {**meta, CLIENT_CAPABILITIES: {}}
    assert without_capabilities(Raw(b'{"a": 1}')) == Raw(b'{"a": 1}'), "there is nothing to remove"


def test_capabilities_that_are_nested_beyond_all_measure_are_none() -> None:
    deep = (
        b'{"experimental":'
        + b"[" * (MAX_CAPABILITIES_BYTES // 2 - 50)
        + b"]" * (MAX_CAPABILITIES_BYTES // 2 - 50)
        + b"}"
    )
    assert len(deep) <= MAX_CAPABILITIES_BYTES
    assert canonical(deep) == usable(deep) == b"{}"
    assert canonical(b'{"roots":{},"experimental":{"a":{}}}') == b'{"experimental":{"a":{}},"roots":{}}'
