"""Requests that cannot be: each gets its one answer, which says what is wrong, and nothing is logged as a defect."""

from __future__ import annotations

import logging

import pytest

from mcp_workbench.engine.jsonrpc.messages import NOT_A_MESSAGE
from mcp_workbench.engine.protocol.meta import MAX_CAPABILITIES_BYTES, TOO_CAPABLE
from tests.bridge.in_process import ERAS, in_process_workbench


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("uri", [["workbench://status"], {"a": "workbench://status"}])
async def test_a_uri_of_ours_that_is_no_string_is_refused(
    era: str, uri: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client(era)
        await workbench.connect(client)
        error = client.send_request("resources/read", {"uri": uri}).error
        assert (error["code"], error["message"]) == (-32602, "`uri` must be a string")
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(("message", "id"), [({}, None), ({"id": 7}, 7), ({"id": []}, None), ({"params": {}}, None)])
async def test_an_invalid_message_is_answered_under_its_id(message: dict[str, object], id: object) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        client.received.clear()
        client.send_raw(message)
        (answer,) = client.received
        assert (answer["id"], answer["error"]) == (id, {"code": -32600, "message": NOT_A_MESSAGE})


async def test_a_call_that_ends_late_does_not_end_another_one_with_its_id() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        first = client.call("tool")
        late = client.session.calls[b"%d" % first.id]
        client.notify("notifications/cancelled", {"requestId": first.id})
        client.send_raw({"id": first.id, "method": "prompts/get", "params": {"name": "box:server:write"}})
        second = client.session.calls[late.id]
        assert second is not late
        client.session.finish(late, "result", (b"{}",))
        assert client.session.calls[late.id] is second and first.answer is None


@pytest.mark.parametrize("more", [{}, {"params": {}}], ids=str)
async def test_an_answer_of_a_server_with_neither_result_nor_error_ends_its_call(more: dict[str, object]) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        first, second = client.call(), client.call()
        server.say({"id": server.open_calls()[1]["id"], **more})
        assert second.result["isError"] and "cannot be read" in second.result["content"][0]["text"]
        assert first.answer is None
        server.say({"id": 4711})
        server.traffic.on_message(b'{"id":%d,"level":"info"}' % server.open_calls()[0]["id"])
        assert first.answer is None, "a line of a log is no answer"
        server.reply(server.open_calls()[0], {"content": []})
        assert first.result["content"] == [] and workbench.is_clean()


async def test_capabilities_beyond_all_measure_are_refused() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        huge = {"experimental": {"x": {"y": "z" * MAX_CAPABILITIES_BYTES}}}
        params = {"protocolVersion": "2025-11-25", "capabilities": huge, "clientInfo": {"name": "c", "version": "1"}}
        error = client.send_request("initialize", params).error
        assert (error["code"], error["message"]) == (-32602, TOO_CAPABLE)
        assert b"zzz" not in client.session.caller.capabilities
        stamped = workbench.client("modern", capabilities=huge)
        assert stamped.send_request("tools/list", {}).error["message"] == TOO_CAPABLE


@pytest.mark.parametrize("text", [rb"\ud800", rb"\udc00", rb"a\uD83Db"])
async def test_half_of_a_surrogate_pair_is_named(text: bytes) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        client.received.clear()
        client.session.on_message(b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"%b"}}' % text)
        (answer,) = client.received
        message = "`params` cannot be used: not valid Unicode: half of a surrogate pair"
        assert (answer["id"], answer["error"]) == (9, {"code": -32602, "message": message})
