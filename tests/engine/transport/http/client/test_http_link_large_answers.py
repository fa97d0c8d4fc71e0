"""Large answers are read in a thread, whichever way they come, and whatever they turn out to be."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, cast

import pytest

from mcp_workbench.engine.jsonrpc.framing import LongLine
from mcp_workbench.engine.jsonrpc.messages import Envelope, Malformed
from mcp_workbench.engine.transport.http import message_summary
from mcp_workbench.engine.transport.http.client import http_link, post, response_body, sse_transport
from mcp_workbench.engine.transport.http.client.response import BodySource, Response
from mcp_workbench.engine.transport.http.message_summary import is_batch
from mcp_workbench.engine.transport.http.sse import ServerSentEvent, SseParser
from tests.engine.transport.http.client.talk import Talk, talking
from tests.engine.transport.http.listening import Reply, Request, scripted_http, wait_until

TEXT = "x" * 1_500_000  # More than is held of a response that nobody reads.


@pytest.fixture(autouse=True)
def _a_megabyte_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (response_body, post, sse_transport, http_link):
        monkeypatch.setattr(module, "LONG_LINE", 1_000_000)


def answer(request: Request, **members: Any) -> bytes:
    members = members or {"result": {"text": TEXT}}
    # Over several lines, as some servers write.
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(request.body)["id"], **members}, indent=1).encode()


async def as_json(request: Request, reply: Reply) -> None:
    body = answer(request)
    await reply.head(200, {"content-type": "application/json", "content-length": str(len(body))})
    await reply.raw(body)


async def as_events(request: Request, reply: Reply) -> None:
    await reply.begin_events()
    for body in (answer(request, method="notifications/told", params={"text": TEXT}), answer(request)):
        written = json.loads(body)
        if "method" in written:
            del written["id"]
        await reply.chunk(b"data: %b\n\n" % json.dumps(written).encode())
    await reply.end()


class HeldReading:
    """Reading of what is large, which begins in a thread and does not go on before it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self._release = threading.Event()
        self._read = response_body.read_large_body
        monkeypatch.setattr(http_link, "read_large_body", self._held)

    async def let_others_go_on(self) -> None:
        await wait_until(lambda: bool(self.threads))
        for _ in range(100):
            await asyncio.sleep(0)
        assert self.threads[0] != threading.get_ident()

    def release(self) -> None:
        self._release.set()

    def _held(self, body: LongLine, examine: Any) -> tuple[bytes, Envelope | Malformed]:
        self.threads.append(threading.get_ident())
        assert self._release.wait(60)
        return self._read(body, examine)


def test_the_line_that_is_returned_is_the_one_that_was_examined() -> None:
    examined: list[bytes] = []
    line, message = response_body.read_large_body(
        LongLine([b'{"jsonrpc":"2.0",', b'"id":1,"result":{}}']), examined.append
    )
    assert isinstance(message, Envelope) and len(examined) == 1 and line is examined[0]
    batch, _ = response_body.read_large_body(LongLine([b"[%b]" % line]), examined.append)
    assert is_batch(batch) and len(examined) == 1, "its messages are examined one by one"


