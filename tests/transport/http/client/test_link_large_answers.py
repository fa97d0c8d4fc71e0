"""Large answers are read in a thread, whichever way they come, and whatever they turn out to be."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from mcp_workbench.jsonrpc.framing import LongLine
from mcp_workbench.jsonrpc.messages import Envelope, Malformed
from mcp_workbench.transport.http.client import link, post, response_body
from tests.transport.http.client.talk import talking
from tests.transport.http.listening import Reply, Request, scripted_http, wait_until

TEXT = "x" * 1_500_000  # More than is held of a response that nobody reads.


@pytest.fixture(autouse=True)
def _a_megabyte_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (response_body, post):
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


@pytest.mark.parametrize("how", [as_json, as_events])
async def test_others_go_on_while_it_is_read(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    release, threads = threading.Event(), []
    read = response_body.read_large_body

    def held(body: LongLine) -> tuple[bytes, Envelope | Malformed]:
        threads.append(threading.get_ident())
        assert release.wait(60)
        return read(body)

    monkeypatch.setattr(link, "read_large_body", held)
    async with scripted_http(how) as server, talking(server.url) as talk:
        asked = asyncio.ensure_future(talk.ask("tools/call", {"name": "add"}, modern=True))
        await wait_until(lambda: bool(threads))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not asked.done() and threads[0] != threading.get_ident()
        release.set()
        assert (await asked)["result"]["text"] == TEXT


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":999,"result":{"text":"%b"}}',
        b'[{"jsonrpc":"2.0","method":"notifications/told","params":{"text":"%b"}}]',
        b'{"jsonrpc":"2.0","method":"notifications/told","params":{"text":"%b"}}',
    ],
)
async def test_what_is_no_answer_fails_its_request_alone(body: bytes) -> None:
    written = body % TEXT.encode()

    async def other(request: Request, reply: Reply) -> None:
        await reply.head(200, {"content-type": "application/json", "content-length": str(len(written))})
        await reply.raw(written)

    async with scripted_http(other) as server, talking(server.url) as talk:
        failure = await talk.failure(talk.request("tools/call", {"name": "add"}, modern=True))
        assert post.NOT_AN_ANSWER in failure.message
        # What it was is delivered all the same.
        assert len(talk.messages) == 1


async def test_what_cannot_be_read_is_told_by_whoever_reads_messages() -> None:
    async def broken(request: Request, reply: Reply) -> None:
        written = answer(request)[:-2]
        await reply.head(200, {"content-type": "application/json", "content-length": str(len(written))})
        await reply.raw(written)

    lines: list[bytes] = []
    async with scripted_http(broken) as server, talking(server.url) as talk:
        talk.on_message = lines.append  # type: ignore[method-assign, assignment]
        await talk.failure(talk.request("tools/call", {"name": "add"}, modern=True))
    assert len(lines) == 1 and TEXT.encode() in lines[0]
