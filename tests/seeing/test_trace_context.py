"""Context of traces in `_meta`, and which traces are kept."""

from __future__ import annotations

import json

import pytest

from mcp_workbench.seeing.trace_context import (
    Sampler,
    TraceContext,
    draw,
    named_sampler,
    new_trace_id,
    parse_traceparent,
    read_context,
    with_traceparent,
)

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
VALID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (VALID, 1),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", 0),
        # A later version may have more; what we know of it counts.
        ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-what the future brings", 3),
    ],
)
def test_valid_traceparent_is_read(text: str, flags: int) -> None:
    assert parse_traceparent(text) == TraceContext(TRACE, SPAN, flags)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        VALID.upper(),
        VALID + " ",
        VALID + "\n",
        VALID + "-more",
        VALID.replace("00-", "ff-", 1),
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
    ],
)
def test_invalid_traceparent_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


@pytest.mark.parametrize(
    ("meta", "state"),
    [
        ({"traceparent": VALID}, ""),
        ({"other": 1, "traceparent": VALID, "tracestate": "a=1,b=2"}, "a=1,b=2"),
        ({"traceparent": VALID, "tracestate": 7}, ""),
        ({"traceparent": VALID, "tracestate": "a=" + "1" * 600}, ""),
    ],
)
def test_context_is_read_with_its_state(meta: dict[str, object], state: str) -> None:
    assert read_context(json.dumps(meta).encode()) == TraceContext(TRACE, SPAN, 1, state)


def test_escaped_name_is_the_same_name() -> None:
    written = b'{"trace\\u0070arent":"%b"}' % VALID.encode()
    assert read_context(written) == TraceContext(TRACE, SPAN, 1)
    assert json.loads(with_traceparent(written, b"%032x" % 1, b"%016x" % 2, 1, has_parent=True)) == {
        "traceparent": "00-00000000000000000000000000000001-0000000000000002-01"
    }


@pytest.mark.parametrize(
    "meta", [b"{}", b'{"traceparent":7}', b'{"traceparent":"x"}', b'{"nested":{"traceparent":"x"}}']
)
def test_without_a_valid_one_there_is_no_context(meta: bytes) -> None:
    assert read_context(meta) is None


OURS = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000005-01"


@pytest.mark.parametrize(
    ("meta", "has_parent", "expected"),
    [
        (None, False, {"traceparent": OURS}),
        (b"{}", False, {"traceparent": OURS}),
        (b" { } ", False, {"traceparent": OURS}),
        (b'{"a":1.0}', False, {"a": 1.0, "traceparent": OURS}),
        (
            json.dumps({"traceparent": VALID, "tracestate": "a=1", "baggage": "b=2", "c": [3]}).encode(),
            True,
            {"traceparent": OURS, "tracestate": "a=1", "baggage": "b=2", "c": [3]},
        ),
        # A state belongs to the trace that could not be read.
        (
            b'{"traceparent":"invalid","tracestate":"a=1","baggage":"b=2"}',
            False,
            {"traceparent": OURS, "baggage": "b=2"},
        ),
    ],
)
def test_server_is_given_our_span_and_everything_else_unchanged(
    meta: bytes | None, has_parent: bool, expected: dict[str, object]
) -> None:
    assert json.loads(with_traceparent(meta, b"%032x" % TRACE, b"%016x" % 5, 1, has_parent=has_parent)) == expected


LOW, HIGH = 1, (1 << 64) - 1


@pytest.mark.parametrize(
    ("name", "trace_id", "flags", "expected"),
    [
        ("always_on", HIGH, 0, True),
        ("always_off", LOW, 1, False),
        ("traceidratio", HIGH, 1, False),
        ("traceidratio", LOW, 0, True),
        ("parentbased_always_on", HIGH, 0, False),
        ("parentbased_always_off", LOW, 1, True),
        ("parentbased_traceidratio", HIGH, 1, True),
        ("parentbased_traceidratio", LOW, 0, False),
    ],
)
def test_samplers_decide_about_a_clients_trace_as_opentelemetry_names_them(
    name: str, trace_id: int, flags: int, expected: bool
) -> None:
    assert named_sampler(name, 0.5).keeps(TraceContext(trace_id, SPAN, flags)) is expected


@pytest.mark.parametrize(("name", "ratio"), [("always_off", 0.0), ("always_on", 1.0), ("traceidratio", 0.5)])
@pytest.mark.parametrize("prefix", ["", "parentbased_"])
def test_samplers_keep_new_traces_as_opentelemetry_names_them(prefix: str, name: str, ratio: float) -> None:
    assert named_sampler(prefix + name, 0.5).ratio == ratio


def test_new_traces_are_kept_by_others_that_keep_as_many() -> None:
    drawn = [draw() for _ in range(1000)]
    ids = [int(new_trace_id(each), 16) for each in drawn]
    assert len(set(ids)) == len(ids) and max(ids) > 1 << 120
    sampler = Sampler(0.5, follows_parent=False)
    assert [sampler.keeps(TraceContext(each, SPAN, 0)) for each in ids] == [each < 0.5 for each in drawn]
    assert 300 < sum(each < 0.5 for each in drawn) < 700
    # The bits that were not drawn differ, too.
    assert len({each & 0x7FF for each in ids}) > 100


def test_ratio_looks_at_the_part_of_the_id_that_others_look_at() -> None:
    sampler = Sampler(0.25, follows_parent=False)
    assert sampler.keeps(TraceContext(HIGH << 64 | (1 << 61), SPAN, 0))
    assert not sampler.keeps(TraceContext(1 << 63, SPAN, 0))