@pytest.mark.parametrize("how", [as_json, as_events])
async def test_others_go_on_while_it_is_read(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = HeldReading(monkeypatch)
    async with scripted_http(how) as server, talking(server.url) as talk:
        asked = asyncio.ensure_future(talk.ask("tools/call", {"name": "add"}, modern=True))
        await reading.let_others_go_on()
        assert not asked.done()
        reading.release()
        assert (await asked)["result"]["text"] == TEXT


TOLD = b'{"jsonrpc":"2.0","method":"notifications/told","params":{"text":"%b"}}' % TEXT.encode()


@pytest.mark.parametrize("answered", ["large answer", "large notification"])
async def test_so_they_do_with_the_old_transport(answered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = HeldReading(monkeypatch)
    streams: list[Reply] = []

    async def old(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            streams.append(reply)
            await reply.begin_events()
            await reply.chunk(b"event: endpoint\ndata: /messages\n\n")
            await reply.wait_gone()
            return
        await reply.send(202)
        if answered == "large answer":
            told = [json.dumps(json.loads(answer(request))).encode()]
        else:
            told = [TOLD, json.dumps(json.loads(answer(request, result={"text": ""}))).encode()]
        for each in told:
            await streams[0].chunk(b"data: %b\n\n" % each)

    async with scripted_http(old) as server, talking(server.url, transport="sse") as talk:
        asked = asyncio.ensure_future(talk.ask("tools/call", {"name": "add"}))
        await reading.let_others_go_on()
        assert not asked.done()
        reading.release()
        is_large = answered == "large answer"
        assert (await asked)["result"]["text"] == (TEXT if is_large else "")
        # Whoever receives a large notification need not read it again.
        assert len(talk.read_aside) == (0 if is_large else 1)
        assert "0 under way" in repr(talk.link)


async def test_so_they_do_with_the_standalone_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = HeldReading(monkeypatch)

    async def legacy(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.begin_events()
            await reply.chunk(b"data: %b\n\n" % TOLD)
            await reply.wait_gone()
        elif request.method == "POST" and "id" in json.loads(request.body):
            found = answer(request, result={"protocolVersion": "2025-11-25"})
            await reply.send(200, found)
        else:
            await reply.send(202)

    async with scripted_http(legacy) as server, talking(server.url) as talk:
        await talk.ask("initialize")
        talk.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await reading.let_others_go_on()
        assert "result" in await talk.ask("ping"), "a call beside it"
        assert not talk.read_aside
        reading.release()
        await wait_until(lambda: bool(talk.read_aside))


async def test_a_large_batch_is_delivered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_summary, "BATCH_AT_ONCE", 10)
    one = b'{"jsonrpc":"2.0","method":"notifications/told","params":{"text":"%b"}}' % (b"x" * 1000)
    count = 1500
    passes = 0

    async def batch(request: Request, reply: Reply) -> None:
        body = b"[" + b",".join([one] * count + [answer(request, result={})]) + b"]"
        await reply.send(200, body)

    async def beside(talk: Talk) -> None:
        nonlocal passes
        while len(talk.messages) < count:
            passes += len(talk.messages) > 0
            await asyncio.sleep(0)

    async with scripted_http(batch) as server, talking(server.url) as talk:
        others = asyncio.create_task(beside(talk))
        await talk.ask("tools/call", {"name": "add"}, modern=True)
        await others
        assert len(talk.messages) == count + 1 and passes > count // 20


async def test_thousands_of_events_in_one_go_are_delivered_in_slices() -> None:
    event = b'data: {"jsonrpc":"2.0","method":"notifications/told"}\n\n'
    count = 10 * response_body.MAX_PARSED_AT_ONCE // len(event)
    parser = SseParser(1000)
    largest = 0
    response = Response(cast(BodySource, None), 200, {})
    response.feed(event * count)
    response.end()
    seen = handled = 0

    def on_event(event: ServerSentEvent) -> bool:
        nonlocal handled
        handled += 1
        return False

    async def beside() -> None:
        nonlocal seen, largest
        while seen < count:
            largest, seen = max(largest, handled - seen), handled
            await asyncio.sleep(0)

    others = asyncio.create_task(beside())
    await asyncio.sleep(0)
    assert not await response_body.read_events(response, parser, 1000, on_event)
    await others
    assert handled == count and largest <= response_body.MAX_PARSED_AT_ONCE // len(event) + 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":999,"result":{"text":"%b"}}',
        b'[{"jsonrpc":"2.0","method":"notifications/told","params":{"text":"%b"}}]',
        b'{"jsonrpc":"2.0","method":"notifications/told","params":{"text":"%b"}}',
    ],
)
async def test_malformed_answer_fails_only_its_request(body: bytes) -> None:
    written = body % TEXT.encode()

    async def other(request: Request, reply: Reply) -> None:
        await reply.head(200, {"content-type": "application/json", "content-length": str(len(written))})
        await reply.raw(written)

    async with scripted_http(other) as server, talking(server.url) as talk:
        failure = await talk.failure(talk.request("tools/call", {"name": "add"}, modern=True))
        assert post.NOT_AN_ANSWER in failure.message
        # What it was is delivered all the same.
        assert len(talk.messages) == 1


async def test_unreadable_message_is_reported_by_the_message_reader() -> None:
    async def broken(request: Request, reply: Reply) -> None:
        written = answer(request)[:-2]
        await reply.head(200, {"content-type": "application/json", "content-length": str(len(written))})
        await reply.raw(written)

    lines: list[bytes] = []
    async with scripted_http(broken) as server, talking(server.url) as talk:
        talk.on_message = lines.append  # type: ignore[method-assign, assignment]
        await talk.failure(talk.request("tools/call", {"name": "add"}, modern=True))
    assert len(lines) == 1 and TEXT.encode() in lines[0]
