"""Large messages of clients are read in a thread, and a session takes them as it takes any other."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import Any

import msgspec
import pytest

from mcp_workbench.engine.face.identifier import BadIdentifier, read_use_tool
from mcp_workbench.engine.jsonrpc import large_messages, messages
from mcp_workbench.engine.jsonrpc.large_messages import LargeEnvelope, read_large
from mcp_workbench.engine.jsonrpc.messages import LargeObject, Malformed
from mcp_workbench.engine.transport import lines
from mcp_workbench.engine.transport.stdio import DescriptorLink
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.sharing.client import FrontEndLink
from tests.bridge.in_process import in_process_workbench

TEXT = b"x" * 300


def read_aside(line: bytes) -> LargeEnvelope:
    found = read_large(line, 64, 100)
    assert isinstance(found, LargeEnvelope)
    return found


async def test_request_is_served_from_cached_discovery() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        line = (
            b'{"jsonrpc":"2.0","id":70,"method":"resources/read","params":{"uri":["workbench://status","%b"]}}' % TEXT
        )
        found = read_aside(line)
        # All that is looked at are the members; the params as a whole are not.
        found.params = msgspec.Raw(b"never read")
        client.received.clear()
        client.session.on_read_message(line, found)
        (answer,) = client.received
        assert (answer["id"], answer["error"]["message"]) == (70, "`uri` must be a string")


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        (b'{"jsonrpc":"2.0","id":70,"method":"ping","params":{"x":"%b"', 70, -32700),
        (b'{"jsonrpc":"2.0","id":70,"method":"ping","params":["%b"]}', 70, -32602),
        (b'{"jsonrpc":"2.0","id":70,"method":"tools/call","params":{"name":"\\ud800%b"}}', 70, -32602),
        (b'{"jsonrpc":"2.0","id":70,"x":"%b"}', 70, -32600),
    ],
)
async def test_mistakes_in_large_messages_are_reported_as_in_small_ones(line: bytes, id: int, code: int) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        line = line % TEXT
        found: Any
        try:
            found = read_aside(line)
        except Malformed as error:
            found = error
        client.received.clear()
        client.session.on_read_message(line, found)
        client.session.on_message(line)
        one, other = client.received
        assert (one["id"], one["error"]["code"]) == (other["id"], other["error"]["code"]) == (id, code)


async def test_notification_cancels_the_named_request() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        call = client.call("tool")
        line = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"%b"}}'
        line %= call.id, TEXT
        client.session.on_read_message(line, read_aside(line))
        assert client.session.calls == {}


def test_members_of_large_members_are_found_too() -> None:
    call = b'{"tool":"box/server/put","arguments":{"text":"%b"}}' % TEXT
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"use_tool","arguments":%b,"x":1}}' % call
    members = read_aside(line).members
    assert isinstance(members, LargeObject)
    assert {name: bytes(value) for name, value in members.items()} == {
        "name": b'"use_tool"',
        "arguments": call,
        "x": b"1",
    }
    assert {name: bytes(value) for name, value in members.inner["arguments"].items()} == {
        "tool": b'"box/server/put"',
        "arguments": b'{"text":"%b"}' % TEXT,
    }


@pytest.mark.parametrize(
    "written",
    [
        b'{"tool":"box/server/put","arguments":{"a":1},"max_tokens":9}',
        b'{"tool":"put","toolbox":"box","server":"s","text":"beside"}',
        b'{"tool":{"toolbox":"box","server":"s","tool":"t"},"arguments":"{\\"a\\":1}"}',
        b'{"tool":"","arguments":{}}',
        b'{"tool":5,"arguments":{"a":1}}',
        b'{"arguments":[1]}',
    ],
)
def test_a_call_read_from_members_is_the_one_read_as_a_whole(written: bytes) -> None:
    def outcome(members: dict[str, msgspec.Raw] | None) -> Any:
        try:
            call = read_use_tool(msgspec.Raw(written), members)
            return call.tool, bytes(call.arguments), call.max_tokens, call.toolbox, call.server
        except BadIdentifier as error:
            return str(error)

    assert outcome(messages.decode_object(written)) == outcome(None)


@pytest.mark.parametrize("kind", [DescriptorLink, FrontEndLink])
@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_the_loop_goes_on_while_it_is_read_and_nothing_overtakes_it(
    kind: type[DescriptorLink], is_handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where somebody else has read it off the connection before."""
    monkeypatch.setattr(lines, "LONG_LINE", 200)
    release, threads = threading.Event(), []
    read = large_messages.read_large

    def held(line: bytes) -> messages.Envelope:
        threads.append(threading.get_ident())
        assert release.wait(60)
        return read(line, 64, 100)

    monkeypatch.setattr(large_messages, "read_large", held)
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        client.received.clear()
        ours, theirs = socket.socketpair()
        descriptor = ours.detach()
        link = kind(WriteBatch(), 1 << 20, descriptor, os.dup(descriptor))
        link.start(client.session)
        large = b'{"jsonrpc":"2.0","id":70,"method":"ping","params":{"x":"%b"}}\n' % TEXT
        small = b'{"jsonrpc":"2.0","id":71,"method":"ping"}\n'
        # In two pieces: a line that comes in one read is short.
        if is_handed_over:
            link.feed(large[:100])
            link.feed(large[100:])
            theirs.send(small)
        else:
            theirs.send(large[:100])
            while link._lines is None or not link._lines.unfinished_bytes:
                await asyncio.sleep(0)
            theirs.send(large[100:] + small)
        while not threads:
            await asyncio.sleep(0)
        turns = 0
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1
        assert turns == 100 and client.received == [] and threads != [threading.get_ident()]
        release.set()
        while len(client.received) < 2:
            await asyncio.sleep(0)
        assert [answer["id"] for answer in client.received] == [70, 71]
        link.close()
        theirs.close()
