"""What is too large to be decoded for one client while all others wait is refused, however it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.engine.face.identifier import MAX_OWN_BYTES as MAX_ARGUMENT_BYTES
from mcp_workbench.engine.jsonrpc.large_messages import read_large
from mcp_workbench.engine.jsonrpc.messages import LargeObject
from mcp_workbench.engine.session.session import MAX_META_BYTES, MAX_NAME_BYTES, MAX_OWN_BYTES
from mcp_workbench.engine.transport.http.message_summary import summarise
from mcp_workbench.engine.transport.http.server.served_session import hand_over
from tests.bridge.in_process import ERAS, Client, in_process_workbench

WAYS = ("line", "large line", "body", "large body")


def numbers(size: int) -> str:
    """JSON of this size that is not a string: whoever decodes it says so, instead of how large it is."""
    return "[" + "1," * ((size - 3) // 2) + "1" * (2 - size % 2) + "]"


def deliver(client: Client, way: str, method: str, params: str) -> dict[str, Any]:
    """Send a request as its transport would, and return the answer."""
    stamp = "" if client.era == "legacy" else f'"_meta":{json.dumps(client.stamp())},'
    text = f'{{"jsonrpc":"2.0","id":901,"method":"{method}","params":{{{stamp}{params}}}}}'
    line = text.encode()
    client.received.clear()
    if way == "line":
        client.session.on_message(line)
    elif way == "large line":
        client.session.on_read_message(line, read_large(line))
    else:
        hand_over(client.session, line, summarise(line, read_large(line) if way == "large body" else None))
    (answer,) = client.received
    assert answer["id"] == 901
    return answer


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("method", "name", "most"),
    [
        ("tools/call", "name", MAX_NAME_BYTES),
        ("prompts/get", "name", MAX_NAME_BYTES),
        ("resources/read", "uri", MAX_NAME_BYTES),
        ("resources/subscribe", "uri", MAX_NAME_BYTES),
        ("completion/complete", "ref", MAX_NAME_BYTES),
        ("subscriptions/listen", "notifications", MAX_OWN_BYTES),
        ("tools/call", "requestState", MAX_META_BYTES),
    ],
)
async def test_names_and_uris_beyond_the_limit_are_not_decoded(
    era: str, way: str, method: str, name: str, most: int
) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client(era)
        server = await workbench.connect(client)
        before = len(server.received)
        answer = deliver(client, way, method, f'"{name}":{numbers(most + 1)}')
        text = f"`{name}` has {most + 1} bytes, more than the {most} that are allowed"
        assert answer["error"] == {"code": -32602, "message": text}
        assert len(server.received) == before and client.session.calls == {}


@pytest.mark.parametrize("face", ["flat", "proxy", "dynamic"])
@pytest.mark.parametrize("way", WAYS)
async def test_names_are_bounded_in_every_face(face: str, way: str) -> None:
    async with in_process_workbench("legacy", face=face) as workbench:
        client = workbench.client("modern")
        answer = deliver(client, way, "tools/call", f'"name":{numbers(MAX_NAME_BYTES + 1)}')
        assert answer["error"]["message"].startswith("`name` has ")


async def test_a_uri_at_the_limit_is_passed_on() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        uri = "test:///" + "x" * (MAX_NAME_BYTES - 10)
        client.send_request("resources/read", {"uri": uri})
        assert server.call["params"]["uri"] == uri


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["tool", "toolbox", "server", "max_tokens"])
async def test_own_members_of_use_tool_are_bounded(era: str, way: str, name: str) -> None:
    async with in_process_workbench("legacy", face="proxy") as workbench:
        client = workbench.client(era)
        server = await workbench.connect(client)
        before = len(server.received)
        filling = numbers(MAX_ARGUMENT_BYTES + 1)
        other = "" if name == "tool" else ',"tool":"box/server/work"'
        params = f'"name":"use_tool","arguments":{{"arguments":{{}},"{name}":{filling}{other}}}'
        result = deliver(client, way, "tools/call", params)["result"]
        assert result["isError"] is True
        assert f"`{name}` has {MAX_ARGUMENT_BYTES + 1} bytes, more than the {MAX_ARGUMENT_BYTES} allowed" in str(result)
        assert len(server.received) == before


@pytest.mark.parametrize("face", ["proxy", "dynamic"])
@pytest.mark.parametrize("way", WAYS)
async def test_arguments_of_open_toolbox_are_bounded(face: str, way: str) -> None:
    async with in_process_workbench("legacy", face=face) as workbench:
        client = workbench.client("modern")
        params = f'"name":"open_toolbox","arguments":{{"query":{numbers(MAX_ARGUMENT_BYTES)}}}'
        result = deliver(client, way, "tools/call", params)["result"]
        assert result["isError"] is True and f"more than the {MAX_ARGUMENT_BYTES} allowed" in str(result)


@pytest.mark.parametrize("way", WAYS)
async def test_arguments_of_tools_may_have_any_size_and_stay_as_they_are(way: str) -> None:
    async with in_process_workbench("legacy", face="proxy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        filling = "x" * (2 * MAX_META_BYTES)
        tool = '{"toolbox":"box","server":"server","tool":"work"}'
        params = f'"name":"use_tool","arguments":{{"tool":{tool},"arguments":{{"text": "{filling}"}}}}'
        line = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params}}}}}'.encode()
        if way.endswith("line"):
            client.session.on_read_message(line, read_large(line))
        else:
            hand_over(client.session, line, summarise(line, read_large(line) if way == "large body" else None))
        assert server.call["params"]["arguments"] == {"text": filling}


def test_small_requests_are_plain_objects() -> None:
    """On the path of each call, all that is compared is the length of the message."""
    for size, kind in ((100, dict), (9000, LargeObject)):
        line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%b"}}' % (b"x" * size)
        assert type(summarise(line).params) is kind
