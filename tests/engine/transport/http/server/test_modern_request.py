"""Modern requests: one POST each, JSON or a stream as it needs, and a disconnect that cancels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.header_parameters import HeaderParameters
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.status_codes import STATUS_OF_CODE
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import MODERN, legacy, modern, modern_headers, written


async def test_the_only_message_is_json() -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=modern("echo", {"x": 1}), **modern_headers("echo"))
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
        assert response.json["result"]["echo"]["x"] == 1
        assert "mcp-session-id" not in response.headers


async def test_many_requests_share_a_connection_and_each_has_a_session_of_its_own() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        for number in range(5):
            response = await connection.request(body=modern("echo", id=number), **modern_headers("echo"))
            assert response.json["id"] == number
        assert len(rig.sessions) == 5
        assert rig.server.connection_count == 1


async def test_a_message_before_the_answer_makes_it_a_stream() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later", id="a"), **modern_headers("later")))
        await rig.under_way()
        rig.last.notify("notifications/progress", about=b'"a"', progress=1)
        response = await connection.response()
        assert response.is_stream and response.headers["x-accel-buffering"] == "no"
        assert (await response.message())["method"] == "notifications/progress"
        rig.last.answer(b'"a"', {"done": True})
        assert (await response.message())["result"] == {"done": True}
        await response.end()
        # The connection is as good as before.
        assert (await connection.request(body=modern("echo"), **modern_headers("echo"))).status == 200


async def test_silence_becomes_a_stream_with_comments() -> None:
    async with echoing(Limits(comment_seconds=0.02)) as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        response = await connection.response()
        assert response.is_stream
        assert (await connection.chunk()) == b":\n\n"
        rig.last.answer(b"1", {})
        assert (await response.message())["id"] == 1


async def test_a_disconnect_cancels() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later", id=9), **modern_headers("later")))
        await rig.under_way()
        connection.close()
        await wait_until(lambda: bool(rig.last.ended))
        assert rig.last.received[-1]["method"] == "notifications/cancelled"
        assert rig.last.received[-1]["params"]["requestId"] == 9
        # Whatever it still says reaches nobody, and breaks nothing.
        rig.last.notify("notifications/progress")
        rig.last.answer(b"9", {})


def documented_statuses() -> list[tuple[int, int]]:
    document = (Path(__file__).parents[5] / "docs" / "reference" / "eras.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(-\d+)` \| (\d{3}) \|", document, flags=re.MULTILINE)
    return [(int(code), int(status)) for code, status in rows]


def test_every_code_with_a_status_of_its_own_is_documented() -> None:
    told = dict(documented_statuses())
    assert {code: told.get(code) for code in STATUS_OF_CODE} == STATUS_OF_CODE


@pytest.mark.parametrize(("code", "status"), [*documented_statuses(), (-32002, 200), (7, 200)])
async def test_the_status_follows_the_code_of_the_error(code: int, status: int) -> None:
    async with echoing() as rig:
        body = modern("refuse", {"error": {"code": code, "message": "no"}})
        response = await rig.client.request(body=body, **modern_headers("refuse"))
        assert (response.status, response.error["code"]) == (status, code)


@pytest.mark.parametrize("id", ["a", "\ud800"])
async def test_an_error_with_half_of_a_surrogate_pair_is_an_answer_like_any_other(id: str) -> None:
    """As programs in JavaScript write when they cut a text off in the middle of a character."""
    async with echoing() as rig:
        body = modern("refuse", {"error": {"code": -32601, "message": "cut \ud83d", "data": "\udfff"}}, id)
        response = await rig.client.request(body=body, **modern_headers("refuse"))
        assert (response.status, response.json["id"], response.error["message"]) == (404, id, "cut \ud83d")


@pytest.mark.parametrize("id", [b"1", b"null", b"{}"])
async def test_a_call_like_the_last_is_refused_while_the_server_stops_or_without_a_valid_id(id: bytes) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        headers, params = modern_headers("tools/call", "echo"), {"name": "echo"}
        for number in range(3):
            assert (await connection.request(body=modern("tools/call", params, number), **headers)).status == 200
        stops = id == b"1"
        if stops:
            rig.server.drain()
        body = json.dumps(modern("tools/call", params)).encode().replace(b'"id": 1', b'"id": ' + id)
        response = await rig.refused(connection.request(body=body, **headers), 503 if stops else 400)
        assert ("shutting down" if stops else "must be a string or a number") in response.error["message"]


def without(name: str) -> dict[str, str | None]:
    return {**modern_headers("tools/call", "echo"), name: None}


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        (without("mcp_protocol_version"), "`mcp-protocol-version` is missing"),
        (without("mcp_method"), "`mcp-method` is missing"),
        (without("mcp_name"), "`mcp-name` is missing"),
        ({**modern_headers("tools/call", "echo"), "mcp_protocol_version": "2025-11-25"}, "`mcp-protocol-version`"),
        (modern_headers("Tools/Call", "echo"), "`mcp-method` does not match"),
        (modern_headers("tools/call", "Echo"), "`mcp-name` does not match"),
        (modern_headers("tools/call", "=?base64?ZWNobw?="), "`mcp-name` does not match"),
    ],
)
async def test_headers_that_do_not_match_the_body_are_refused(headers: dict[str, str], complaint: str) -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=modern("tools/call", {"name": "echo"}), **headers)
        assert (response.status, response.error["code"], response.json["id"]) == (400, -32020, 1)
        assert complaint in response.error["message"]
        assert not rig.sessions, "nothing was started"


async def test_a_head_that_agreed_with_a_call_agrees_with_no_other_method() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        headers = modern_headers("tools/call", "echo")
        for method, status in (("tools/call", 200), ("tools/call", 200), ("prompts/get", 400), ("tools/call", 200)):
            response = await connection.request(body=modern(method, {"name": "echo"}), **headers)
            assert response.status == status
            assert status == 200 or "`mcp-method` does not match" in response.error["message"]


async def test_a_repeated_header_is_refused() -> None:
    async with echoing() as rig:
        data = written("POST", "/mcp", modern("tools/call", {"name": "a"}), **modern_headers("tools/call", "a"))
        connection = await rig.client.connect()
        await connection.send(data.replace(b"mcp-name: a\r\n", b"mcp-name: a\r\nMcp-Name: b\r\n"))
        response = await connection.response()
        assert (response.status, response.error["code"]) == (400, -32020)


@pytest.mark.parametrize("value", ["echo", "  echo\t", "=?base64?ZWNobw==?="])
async def test_names_are_compared_after_decoding(value: str) -> None:
    async with echoing() as rig:
        headers = modern_headers("tools/call", value)
        response = await rig.client.request(body=modern("tools/call", {"name": "echo"}), **headers)
        assert response.status == 200


async def test_names_of_headers_are_found_in_any_spelling() -> None:
    async with echoing() as rig:
        headers = {"MCP_PROTOCOL_VERSION": "2026-07-28", "mCp_MeThOd": "resources/read", "MCP_NAME": "file:///a"}
        response = await rig.client.request(body=modern("resources/read", {"uri": "file:///a"}), **headers)
        assert response.status == 200


async def test_parameters_in_headers_are_checked() -> None:
    known: dict[str, HeaderParameters] = {"deploy": {("region",): "Region"}}
    body = modern("tools/call", {"name": "deploy", "arguments": {"region": "eu"}})
    async with echoing(parameters_of=lambda tool, principal: known.get(tool)) as rig:
        headers: dict[str, Any] = modern_headers("tools/call", "deploy")
        assert (await rig.client.request(body=body, **headers, Mcp_Param_Region="eu")).status == 200
        for wrong in ({"mcp_param_region": "us"}, {}):
            response = await rig.client.request(body=body, **headers, **wrong)
            assert (response.status, response.error["code"]) == (400, -32020)


async def test_a_request_without_a_stamp_is_left_to_the_session() -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=legacy("echo"), mcp_protocol_version="2026-07-28")
        assert response.status == 200
        assert rig.last.received[0]["method"] == "echo"


@pytest.mark.parametrize("version", [MODERN, "1999-01-01", "nonsense"])
async def test_ping_without_a_stamp_is_not_answered_under_any_revision(version: str) -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=legacy("ping"), mcp_protocol_version=version)
        assert (response.status, response.error["code"]) == (400, -32020)
        assert not rig.sessions


async def test_a_tool_that_is_not_found_is_a_bad_request_and_no_missing_page() -> None:
    async with echoing() as rig:
        for method, status in (("tools/call", 400), ("no/such", 404)):
            body = modern(method, {"name": "x", "error": {"code": -32601, "message": "Unknown tool"}})
            response = await rig.client.request(body=body, **modern_headers(method, "x"))
            assert (response.status, response.error["code"]) == (status, -32601)


async def test_initialize_does_not_exist_in_this_era() -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=modern("initialize"), **modern_headers("initialize"))
        assert (response.status, response.error["code"]) == (404, -32601)


async def test_notifications_are_accepted_and_answers_are_not() -> None:
    async with echoing() as rig:
        told = await rig.client.request(body=legacy("notifications/x", id=None), mcp_protocol_version="2026-07-28")
        assert (told.status, told.body) == (202, b"")
        answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert (await rig.client.request(body=answer, mcp_protocol_version="2026-07-28")).status == 400
        assert not rig.sessions


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_the_era_has_post_only(method: str) -> None:
    async with echoing() as rig:
        response = await rig.client.request(method, mcp_protocol_version="2026-07-28")
        assert (response.status, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"", -32700),
        (b'"text"', -32600),
        (b'{"jsonrpc":"1.0","method":"x"}', -32600),
        (b"\xff\xfe", -32700),
        (b'{"id":null,"method":"x"}', -32600),
    ],
)
async def test_bodies_that_are_no_message_are_refused(body: bytes, code: int) -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=body, mcp_protocol_version="2026-07-28")
        assert (response.status, response.error["code"]) == (400, code)
        assert response.json["id"] is None


async def test_a_request_that_lost_its_method_is_refused_under_its_id() -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=b'{"jsonrpc":"2.0","id":5}', mcp_protocol_version="2026-07-28")
        assert (response.status, response.error["code"], response.json["id"]) == (400, -32600, 5)


async def test_line_breaks_in_a_body_do_not_reach_the_session() -> None:
    async with echoing() as rig:
        body = json.dumps(modern("echo", {"a": "b"}), indent=2).replace("\n", "\r\n").encode()
        response = await rig.client.request(body=body, **modern_headers("echo"))
        assert response.json["result"]["echo"]["a"] == "b"


async def test_a_defect_is_a_500_and_the_connection_lives(caplog: pytest.LogCaptureFixture) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        response = await connection.request(body=modern("break"), **modern_headers("break"))
        assert (response.status, response.error["code"]) == (500, -32603)
        assert (await connection.request(body=modern("echo"), **modern_headers("echo"))).status == 200
        # Nobody told this one of its end.
        rig.sessions[0].ended.append("broken")
