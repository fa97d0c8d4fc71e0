"""Clients that write what they should not: each message is answered or ignored, and the connection lives."""

from __future__ import annotations

import json
import os
import random
import subprocess

import pytest

from mcp_workbench.engine.nesting import MAX_NESTING
from tests.end_to_end.harness import Workbench, open_toolbox, raw_entry, start_use
from tests.support.client import Json, RawClient
from tests.support.processes import eventually
from tests.support.workbench import scripted_entry, workbench_command, write_config

IDENTITY = {"toolbox": "box", "server": "server", "tool": "echo"}


async def answers_to(client: RawClient, data: bytes, count: int = 1) -> list[Json]:
    """The answers to something that is no proper request."""
    before = len(client.unmatched)
    await client.send_bytes(data)
    await client.wait_for(lambda: len(client.unmatched) >= before + count, f"{count} answers to {data[:80]!r}")
    return client.unmatched[before:]


@pytest.mark.requirement("errors.protocol")
async def test_an_invalid_message_gets_an_error_with_its_id_if_it_can_be_read(workbench: Workbench) -> None:
    unreadable: list[tuple[bytes, int, object]] = [
        (b"hello\n", -32700, None),
        (b'{"jsonrpc":"2.0","id":77,"method":"ping"\n', -32700, 77),
        (b'{"jsonrpc":"2.0","id":"seven","method":"tools/call","params":{"text":"\xff"}}\n', -32700, "seven"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600, None),
        (b"5\n", -32600, None),
        (b"null\n", -32600, None),
        (b'"ping"\n', -32600, None),
        (b'"pi\n', -32700, None),
        (b'{"jsonrpc":"1.0","id":90,"method":"ping"}\n', -32600, 90),
        (b'{"jsonrpc":2.0,"id":"v","method":"ping"}\n', -32600, "v"),
        (b'{"jsonrpc":null,"id":91,"method":"ping"}\n', -32600, 91),
        (b'{"jsonrpc":"1.0","method":"notifications/initialized"}\n', -32600, None),
        (b'{"jsonrpc":"1.0","id":92,"method":"ping","params":{"x":"%b"}}\n' % (b"x" * 3_000_000), -32600, 92),
        (b'{"jsonrpc":"2.0","id":78,"method":"ping","params":' + b"[" * 100_000 + b"\n", -32700, 78),
        (b'{"jsonrpc":"2.0","id":79,"method":5}\n', -32600, 79),
        (b'{"jsonrpc":"2.0","id":80,"method":"\\ud800"}\n', -32600, 80),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}\n', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', -32600, None),
        (b'{"jsonrpc":"2.0"}\n', -32600, None),
        (b"{}\n", -32600, None),
        (b'{"jsonrpc":"2.0","id":5}\n', -32600, 5),
        (b'{"jsonrpc":"2.0","id":null}\n', -32600, None),
        (b'{"jsonrpc":"2.0","id":81,"method":"ping","params":[]}\n', -32602, 81),
        (b'{"jsonrpc":"2.0","id":82,"method":"ping","params":5}\n', -32602, 82),
        (b'{"jsonrpc":"2.0","id":83,"method":"tools/list","params":{"_meta":5}}\n', -32602, 83),
        (b'{"jsonrpc":"2.0","id":84,"method":"initialize","params":{}}\n', -32602, 84),
        (b'["%b"]\n' % (b"x" * 5_000_000), -32600, None),
        (b'{"id":85,"method":"ping","method":"%b"}\n' % (b"x" * 5_000_000), -32600, 85),
        (b'["%b"\n' % (b"x" * 5_000_000), -32700, None),
    ]
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        for data, code, id in unreadable:
            (answer,) = await answers_to(client, data)
            assert (answer["error"]["code"], answer["id"]) == (code, id), data[:100]
            assert answer["error"]["message"]
        assert await client.request("ping") == {}
        assert client.garbage == []


