"""What is told of servers: every byte in both directions, over all their lives, and those that nobody has used."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_workbench.engine.config.problems import Problem
from mcp_workbench.engine.downstream.server_status import status_of
from mcp_workbench.errors import DownstreamError
from tests.engine.downstream.fakes import FakeLink, FakeServer


def told(server: FakeServer) -> dict[str, Any]:
    now = asyncio.get_running_loop().time()
    (found,) = status_of(server.catalog.entries(), [server.connection], now)
    return found


def count_bytes(server: FakeServer) -> list[bytes]:
    """Everything that any link is asked to send, from now on."""
    sent: list[bytes] = []
    send = FakeLink.send

    def counting(link: FakeLink, *parts: Any, about: bytes | None = None) -> None:
        sent.append(b"".join(map(bytes, parts)))
        if b'"method"' in sent[-1]:
            send(link, *parts, about=about)

    server.link_type = type("Counting", (FakeLink,), {"send": counting})
    return sent


async def test_unused_server_is_listed_too() -> None:
    async with FakeServer() as server:
        (found,) = status_of(server.catalog.entries(), [], 0.0)
        assert (found["toolbox"], found["server"], found["state"], found["starts"]) == (
            "box",
            "server",
            "configured",
            0,
        )
        assert found.keys() == told(server).keys()


async def test_a_server_that_lacks_a_variable_has_failed_before_anybody_uses_it() -> None:
    lacking = Problem(steps=("env", "KEY"), found="the variable `KEY` is not set")
    async with FakeServer(unresolved=(lacking,)) as server:
        (found,) = status_of(server.catalog.entries(), [], 0.0)
        assert (found["state"], found["starts"]) == ("failed", 0)
        assert "the variable `KEY` is not set" in str(found["lastError"])


async def test_a_server_that_lacks_a_variable_has_still_failed_after_a_call() -> None:
    """Nothing was started, so no failure of a start says so."""
    lacking = Problem(steps=("env", "KEY"), found="the variable `KEY` is not set")
    async with FakeServer(unresolved=(lacking,)) as server:
        found = told(server)
        assert (found["state"], found["starts"]) == ("failed", 0)
        assert "the variable `KEY` is not set" in found["lastError"]


async def test_our_own_requests_notifications_and_answers_count_as_sent() -> None:
    async with FakeServer() as server:
        sent = count_bytes(server)
        await server.connection.ensure_listed()
        server.connection.traffic.on_message(b'{"jsonrpc":"2.0","id":"p","method":"ping"}')
        server.connection.traffic.on_message(b'{"jsonrpc":"2.0","id":"q","method":"roots/list"}')
        assert {json.loads(each).get("method") for each in sent} >= {"initialize", "notifications/initialized", None}
        assert len([each for each in sent if b'"method"' not in each]) == 2
        assert told(server)["bytesSent"] == sum(map(len, sent)) > 0


async def test_counts_survive_a_crash() -> None:
    async with FakeServer() as server:
        sent = count_bytes(server)
        await server.connection.ensure_listed()
        server.connection.traffic.on_message(b"noise")
        server.connection.traffic.on_message(b'{"jsonrpc":"2.0","id":99,"result":{}}')
        received = told(server)["bytesReceived"]
        server.links[0].die("the server exited with status 7")
        first = told(server)
        assert (first["state"], first["lastError"]) == ("backoff", "the server exited with status 7")
        assert first["lastErrorSecondsAgo"] >= 0
        await server.connection.ensure_listed()
        again = told(server)
        assert (again["state"], again["starts"], again["failures"]) == ("ready", 2, 1)
        assert (again["noiseLines"], again["unmatchedAnswers"]) == (1, 1)
        assert again["bytesSent"] == sum(map(len, sent))
        assert again["bytesReceived"] > received


async def test_a_list_that_cannot_be_had_is_the_last_error_of_a_server_that_is_up() -> None:
    async with FakeServer() as server:
        server.answers["tools/list"] = {"tools": 5}
        with pytest.raises(DownstreamError) as failed:
            await server.connection.ensure_listed()
        found = told(server)
        assert (found["state"], found["tools"], found["lastError"]) == ("ready", None, failed.value.message)


async def test_a_request_that_got_no_answer_is_the_last_error_of_a_server_that_is_never_gone() -> None:
    async with FakeServer() as server:
        await server.connection.ensure_listed()
        traffic = server.connection.traffic
        asking = asyncio.create_task(traffic.ask("tools/call", b"{}"))
        await asyncio.sleep(0)
        (exchange,) = traffic.pending.values()
        traffic.on_request_failed(b"%d" % exchange.wire_id, DownstreamError("nothing is listening at http://x"))
        with pytest.raises(DownstreamError, match="nothing is listening"):
            await asking
        found = told(server)
        assert (found["state"], found["failures"], found["lastError"]) == (
            "ready",
            0,
            "nothing is listening at http://x",
        )
