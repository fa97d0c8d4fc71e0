"""What a reader takes from requests that follow each other, without a connection."""

from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.transport.http.server.body_budget import BodyBudget
from mcp_workbench.engine.transport.http.server.limits import SMALL_BODY, Limits
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.request_reader import CompleteRequest, RequestReader
from tests.engine.transport.http.server.raw_client import modern, modern_headers, written

BODIES = [json.dumps(modern("echo", id=number)).encode() for number in (1, 2)]


class _Admitting:
    """Admits every request as this principal's (`RequestReceiver`)."""

    def __init__(self, principal: str = "") -> None:
        self.principal = principal
        self.heads: list[RequestHead] = []
        self.complete: list[CompleteRequest] = []

    def head_arrived(self, head: RequestHead) -> None:
        head.principal, head.takes_body = self.principal, True
        self.heads.append(head)

    def body_awaited(self) -> None:
        raise AssertionError("no client waits")

    def refused(self, head: RequestHead) -> None:
        raise AssertionError(head.refusal)

    def arrived(self, request: CompleteRequest) -> None:
        self.complete.append(request)


def reading(principal: str = "") -> tuple[RequestReader, _Admitting, BodyBudget]:
    receiver, budget = _Admitting(principal), BodyBudget(10 * SMALL_BODY)
    return RequestReader(receiver, Limits(), budget), receiver, budget


@pytest.mark.parametrize("step", [1, 13, 100_000])
async def test_requests_that_would_switch_protocols_are_read_one_after_the_other(step: int) -> None:
    reader, receiver, _ = reading()
    data = b"".join(
        written("POST", "/mcp", body, **modern_headers("echo"), connection="Upgrade, HTTP2-Settings", upgrade="h2c")
        for body in BODIES
    )
    for start in range(0, len(data), step):
        assert reader.feed(data[start : start + step]) is None
    assert [bytes(each.body) for each in receiver.complete if isinstance(each.body, bytes)] == BODIES
    assert reader.head is None and reader.principal == ""
    reader.close()


async def test_parameters_are_the_headers_with_their_prefix_and_no_others() -> None:
    reader, receiver, _ = reading()
    more = {"mcp_param_region": "eu", "MCP_PARAM_Zone": "a", "x_region": "us", "mcp_params": "b"}
    reader.feed(written("POST", "/mcp", BODIES[0], **modern_headers("echo"), **more))
    assert receiver.heads[0].parameters == {"mcp-param-region": ["eu"], "mcp-param-zone": ["a"]}
    reader.close()


async def test_a_body_is_held_against_whose_it_was_when_it_began() -> None:
    reader, receiver, budget = reading("first")
    chunk = b"%x\r\n%b\r\n" % (SMALL_BODY, b" " * SMALL_BODY)
    head = written("POST", "/mcp", None, **modern_headers("echo"), transfer_encoding="chunked", content_length=None)
    reader.feed(head + chunk)
    assert reader.principal == "first"
    receiver.heads[0].principal = "second"
    reader.feed(chunk)
    assert budget.reserved == 2 * SMALL_BODY and set(budget._held) == {"first"}
    reader.close()
    assert budget.reserved == 0 and budget._held == {}
