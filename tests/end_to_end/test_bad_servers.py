"""Servers that write what they should not: skipped, refused or passed as it is, and the connection lives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.end_to_end.harness import ERAS, Workbench, error_text, open_toolbox, raw_entry, tool_names
from tests.support.client import Json, RawClient
from tests.support.scripted_tools import TOOLS
from tests.support.workbench import scripted_entry

ANSWER = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"ok":1}}}'


async def raw(client: RawClient, latin1: str, **arguments: Any) -> Json:
    return await client.use_tool("box", "server", "raw", {"latin1": latin1, **arguments})


async def assert_lives(client: RawClient, calls: int = 1) -> None:
    assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": calls}


@pytest.mark.requirement("servers.noise")
async def test_noise_before_every_message_is_skipped(workbench: Workbench) -> None:
    boxes = {era: {"server": scripted_entry("--era", era, "--noise")} for era in ("legacy", "modern")}
    async with workbench.serving(boxes) as client:
        for era in boxes:
            assert tool_names(await open_toolbox(client, era)) == sorted(TOOLS)
            for number in range(20):
                result = await client.use_tool(era, "server", "echo", {"n": number})
                assert result["structuredContent"] == {"n": number}
        assert client.garbage == []
        # The first lines are shown, the rest is only counted: a noisy server does not fill the log.
        assert "Starting up..." in client.stderr
        assert client.stderr.count("noise") <= 2 * 4


@pytest.mark.parametrize("era", ERAS)
async def test_answer_arrives_amid_any_noise(workbench: Workbench, era: str) -> None:
    surrounded = {
        "banner": f"Welcome!\n{ANSWER}\n",
        "blank lines": f"\n\n  \n\t\n{ANSWER}\n\n",
        "crlf": f"{ANSWER}\r\n",
        "mark": f"\xef\xbb\xbf{ANSWER}\n",
        "broken json": f'{{"jsonrpc":"2.0",\n{ANSWER}\n',
        "other json": f'{{"hello":"world"}}\n"text"\n5\nnull\n{ANSWER}\n',
        "json log": f'{{"level":"info","id":$ID,"msg":"x"}}\n{ANSWER}\n',
        "batch": f'[{{"jsonrpc":"2.0","id":$ID,"result":{{}}}}]\n{ANSWER}\n',
        "not utf-8": f"\xff\xfe\x00\n{ANSWER}\n",
        "nul": f"\x00\x00\n{ANSWER}\n",
        "deep": "[" * 100_000 + f"\n{ANSWER}\n",
        "notification without params": f'{{"jsonrpc":"2.0","method":"notifications/progress"}}\n{ANSWER}\n',
        "progress that is none": f'{{"jsonrpc":"2.0","method":"notifications/progress","params":[]}}\n{ANSWER}\n',
        "cancel that is none": f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":5}}\n{ANSWER}\n',
        "message that is none": f'{{"jsonrpc":"2.0","method":"notifications/message","params":"x"}}\n{ANSWER}\n',
        "unknown notification": f'{{"jsonrpc":"2.0","method":"x/y","params":null}}\n{ANSWER}\n',
        "request nobody answers": f'{{"jsonrpc":"2.0","id":"q","method":"x/y"}}\n{ANSWER}\n',
        "request with a strange id": f'{{"jsonrpc":"2.0","id":{{"a":1}},"method":"ping"}}\n{ANSWER}\n',
        "method with a surrogate": f'{{"jsonrpc":"2.0","id":"q","method":"\\ud800"}}\n{ANSWER}\n',
        "two in one write": f'{ANSWER}\n{{"jsonrpc":"2.0","method":"notifications/x","params":{{"level":"info"}}}}\n',
    }
    async with workbench.serving({"box": {"server": raw_entry()}}, era=era) as client:
        for kind, latin1 in surrounded.items():
            result = await raw(client, latin1)
            assert result.get("structuredContent") == {"ok": 1}, (kind, result)
            piecewise = len(latin1) < 1000
            result = await raw(client, latin1, piecewise=piecewise)
            assert result.get("structuredContent") == {"ok": 1}, (kind, "in pieces", result)
        await assert_lives(client)
        assert client.garbage == []


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once_and_no_other(
    workbench: Workbench, era: str
) -> None:
    head = '{"jsonrpc":"2.0","id":$ID,'
    unreadable = {
        "not utf-8": f'{head}"result":{{"content":[],"text":"\xff"}}}}\n',
        "cut off": f'{head}"result":{{"content":[\n',
        "nan": f'{head}"result":{{"content":[],"value":NaN}}}}\n',
        "nul": f'{head}"result":{{"text":"\x00"}}}}\n',
        "too deep": f'{head}"result":{"[" * 5000}{"]" * 5000}}}\n',
        "trailing garbage": f'{head}"result":{{}}}} trailing\n',
    }
    async with workbench.serving({"box": {"server": raw_entry(timeout=60)}}, era=era) as client:
        await client.use_tool("box", "server", "count")
        for latin1 in unreadable.values():
            text = error_text(await raw(client, latin1))
            assert text.startswith("[box/server/raw] ") and "cannot be read" in text
        await assert_lives(client, 2)


@pytest.mark.parametrize("era", ERAS)
async def test_strange_answers_end_their_call(workbench: Workbench, era: str) -> None:
    """Each of these is valid JSON-RPC on the outside. The client gets something, and the connection lives."""
    head = '{"jsonrpc":"2.0","id":$ID,'
    answers = {
        "no object": f'{head}"result":[]}}',
        "null": f'{head}"result":null}}',
        "text": f'{head}"result":"resultType"}}',
        "list with the word": f'{head}"result":["resultType"]}}',
        "type is a number": f'{head}"result":{{"resultType":5,"content":[]}}}}',
        "type is null": f'{head}"result":{{"resultType":null,"content":[]}}}}',
        "unknown type": f'{head}"result":{{"resultType":"of the future","content":[]}}}}',
        "surrogate and the word": f'{head}"result":{{"content":[],"a":"\\ud800","b":{{"resultType":1}}}}}}',
        "nesting": f'{head}"result":{{"content":[],"a":{"[" * 500}{"]" * 500}}}}}',
        "error is text": f'{head}"error":"boom"}}',
        "error is null": f'{head}"error":null}}',
        "error without code": f'{head}"error":{{"message":"boom"}}}}',
        "error code is text": f'{head}"error":{{"code":"E1","message":"boom"}}}}',
        "error message is an object": f'{head}"error":{{"code":1,"message":{{}}}}}}',
        "error with surrogate": f'{head}"error":{{"code":1,"message":"\\ud800","data":"\\udfff"}}}}',
        "error with huge code": f'{head}"error":{{"code":{"9" * 30},"message":"m"}}}}',
        "both": f'{head}"result":{{"content":[]}},"error":{{"code":1,"message":"m"}}}}',
    }
    async with workbench.serving({"box": {"server": raw_entry(timeout=60)}}, era=era) as client:
        for kind, latin1 in answers.items():
            call = await client.start_tool(
                "use_tool",
                {"tool": {"toolbox": "box", "server": "server", "tool": "raw"}, "arguments": {"latin1": latin1 + "\n"}},
            )
            response = await call.response()
            assert "result" in response or "error" in response, kind
        await assert_lives(client)


async def test_fragile_values_pass_unchanged(workbench: Workbench) -> None:
    payloads = [
        '"\\ud83d"',
        '"\\u0000"',
        "123456789012345678901234567890",
        "1.10",
        "1e400",
        '{"a":1,"a":2}',
        '"é 事"'.encode().decode("latin1"),
    ]
    async with workbench.serving({"box": {"server": raw_entry()}}) as client:
        for payload in payloads:
            head = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"x":'
            result = await raw(client, head + payload + "}}\n")
            assert result["x"] == json.loads(payload.encode("latin1"))
        await assert_lives(client)


async def test_an_error_beside_a_null_result_and_a_result_beside_a_null_error_are_distinguished(
    workbench: Workbench,
) -> None:
    """Libraries that know only JSON-RPC 1.0 always write both members."""
    async with workbench.serving({"box": {"server": raw_entry()}}) as client:
        result = await raw(client, ANSWER[:-1] + ',"error":null}\n')
        assert result.get("structuredContent") == {"ok": 1}
        failed = '{"jsonrpc":"2.0","id":$ID,"result":null,"error":{"code":1,"message":"boom"}}\n'
        assert error_text(await raw(client, failed)) == "[box/server/raw] boom"


async def test_the_first_answer_wins_and_the_rest_is_dropped(workbench: Workbench) -> None:
    late = ANSWER.replace('"ok":1', '"ok":2')
    async with workbench.serving({"box": {"server": raw_entry()}}) as client:
        for latin1 in (
            f"{ANSWER}\n{late}\n{late}\n",
            late.replace("$ID", '"$ID"') + f"\n{ANSWER}\n",
            late.replace("$ID", "4711") + f"\n{ANSWER}\n",
            late.replace("$ID", "null") + f"\n{ANSWER}\n",
            late.replace("$ID", "-1") + f"\n{ANSWER}\n",
            late.replace("$ID", "1e0") + f"\n{ANSWER}\n",
            f'{ANSWER}\n{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$ID,"progress":1}}}}\n',
        ):
            result = await client.use_tool("box", "server", "raw", {"latin1": latin1}, _meta={"progressToken": "t"})
            assert result["structuredContent"] == {"ok": 1}
        await assert_lives(client)
        assert (client.unmatched, client.notifications) == ([], [])


async def test_a_byte_order_mark_at_the_very_start_does_not_matter(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": raw_entry("--mark")}}) as client:
        await assert_lives(client)


async def test_half_an_answer_and_then_the_end_fails_the_call_with_the_status(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": raw_entry()}}) as client:
        text = error_text(await raw(client, '{"jsonrpc":"2.0","id":$ID,"result":{"cont', end=6))
        assert text.startswith("[box/server/raw] ")
        await client.wait_for(lambda: "status 6" in client.stderr, "word of it in the log")
        await assert_lives(client)


async def test_an_answer_without_a_newline_before_the_end_still_counts(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": raw_entry()}}) as client:
        assert (await raw(client, ANSWER, end=0))["structuredContent"] == {"ok": 1}


@pytest.mark.requirement("isolation.failures")
async def test_a_server_that_stops_reading_hits_its_deadline_and_blocks_nothing(workbench: Workbench) -> None:
    box = {"server": raw_entry(timeout=1), "good": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        await client.use_tool("box", "server", "count")
        deaf = await client.start_tool("use_tool", {"tool": {"toolbox": "box", "server": "server", "tool": "deaf"}})
        piled = [
            await client.start_tool(
                "use_tool",
                {"tool": {"toolbox": "box", "server": "server", "tool": "count"}, "arguments": {"x": "y" * 200_000}},
            )
            for _ in range(10)
        ]
        for number in range(5):
            result = await client.use_tool("box", "good", "echo", {"n": number})
            assert result["structuredContent"] == {"n": number}
        for call in (deaf, *piled):
            assert "did not answer within 1 s" in error_text(await call.result())


def random_lines(rng: random.Random) -> list[str]:
    """What a confused server may write: requests, answers and notifications of every shape, whole and broken."""
    odd: list[object] = [None, True, 5, -1.5, "", "text", [], {}, [1], {"a": {"b": []}}, "é😀", 2**70]
    methods = [
        *("notifications/progress", "notifications/cancelled", "notifications/message", "notifications/x", "ping", ""),
        *("notifications/tools/list_changed", "notifications/resources/updated", "notifications/initialized"),
        *("roots/list", "sampling/createMessage", "elicitation/create", "initialize", "tools/list", "x/y"),
        *(
            "notifications/subscriptions/acknowledged",
            "notifications/elicitation/complete",
            "notifications/tasks/status",
        ),
    ]
    keys = ["progressToken", "progress", "requestId", "uri", "level", "data", "_meta", "message", "messages", "taskId"]
    found = []
    for number in range(rng.randrange(1, 12)):
        message: Json = {"jsonrpc": "2.0"}
        kind = rng.choice(("request", "notification", "answer"))
        if kind == "answer":
            message |= {
                "id": rng.choice([f"never-{number}", 10**9, -1, None, 1.5]),
                rng.choice(["result", "error"]): rng.choice(odd),
            }
        else:
            message |= {"method": rng.choice(methods), "params": {key: rng.choice(odd) for key in rng.sample(keys, 3)}}
            if rng.random() < 0.2:
                message["params"] = rng.choice(odd)
            if kind == "request":
                message["id"] = rng.choice([f"ask-{number}", number, None, {}, 1.5])
        line = json.dumps(message)
        if rng.random() < 0.3:
            index = rng.randrange(len(line))
            line = line[:index] + chr(rng.choice([0, 9, 34, 91, 123, 255])) + line[index + 1 :]
        found.append(line)
    return found


@pytest.mark.parametrize("era", ERAS)
async def test_random_messages_of_a_server_disturb_nothing(workbench: Workbench, era: str) -> None:
    rng = random.Random(era)
    capabilities: Json = {"roots": {}, "sampling": {}, "elicitation": {}}
    box = {"server": raw_entry(timeout=60), "good": scripted_entry()}
    async with workbench.serving({"box": box}, era=era, capabilities=capabilities) as client:
        for method in ("roots/list", "sampling/createMessage", "elicitation/create"):
            client.handlers[method] = lambda params: {}
        for number in range(60):
            latin1 = "\n".join([*random_lines(rng), ANSWER]) + "\n"
            result = await raw(client, latin1)
            if result.get("resultType") == "input_required":
                # Some of them are proper questions; a modern client would come back with its answers.
                continue
            assert result.get("structuredContent") == {"ok": 1}, (number, latin1, result)
        assert (await client.use_tool("box", "good", "count"))["structuredContent"] == {"count": 1}
        await assert_lives(client)
        assert client.garbage == []
        assert "defect of ours" not in client.stderr and "Traceback" not in client.stderr
