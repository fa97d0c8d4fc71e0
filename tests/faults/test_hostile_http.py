"""HTTP from those who mean no good, or know no better: refused early, and nothing of it stays.

Half-open sockets, slow-loris heads and bodies, wrong lengths, thousands of connections, foreign `Host` and `Origin`,
wrong types, forged sessions and states, clients that do not read.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.faults.http_wire import HttpConversation, Wire, written
from tests.faults.impatient_workbench import LIMITS
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry, use
from tests.faults.vitals import resident_bytes
from tests.support.client import MODERN_VERSION, Json, RpcError

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
# The deadline, the interval in which it is looked at, and what a busy machine adds.
BUSY = 15.0


async def test_half_open_sockets_and_slow_lorises_are_dropped_without_blocking_others(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry()}, impatient=True) as workbench:
        wires = [await Wire.open(workbench.port) for _ in range(120)]
        request = written(PING)
        head, _, body = request.partition(b"\r\n\r\n")
        for number, wire in enumerate(wires):
            match number % 6:
                case 1:
                    await wire.send(b"P")
                case 2:
                    await wire.send(head[:40])
                case 3:
                    await wire.send(head + b"\r\n\r\n")
                case 4:
                    await wire.send(head + b"\r\n\r\n" + body[:5])
                case 5:
                    await wire.send(
                        head.replace(b"Content-Length: 40", b"Transfer-Encoding: chunked") + b"\r\n\r\n5\r\n{"
                    )
        trickling = asyncio.create_task(_trickle(wires[1::6] + wires[4::6]))
        await workbench.others_work()
        async with asyncio.timeout(LIMITS.head_seconds + LIMITS.keep_alive_seconds + BUSY):
            answers = await asyncio.gather(*(wire.closed() for wire in wires))
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        assert {answer[:12] for answer in answers} <= {b"", b"HTTP/1.1 408", b"HTTP/1.1 400"}
        for wire in wires:
            wire.abort()


async def _trickle(wires: list[Wire]) -> None:
    """A byte now and then."""
    while True:
        for wire in wires:
            with suppress(ConnectionError):
                wire.writer.write(b"x")
        await asyncio.sleep(0.1)


LENGTHS = {
    "more than there is": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n{}",
    "less than there is": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n{}{}{}{}",
    "negative": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n{}",
    "no number": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n{}",
    "beyond any number": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n{}",
    "beyond the limit": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n{}",
    "two": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "length and chunks": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks that lie": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "an endless chunk": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a head without end": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"X-Long: " + b"x" * 100_000,
    "ten thousand headers": b"POST /mcp HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(10_000)),
    "a folded header": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
    "no host": b"POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "NUL": b"POST /mcp\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


async def test_wrong_lengths_and_non_http_end_in_a_refusal_or_silence(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry()}, impatient=True) as workbench:
        await workbench.value("bad", "count")

        async def one(data: bytes) -> bytes:
            wire = await Wire.open(workbench.port)
            try:
                with suppress(ConnectionError):
                    await wire.send(data)
                return await wire.closed()
            finally:
                wire.abort()

        answers = await asyncio.gather(*(one(data) for data in LENGTHS.values()))
        for kind, answer in zip(LENGTHS, answers, strict=True):
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), (kind, answer[:100])
        await workbench.others_work()
        assert await workbench.value("bad", "count") == {"count": 2}


@pytest.fixture
def many_files() -> Iterator[int]:
    """As many descriptors as this process may have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(hard, 1_000_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_ten_thousand_connections_that_all_drop_leave_nothing(faults: Faults, many_files: int) -> None:
    count = min(10_000, int(many_files * 0.6))
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        # What ten thousand connections need once the allocator keeps; after that nothing may be added. How many of them
        # are open at the same time depends on what else the machine does, so the first time alone may need less.
        for _ in range(3):
            await _connect_and_drop(workbench, count)
        await workbench.remember()
        await _connect_and_drop(workbench, count)


async def _connect_and_drop(workbench: RunningWorkbench, count: int) -> None:
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []

    async def connect() -> None:
        each = socket.socket()
        each.setblocking(False)
        sockets.append(each)
        await loop.sock_connect(each, ("127.0.0.1", workbench.port))

    try:
        for _ in range(0, count, 500):
            await asyncio.gather(*(connect() for _ in range(500)))
            # Those who are here already are served meanwhile.
            await workbench.others_work(1)
        for each in sockets[::3]:
            # Some are closed already: they have not authenticated, and there are too many of them.
            with suppress(ConnectionError):
                each.send(b"POST /mcp HTTP/1.1\r\nHost: loc")
        await workbench.others_work()
    finally:
        for number, each in enumerate(sockets):
            if number % 2:
                # Reset instead of a goodbye.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            each.close()
    await workbench.others_work()


HOSTS = [
    "evil.test", "evil.test:8420", "localhost.evil.test", "127.0.0.1.evil.test", "evil.test/127.0.0.1", "127.0.0.1@evil.test",
    "127.0.0.1, evil.test", "localhost:80:80", "127.0.0.1:port", "[::1", "::1", "[::1]evil", "0x7f.1", "127.1", "2130706433",
    "127.0.0.2", "localhost%00.evil.test", "localhost\t.evil", "http://localhost", "*", "", "l\xf6calhost", "192.168.0.1", "0.0.0.0",
]  # fmt: skip
ORIGINS = [
    "https://evil.test", "http://evil.test:8420", "http://localhost.evil.test", "http://127.0.0.1.evil.test", "null",
    "http://localhost@evil.test", "https://evil.test#localhost", "http://evil.test?localhost", "file://", "http://",
    "http://localhost/evil", "chrome-extension://abc", "http://[::1", "http://localhost:80:80", "http:/localhost",
    "localhost", "//localhost", "javascript:alert(1)", "http://127.0.0.2", "http://192.168.0.1", "ws://localhost",
]  # fmt: skip


async def test_foreign_hosts_and_origins_are_refused_in_every_spelling_before_anything_starts(faults: Faults) -> None:
    assert len(HOSTS) >= 20 and len(ORIGINS) >= 20
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}).encode()
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        for host in HOSTS:
            wire = await Wire.open(workbench.port)
            status, answer = await wire.ask(written(body, host=host))
            assert status in (400, 403), (host, status, answer)
            wire.close()
        for origin in ORIGINS:
            wire = await Wire.open(workbench.port)
            status, answer = await wire.ask(written(body, {"Origin": origin}))
            assert status == 403, (origin, status, answer)
            wire.close()
        servers = (await workbench.status())["servers"]
        assert [server["server"] for server in servers if server["starts"]] == ["good"]