async def test_blank_lines_and_line_ends_of_windows_are_no_messages(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        (answer,) = await answers_to(client, b'\n\r\n   \n{"jsonrpc":"2.0","id":"crlf","method":"ping"}\r\n')
        assert answer == {"jsonrpc": "2.0", "id": "crlf", "result": {}}


async def test_messages_in_pieces_and_many_in_one_write_are_all_answered(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await open_toolbox(client, "box")
        params = {"name": "use_tool", "arguments": {"tool": IDENTITY, "arguments": {"text": "é😀"}}}
        message = {"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": params}
        data = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        for index in range(len(data) - 1):
            await client.send_bytes(data[index : index + 1])
        (answer,) = await answers_to(client, data[-1:])
        assert answer["result"]["structuredContent"] == {"text": "é😀"}
        many = b"".join(b'{"jsonrpc":"2.0","id":"many-%d","method":"ping"}\n' % number for number in range(1000))
        answers = await answers_to(client, many, 1000)
        assert [answer["id"] for answer in answers] == [f"many-{number}" for number in range(1000)]


async def test_an_id_that_is_under_way_is_refused_and_the_first_call_goes_on(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await open_toolbox(client, "box")
        first = await client.start(
            "tools/call", {"name": "use_tool", "arguments": start_use("box", "server", "hang")}, id="same"
        )
        again = await client.start("ping", id="same")
        assert "still in progress" in (await again.response())["error"]["message"]
        await client.cancel(first)
        assert await (await client.start("ping", id="same")).result() == {}


async def test_a_lone_surrogate_in_an_argument_passes_or_is_refused_clearly(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await open_toolbox(client, "box")
        head = b'{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"use_tool","arguments":'
        call = b'{"tool":{"toolbox":"box","server":"server","tool":"echo"},"arguments":{"text":"\\ud83d"}}}}\n'
        (answer,) = await answers_to(client, head + call)
        if "result" in answer:
            assert answer["result"]["structuredContent"] == {"text": "\ud83d"}
        else:
            assert "must be an object" not in answer["error"]["message"], "it is an object; that is not the reason"
        assert await client.request("ping") == {}


async def test_nesting_just_at_the_limit_of_the_reader_is_answered_at_every_depth(workbench: Workbench) -> None:
    """A reader further in has less room than the first one; whichever fails, the client is told."""
    async with workbench.serving({"box": {"server": raw_entry()}}) as client:
        await open_toolbox(client, "box")
        identity = json.dumps({**IDENTITY, "tool": "count"}).encode()
        for depth in range(MAX_NESTING - 8, MAX_NESTING + 2):
            nested = b"[" * depth + b"]" * depth
            for params in (
                b'"name":"use_tool","arguments":{"tool":' + identity + b'},"_meta":{"a":' + nested + b"}",
                b'"name":"use_tool","arguments":{"tool":' + identity + b',"arguments":{"a":' + nested + b"}}",
                b'"name":"use_tool","arguments":{"tool":' + identity + b',"arguments":' + nested + b"}",
                b'"name":"use_tool","arguments":{"a":' + nested + b"," + identity[1:],
                b'"name":"open_toolbox","arguments":{"toolbox_name":' + nested + b"}",
            ):
                data = b'{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":{' + params + b"}}\n"
                (answer,) = await answers_to(client, data)
                assert answer["id"] == "deep"
        assert await client.request("ping") == {}


def random_messages(seed: int) -> list[bytes]:
    """Messages that are valid, nearly valid, and not valid at all; every request has an id of its own."""
    rng = random.Random(seed)
    odd: list[object] = [None, True, 5, -1.5, "", "text", [], {}, [1], {"a": {"b": []}}, "é😀", 2**70]
    methods = [
        "tools/call", "tools/list", "ping", "initialize", "server/discover", "prompts/list", "prompts/get",
        "resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "completion/complete",
        "logging/setLevel", "subscriptions/listen", "tasks/get", "notifications/cancelled", "notifications/progress",
        "notifications/initialized", "notifications/roots/list_changed", "x/y", "",
    ]  # fmt: skip
    keys = [
        "name",
        "arguments",
        "_meta",
        "uri",
        "cursor",
        "ref",
        "level",
        "requestId",
        "progressToken",
        "requestState",
        "inputResponses",
        "tool",
    ]
    stamp = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}

    def value(key: str) -> object:
        sensible: dict[str, list[object]] = {
            "name": ["use_tool", "open_toolbox"],
            "arguments": [{"toolbox_name": "box"}, {"tool": IDENTITY, "arguments": {"n": 1}}, {"tool": {}}],
            "_meta": [{}, stamp, {"progressToken": "t"}, {**stamp, "progressToken": 1}],
        }
        return rng.choice(sensible.get(key, []) * 4 + odd)

    found = []
    for number in range(400):
        message: Json = {"jsonrpc": "2.0", "id": f"fuzz-{number}", "method": rng.choice(methods)}
        message["params"] = {key: value(key) for key in rng.sample(keys, rng.randrange(4))}
        if rng.random() < 0.1:
            message["params"] = rng.choice(odd)
        if rng.random() < 0.1:
            del message["params"]
        found.append(json.dumps(message, ensure_ascii=rng.random() < 0.5).encode() + b"\n")
        if rng.random() < 0.3:
            # Something broken in between that has no id of its own.
            garbled = bytearray(json.dumps({**message, "id": None}).encode())
            garbled[rng.randrange(len(garbled))] = rng.randrange(256)
            found.append(bytes(garbled).replace(b"\n", b" ") + b"\n")
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_random_requests_are_each_answered_once(workbench: Workbench, seed: int) -> None:
    """Whatever a client sends: nothing crashes, every request gets one answer, and the workbench serves on."""
    box = {"server": scripted_entry("--era", "legacy" if seed % 2 else "modern"), "other": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        await open_toolbox(client, "box")
        messages = random_messages(seed)
        for message in messages:
            await client.send_bytes(message)
        # A subscription is answered when it ends.
        asked = {f"fuzz-{number}" for number in range(400)}
        expected = asked - {
            id for id in asked if f'"{id}", "method": "subscriptions/listen"'.encode() in b"".join(messages)
        }

        def answered() -> list[str]:
            return [message["id"] for message in client.unmatched if message.get("id") in asked]

        await client.wait_for(lambda: expected <= set(answered()), "answer to every request")
        assert len(answered()) == len(set(answered()))
        assert await client.request("ping") == {}
        assert "defect of ours" not in client.stderr and "Traceback" not in client.stderr


async def test_a_client_that_stops_reading_is_waited_for_within_bounds(workbench: Workbench) -> None:
    """It asks for a hundred megabytes and reads nothing: we hold a few, and stop reading its requests."""
    config = write_config(workbench.folder, {"box": {"server": scripted_entry()}})
    process = subprocess.Popen(
        workbench_command(config), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None and process.stdout is not None
    shake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    process.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": shake}).encode() + b"\n"
    )
    process.stdin.flush()
    process.stdout.readline()
    big = {"name": "use_tool", "arguments": start_use("box", "server", "big", {"bytes": 1024 * 1024})}
    asked = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": big}).encode() + b"\n"
        for number in range(1, 1001)
    )
    os.set_blocking(process.stdin.fileno(), False)
    sent = 0

    def send() -> bool:
        nonlocal sent
        try:
            sent += os.write(process.stdin.fileno(), asked[sent : sent + 1000])  # type: ignore[union-attr]
        except BlockingIOError:
            return True
        return sent == len(asked)

    # Until the pipe is full: we have stopped reading, or all was taken because it is short.
    await eventually(send, what="the pipe to be full")
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


async def test_a_client_that_goes_away_ends_the_workbench(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--starts", workbench.path("starts"))}
    async with workbench.serving({"box": box}) as client:
        await client.use_tool("box", "server", "count")
        assert client.process.stdout is not None
        client.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await client.notify("notifications/initialized")
        await client.start("ping")
        assert await client.wait_exit() == 0
