"""The way of a large request through the event loop: nothing of it is copied, so that nobody else has to wait."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.config.policy_settings import LimitRule
from mcp_workbench.engine.downstream.fair_requests import MAX_REQUESTS_IN_PROGRESS
from mcp_workbench.engine.jsonrpc.large_messages import read_large
from mcp_workbench.engine.jsonrpc.messages import MAX_JOINED_BYTES, LargeBody, Part, open_object
from tests.bridge.in_process import Client, InProcessWorkbench, Json, in_process_workbench, until
from tests.support.parts import joined

LARGE = 8 << 20


def line(client: Client, method: str, params: Json) -> bytes:
    meta = client.stamp() if client.era == "modern" else {"progressToken": 7}
    message = {"jsonrpc": "2.0", "id": 77, "method": method, "params": {**params, "_meta": meta}}
    return json.dumps(message, separators=(",", ":")).encode()


def allocated(client: Client, text: bytes) -> int:
    """Handle a request that was read in a thread. Returns how much memory that takes on the event loop."""
    message = read_large(text)
    tracemalloc.start()
    try:
        client.session.on_read_message(text, message)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def handled(workbench: InProcessWorkbench, client: Client, method: str, params: Json) -> tuple[int, Json]:
    """Returns how much memory was taken, and what the server got."""
    server = workbench.gateway.fake_servers[0]
    sent: list[tuple[Part, ...]] = []
    server.send = lambda *parts, about=None: sent.append(parts)  # type: ignore[method-assign]
    peak = allocated(client, line(client, method, params))
    await until(lambda: bool(sent))
    (parts,) = sent
    received: Json = json.loads(joined(parts))
    return peak, received


@pytest.mark.parametrize("has_limits", [False, True])
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(("face", "route"), [("proxy", "tool"), ("flat", "tool"), ("flat", "prompt")])
async def test_nothing_large_is_copied(face: FaceName, route: str, era: str, has_limits: bool) -> None:
    limits = (LimitRule(who=("*",), calls_per_minute=1000),) if has_limits else ()
    async with in_process_workbench(era, face=face, limits=limits) as workbench:
        client = workbench.client(era)
        await workbench.connect(client)
        arguments = {"text": "x" * LARGE, "small": [1, {"two": None}], "more": "y" * 100_000}
        # A member that nobody knows is large, too.
        unknown = {"a": 1, "text": "z" * (LARGE // 2)}
        method, params = client.written(route, arguments=arguments, unknown=unknown, other=None)
        peak, received = await handled(workbench, client, method, params)
        assert peak < LARGE // 16
        assert received["method"] == method
        del received["params"]["_meta"]
        name = "work" if route == "tool" else "write"
        assert received["params"] == {"name": name, "arguments": arguments, "unknown": unknown, "other": None}


async def test_queued_messages_are_not_copied_either() -> None:
    """Of a client that has its share of a shared server in progress."""
    async with in_process_workbench("legacy") as workbench:
        workbench.gateway.runtime.pool.serve_many()
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        others = [client.call() for _ in range(MAX_REQUESTS_IN_PROGRESS)]
        calls = server.requests("tools/call")
        before = server.traffic.bytes_sent
        method, params = client.written("tool", arguments={"text": "x" * LARGE})
        sent: list[tuple[Part, ...]] = []
        server.send = lambda *parts, about=None: sent.append(parts)  # type: ignore[method-assign]
        text = line(client, method, params)
        assert allocated(client, text) < LARGE // 16 and sent == [] and server.traffic.bytes_sent == before
        server.reply(calls[0], {"content": []})
        assert others[0].result
        (parts,) = sent
        assert json.loads(joined(parts))["params"]["arguments"] == {"text": "x" * LARGE}
        assert server.traffic.bytes_sent == before + sum(map(len, parts))


PIECES = st.dictionaries(st.text(max_size=3), st.integers(0, 3 * MAX_JOINED_BYTES), max_size=4)


@given(PIECES)
def test_an_object_in_parts_is_the_object(sizes: dict[str, int]) -> None:
    members = {name: Raw(b'"%b"' % (b"x" * size)) for name, size in sizes.items()}
    body = open_object(members)
    assert json.loads(body + b"}") == {name: "x" * size for name, size in sizes.items()}
    if isinstance(body, LargeBody):
        assert len(body) == len(body + b"")
        copied = [part for part in body.parts if isinstance(part, bytes)]
        assert sum(map(len, copied)) < MAX_JOINED_BYTES
    else:
        assert len(body) < MAX_JOINED_BYTES + 100


def test_many_small_members_are_few_parts() -> None:
    members = {str(number): Raw(b"12345678") for number in range(100_000)}
    body = open_object(members)
    assert isinstance(body, LargeBody) and len(body.parts) == 1
    assert json.loads(body + b"}") == dict.fromkeys(members, 12345678)
