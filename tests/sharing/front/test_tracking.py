"""What is under way is told from the bytes that pass, however clients write them and however they are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.sharing.front.tracking import ANSWER, MAX_DECODED_LINE_BYTES, REQUEST, Tracking, messages_in

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"id": 99, "x": {"id": "no"}}}
FORMS = {
    "id first": json.dumps(CALL, separators=(",", ":")),
    "id first, with spaces": json.dumps(CALL),
    "id last": '{"method":"tools/call","params":{"id":99},"jsonrpc":"2.0","id":7}',
    "id last, with spaces": '{"jsonrpc": "2.0", "method": "tools/call", "params": {"id": 99}, "id": 7}',
    "id in the middle": '{"method":"tools/call","id":7,"params":{"x":[{"id":99}]},"jsonrpc":"2.0"}',
    "more spaces": '{ "jsonrpc" : "2.0" , "id" : 7 , "method" : "x" }',
    "a nested id last": '{"id":7,"jsonrpc":"2.0","method":"x","params":{"a":1,"id":99}}',
}


@pytest.mark.parametrize("written", FORMS.values(), ids=FORMS)
def test_the_id_of_a_request_is_found_wherever_it_stands(written: str) -> None:
    assert messages_in(written.encode()) == [(REQUEST, b"7")]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (b'{"jsonrpc":"2.0","id":"a\\"b,","method":"x"}', [(REQUEST, b'"a\\"b,"')]),
        (b'{"method":"x","jsonrpc":"2.0","id":"a\\\\"}', [(REQUEST, b'"a\\\\"')]),
        (b'{"jsonrpc":"2.0","id":3,"result":{}}', [(ANSWER, b"3")]),
        (b'{"result":{"id":4},"jsonrpc":"2.0","id":3}', [(ANSWER, b"3")]),
        (b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":""}}', [(ANSWER, b"3")]),
        (b'[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","method":"n"}]', [(REQUEST, b"1")]),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}', []),
        (b'{"jsonrpc":"2.0","method":"notifications/x","params":{"id":5}}', []),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}', [("cancelled", b"5")]),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', []),
        (b'{"id":', []),
        (b"no json at all with an \"id\" in it", []),
        (b"", []),
    ],
)  # fmt: skip
def test_every_kind_of_line_is_understood(written: bytes, found: list[tuple[str, bytes]]) -> None:
    assert [each for each in messages_in(written) if each[1] != b"null"] == found


def test_an_answer_ends_a_request_and_so_does_cancelling_it() -> None:
    tracking = Tracking()
    for number in range(3):
        tracking.sent(b'{"jsonrpc":"2.0","id":%d,"method":"x"}\n' % number)
    tracking.received(b'{"jsonrpc":"2.0","id":1,"result":{"id":0}}\n')
    tracking.sent(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}\n')
    assert tracking.clear() == ([b"0"], [])
    assert tracking.clear() == ([], [])


def test_an_id_that_is_used_twice_is_answered_twice() -> None:
    tracking = Tracking()
    tracking.sent(b'{"jsonrpc":"2.0","id":1,"method":"x"}\n' * 2)
    tracking.received(b'{"jsonrpc":"2.0","id":1,"error":{}}\n')
    assert tracking.clear() == ([b"1"], [])


def test_requests_that_last_are_not_failed() -> None:
    tracking = Tracking()
    tracking.sent(b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}\n{"jsonrpc":"2.0","id":2,"method":"x"}\n')
    tracking.lasting.add(b"1")
    assert tracking.clear() == ([b"2"], [])
    tracking.received(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
    tracking.catch_up()
    assert tracking.requests == {} and tracking.lasting == set()


def test_questions_of_servers_are_open_until_the_client_answers() -> None:
    tracking = Tracking()
    tracking.received(b'{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{}}\n' * 1)
    tracking.received(b'{"jsonrpc":"2.0","id":6,"method":"roots/list"}\n')
    tracking.sent(b'{"result":{"roots":[]},"jsonrpc":"2.0","id":6}\n')
    assert tracking.clear() == ([], [b"5"])


def test_a_line_that_is_not_whole_is_finished_after_the_connection_is_gone() -> None:
    tracking = Tracking()
    tracking.sent(b'{"method":"tools/call","params":{"text":"' + b"x" * 2_000_000)
    assert tracking.clear() == ([], [])
    tracking.add_to_unfinished(b'yyy"},"jsonrpc":"2.0","id":"last"}')
    assert tracking.take_unfinished() == [b'"last"']


IDS = st.one_of(st.integers(0, 10**9), st.text(max_size=12))
MESSAGES = st.builds(
    lambda id, method, params, sort: (
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        if sort
        else {"method": method, "params": params, "jsonrpc": "2.0", "id": id}
    ),
    IDS,
    st.text(max_size=10),
    st.dictionaries(st.sampled_from(["id", "method", "result", "x"]), st.one_of(IDS, st.lists(IDS, max_size=3))),
    st.booleans(),
)


@given(st.lists(MESSAGES, max_size=6), st.booleans(), st.booleans(), st.lists(st.integers(1, 60), max_size=20))
def test_every_request_is_found_however_it_is_cut(
    requests: list[dict[str, Any]], compact: bool, ascii: bool, cuts: list[int]
) -> None:
    separators = (",", ":") if compact else (", ", ": ")
    written = b"".join(
        json.dumps(each, separators=separators, ensure_ascii=ascii).encode() + b"\n" for each in requests
    )
    tracking = Tracking()
    for cut in cuts:
        tracking.sent(written[:cut])
        written = written[cut:]
    tracking.sent(written)
    tracking.catch_up()
    assert sum(tracking.requests.values()) == len(requests)
    for each in requests:
        id = json.dumps(each["id"], ensure_ascii=ascii).encode()
        tracking.received(b'{"jsonrpc":"2.0","id":%b,"result":{"id":1}}\n' % id)
    assert tracking.clear() == ([], [])


@pytest.mark.parametrize("id", [b"1e3", b"1.50", b"-0.0", b'"\\u0041b"', b'"a\\/b"'])
def test_an_id_in_an_unusual_form_is_kept_as_it_is_written(id: bytes) -> None:
    assert messages_in(b'{ "id" : %b, "method": "x", "jsonrpc": "2.0" }' % id) == [(REQUEST, id)]


@pytest.mark.parametrize(
    "head",
    [
        b'{"jsonrpc":"2.0","method":"tools/call","id":%b,"params":{"id":5,"x":"',
        b'{"jsonrpc":"2.0","method":"tools/call","_meta":{"id":1,"a":["id",{}]},"id" : %b , "params":{"x":"',
    ],
)
@pytest.mark.parametrize("id", [b"7", b'"a\\"b"'])
def test_the_id_of_a_long_request_is_found_before_its_largest_member(head: bytes, id: bytes) -> None:
    tracking = Tracking()
    for piece in (head % id, b"x" * MAX_DECODED_LINE_BYTES, b"y" * MAX_DECODED_LINE_BYTES, b'"}}\n'):
        tracking.sent(piece)
    assert tracking.clear() == ([id], [])


@pytest.mark.parametrize(
    ("tail", "id"),
    [
        (b'"},"id":7,"method":"tools/call","jsonrpc":"2.0"}\n', b"7"),
        (b'"}, "id" : "a\\"b" , "method" : "x" }\n', b'"a\\"b"'),
        (b'","id":1},"id":7,"jsonrpc":"2.0"}\n', b"7"),
        (b'\\"id\\":9","z":{}},"jsonrpc":"2.0","id":7,"method":"x"}\n', b"7"),
    ],
)
def test_the_id_of_a_long_request_is_found_behind_its_largest_member(tail: bytes, id: bytes) -> None:
    tracking = Tracking()
    for piece in (b'{"params":{"method":"', b"x" * MAX_DECODED_LINE_BYTES, b"y" * MAX_DECODED_LINE_BYTES, tail):
        tracking.sent(piece)
    assert tracking.clear() == ([id], [])


@pytest.mark.parametrize(
    "tail",
    [
        b'","id":7}}\n',
        b'","id":7,"x":"y"},"method":"z"}\n',
        b'","more":[{"id":7,"x":"y"}]},"method":"z"}\n',
        b'\\"id\\":7}"}}\n',
        b'"},"id":{"a":7}}\n',
        b'"},"method":"x","id"}\n',
    ],
)
def test_text_resembling_an_id_behind_a_large_member_is_ignored(tail: bytes) -> None:
    tracking = Tracking()
    for piece in (b'{"params":{"x":"', b"x" * 2 * MAX_DECODED_LINE_BYTES, tail):
        tracking.sent(piece)
    assert tracking.clear() == ([], [])


def test_text_resembling_the_id_of_a_long_line_is_ignored() -> None:
    tracking = Tracking()
    for piece in (b'{"jsonrpc":"2.0","method":"x","params":{"id":7,"x":"', b"x" * 2 * MAX_DECODED_LINE_BYTES, b'"}}\n'):
        tracking.sent(piece)
    assert tracking.clear() == ([], [])