TYPES: list[tuple[dict[str, str], int]] = [
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ({"Content-Type": "application/jsonp"}, 415),
    ({"Content-Type": ""}, 415),
    ({"Accept": "text/html"}, 406),
    ({"Accept": "application/json"}, 406),
    ({"Accept": "application/json, text/event-stream;q=0"}, 406),
]


async def test_wrong_types_forged_sessions_and_forged_states_are_refused(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        for headers, status in TYPES:
            wire = await Wire.open(workbench.port)
            assert (await wire.ask(written(PING, headers)))[0] == status, headers
            wire.close()
        client = workbench.client
        assert isinstance(client, HttpConversation) and client.session_id is not None
        real = client.session_id
        for forged in (
            real[:-1],
            real + "A",
            real.swapcase(),
            "",
            "null",
            "../../etc/passwd",
            "x" * 10_000,
            "0",
            "%00",
        ):
            wire = await Wire.open(workbench.port)
            for verb in ("POST", "GET", "DELETE"):
                status, _ = await wire.ask(written(PING, {"Mcp-Session-Id": forged}, verb=verb))
                assert status in (400, 404), (forged[:50], verb, status)
            wire.close()
        await workbench.others_work()
        modern = HttpConversation(workbench.port)
        modern.stamp(capabilities={"elicitation": {}})
        states: list[object] = ["x", "", "mcpwb1.x", "mcpwb1.AAAAAAAA." + "A" * 200, "A" * 100_000, 5, None, {}, []]
        for state in states:
            with pytest.raises(RpcError) as caught:
                await modern.call_tool("use_tool", use("bad", "echo"), requestState=state, inputResponses={})
            assert caught.value.code == -32602, state
        await modern.close()


async def test_a_state_that_was_given_out_works_once_and_only_as_it_is(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry(timeout=1)}) as workbench:
        modern = HttpConversation(workbench.port)
        modern.stamp(capabilities={"elicitation": {}})
        asked = await modern.call_tool("use_tool", use("bad", "ask"))
        assert asked["resultType"] == "input_required"
        state, (key,) = asked["requestState"], asked["inputRequests"]
        given: Json = {"inputResponses": {key: {"action": "decline"}}}
        flipped = state[:-2] + ("A" if state[-2] != "A" else "B") + state[-1]
        for arguments, forged in ((use("bad", "ask"), flipped), (use("bad", "ask", {"times": 1}), state)):
            with pytest.raises(RpcError) as caught:
                await modern.call_tool("use_tool", arguments, requestState=forged, **given)
            assert caught.value.code == -32602
        retry = await modern.start_tool("use_tool", use("bad", "ask"), requestState=state, **given)
        again = await modern.start_tool("use_tool", use("bad", "ask"), requestState=state, **given)
        outcomes = [await call.response() for call in (retry, again)]
        refused = [outcome for outcome in outcomes if "error" in outcome]
        assert len(refused) == 1 and "already been used" in refused[0]["error"]["message"]
        await modern.close()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_does_not_read_is_dropped_and_no_other_is_held_up(faults: Faults, era: str) -> None:
    async with faults.serving_http({"bad": bad_entry()}, impatient=True, large=True) as workbench:
        await workbench.value("bad", "count")
        wires = []
        headers = {"Mcp-Protocol-Version": MODERN_VERSION, "Mcp-Method": "tools/call", "Mcp-Name": "use_tool"}
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": 1,
        }
        if era == "legacy":
            assert isinstance(workbench.client, HttpConversation) and workbench.client.session_id is not None
            headers, meta = {"Mcp-Session-Id": workbench.client.session_id}, {"progressToken": 1}
        flood = use(
            "bad", "flood", {"method": "notifications/progress", "progress": True, "count": 10_000, "pad": 1000}
        )
        for number in range(3):
            wire = await Wire.open(workbench.port)
            raw = wire.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
            params = {"name": "use_tool", "arguments": flood, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": f"mute-{number}", "method": "tools/call", "params": params}
            await wire.send(written(json.dumps(message).encode(), headers))
            wires.append(wire)
        await workbench.others_work(20)
        assert await workbench.value("bad", "echo", {"n": 1}) == {"n": 1}
        for wire in wires:
            wire.reader._transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await wire.closed()) < 10_000_000, "it got everything, late, instead of being dropped"
            wire.abort()


