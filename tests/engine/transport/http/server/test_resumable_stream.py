"""Event ids of streams that another instance may be asked to resume."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from mcp_workbench.engine.transport.http.server.resumable_stream import (
    MAX_REQUEST_ID_BYTES,
    STANDALONE,
    ReplayBudget,
    ResumableStream,
    parse_event_id,
)


class Written:
    """The connection of a client that reads everything."""

    unsent_bytes = 0

    def __init__(self) -> None:
        self.text = ""
        self.gone: Any = None

    def begin(self, status: int, headers: bytes) -> None:
        assert status == 200

    def write(self, data: bytes) -> None:
        self.text += data.decode()

    @property
    def ids(self) -> list[str]:
        return [line.removeprefix("id: ") for line in self.text.splitlines() if line.startswith("id:")]


def stream(number: int, request: bytes | None = None) -> ResumableStream:
    return ResumableStream(number, ReplayBudget(1 << 20), Limits(), lambda number: None, request)


def test_events_of_another_instance_do_not_hide_ours() -> None:
    taken_over = stream(STANDALONE)
    taken_over.number_from(1000)
    taken_over.put(b"{}")
    written = Written()
    taken_over.resume(cast("ResponseWriter", written), 5)
    assert written.ids == ["0-1001"], "the client has seen five events of another instance, and not this one"


@pytest.mark.parametrize("request_id", [b"7", b'"a-b/c?\\u00fc"', b'"' + b"x" * (MAX_REQUEST_ID_BYTES - 2) + b'"'])
def test_event_id_tells_the_request(request_id: bytes) -> None:
    written = Written()
    of_request = stream(3, request_id)
    of_request.resume(cast("ResponseWriter", written), 0)
    of_request.put(b"{}")
    (id,) = written.ids
    assert parse_event_id(id) == (3, 1, request_id)


def test_long_request_id_is_not_told() -> None:
    written = Written()
    of_request = stream(3, b'"' + b"x" * MAX_REQUEST_ID_BYTES + b'"')
    of_request.resume(cast("ResponseWriter", written), 0)
    of_request.put(b"{}")
    assert written.ids == ["3-1"]
    assert parse_event_id("3-1") == (3, 1, None)


@pytest.mark.parametrize("text", ["", "1", "a-1", "1-a", "1-", "-1", "1-1" + "-" * 200, "ü-1", f"{'1' * 30}-1"])
def test_other_event_ids_are_refused(text: str) -> None:
    assert parse_event_id(text) is None


@pytest.mark.parametrize("request_id", ["!!", "e30=", "bnVsbA==", "W10="])
def test_event_id_tells_no_request_but_a_valid_id(request_id: str) -> None:
    found = parse_event_id(f"1-1-{request_id}")
    assert found is not None and found.request is None