MIB = 1024 * 1024
# What the kernel hands over at once, and what reading it takes, for each of a few connections.
READING = 16 * MIB
HEAD = b"Host: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n"
FLOODS = {
    "a body for a page": b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999\r\n\r\n",
    "a body for a preflight": b"OPTIONS /mcp HTTP/1.1\r\nAccess-Control-Request-Method: POST\r\n"
    + HEAD
    + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n",
    "a trailer": b"POST /mcp HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ",
    "an extension of a chunk": b"POST /mcp HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;x=",
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_floods_of_unsolicited_messages_are_not_held(faults: Faults, flood: str) -> None:
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        before = resident_bytes(workbench.pid)
        wires = [await Wire.open(workbench.port) for _ in range(6)]
        peaks = [await _flood(workbench, wire, FLOODS[flood], 64) for wire in wires]
        assert max(peaks) - before < READING
        await workbench.others_work()
        for wire in wires:
            wire.abort()


async def test_uploads_that_never_end_stay_within_their_budget_and_hold_up_no_small_call(faults: Faults) -> None:
    budget = 32 * MIB
    settings: Json = {"maxMessageBytes": 16 * MIB, "maxPendingBodyBytes": budget}
    async with faults.serving_http({"bad": bad_entry()}, large=True, **settings) as workbench:
        before = resident_bytes(workbench.pid)
        head = b"POST /mcp HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % (16 * MIB)
        wires = [await Wire.open(workbench.port) for _ in range(10)]
        peaks = [await _flood(workbench, wire, head, 15) for wire in wires[:2]]
        # Refused ones are read on for a little, so that they get to see why.
        peaks += [await _flood(workbench, wire, head, 4) for wire in wires[2:]]
        assert max(peaks) - before < budget + READING
        assert [await wire.head() for wire in wires[2:]] == [503] * 8
        await workbench.others_work()
        for wire in wires:
            wire.abort()


async def _flood(workbench: RunningWorkbench, wire: Wire, head: bytes, mebibytes: int) -> int:
    """Send until it is refused; the most that the workbench took meanwhile."""
    peak = 0
    with suppress(ConnectionError):
        await wire.send(head)
        for _ in range(mebibytes):
            await wire.send(b"x" * MIB)
            peak = max(peak, resident_bytes(workbench.pid))
    return peak
