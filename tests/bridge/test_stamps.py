"""What each era writes around a result: its type, who made it, how long it holds."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.protocol.results import modern_parts, type_and_spelling
from mcp_workbench.engine.session import client_call
from tests.bridge.conversation import FINAL
from tests.bridge.in_process import ERAS, META, Json, in_process_workbench, until
from tests.bridge.modern_to_legacy import DONE

SERVER_INFO = META + "serverInfo"


@pytest.mark.bridge("result-type")
async def test_a_result_of_a_legacy_server_is_complete_to_a_modern_client() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        for result in (DONE, {}, {"content": [], "structuredContent": {"resultType": "nested"}}):
            request = client.call()
            server.reply(server.call, result)
            assert request.result["resultType"] == "complete"


@pytest.mark.bridge("result-type")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("kind", ["complete", "of the future"])
async def test_a_type_that_a_server_gave_is_kept(client_era: str, kind: str) -> None:
    """A legacy client is told nothing of what every result is, but not misled about one that is something else."""
    async with in_process_workbench("modern") as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call()
        server.reply(server.call, {"resultType": kind, **DONE})
        is_told = client_era == "modern" or kind != "complete"
        assert request.result == ({"resultType": kind, **DONE} if is_told else DONE)


@pytest.mark.bridge("server-info")
@pytest.mark.parametrize("own", [{}, {"_meta": {"kept": [1]}}, {"content": [{"type": "text", "_meta": {"nested": 1}}]}])
async def test_a_modern_client_gets_the_server_info_of_a_result(own: Json) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        server.reply(server.call, {**DONE, **own})
        meta = request.result["_meta"]
        assert meta.pop(SERVER_INFO) == {"name": "fake-server", "version": "3"}
        assert meta == own.get("_meta", {})
        rest = {key: value for key, value in request.result.items() if key not in ("_meta", "resultType")}
        assert rest == {key: value for key, value in {**DONE, **own}.items() if key != "_meta"}


@pytest.mark.bridge("server-info")
@pytest.mark.parametrize("client_era", ERAS)
async def test_server_info_in_a_result_is_kept_for_modern_clients_only(client_era: str) -> None:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call()
        result = {"resultType": "complete", **DONE, "_meta": {SERVER_INFO: {"name": "of this result"}, "kept": 1}}
        server.reply(server.call, result)
        # Legacy clients know of neither, and get only what belongs to the result itself.
        assert request.result == (result if client_era == "modern" else {**DONE, "_meta": {"kept": 1}})


@pytest.mark.bridge("server-info", "caching")
async def test_a_legacy_client_gets_no_members_of_modern_results() -> None:
    """It shares the connection of a modern one if it cannot be asked anything."""
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        written = {"uri": "test:///one", "text": '{"resultType": "complete", "ttlMs": 1}'}
        modern = {
            "resultType": "complete",
            "ttlMs": 60_000,
            "cacheScope": "public",
            "_meta": {SERVER_INFO: {"name": "x"}},
        }
        for content in ([], [written]):
            request = client.send_request("resources/read", {"uri": "test:///one"})
            server.reply(server.call, {**modern, "contents": content, "x-kept": {"ttlMs": 1}})
            assert request.result == {"contents": content, "x-kept": {"ttlMs": 1}}


async def test_a_large_modern_result_is_translated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_call, "LARGE_RESULT", 100)
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call()
        server.reply(server.call, {"resultType": "complete", "content": [{"type": "text", "text": "x" * 200}]})
        await until(lambda: request.answer is not None)
        assert request.result == {"content": [{"type": "text", "text": "x" * 200}]}


@pytest.mark.bridge("server-info", "handshake")
async def test_our_own_answers_are_attributed_to_us() -> None:
    async with in_process_workbench("legacy", face="proxy") as workbench:
        client = workbench.client("modern")
        wrong = client.send_request("tools/call", {"name": "use_tool", "arguments": {}})
        for request in (wrong, client.send_request("server/discover"), client.send_request("tools/list")):
            await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
            assert request.result["_meta"][SERVER_INFO]["name"] == "mcp-workbench"
            assert request.result["resultType"] == "complete"
        shaken = workbench.client("legacy").send_request("initialize", {"protocolVersion": "2025-11-25"})
        assert shaken.result["serverInfo"]["name"] == "mcp-workbench"
        assert "resultType" not in shaken.result


@pytest.mark.bridge("caching")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_how_long_a_resource_holds(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call("resource")
        given = {"resultType": "complete", "ttlMs": 5000, "cacheScope": "public"} if server_era == "modern" else {}
        server.reply(server.call, {**FINAL["resource"], **given})
        hints = (request.result.get("ttlMs"), request.result.get("cacheScope"))
        if client_era == "legacy":
            assert hints == (None, None), "the legacy era does not know them"
        elif server_era == "modern":
            assert hints == (5000, "public"), "as the server said"
        else:
            assert hints == (0, "private"), "nobody knows, so it holds for nothing and for nobody else"


@pytest.mark.bridge("caching")
async def test_only_cacheable_results_have_a_ttl() -> None:
    async with in_process_workbench("legacy", use_cache=True) as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        for route in ("tool", "prompt"):
            request = client.call(route)
            server.reply(server.call, FINAL[route])
            assert "ttlMs" not in request.result
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"):
            result = client.send_request(method).result
            assert isinstance(result["ttlMs"], int) and result["cacheScope"] == "private"
        legacy = workbench.client("legacy")
        assert "ttlMs" not in legacy.send_request("tools/list").result


@pytest.mark.bridge("server-info", "caching")
@pytest.mark.parametrize(
    "written",
    [
        b'{"_meta":null,"contents":[]}',
        b'{"_meta":5,"contents":[]}',
        b'{"contents":[{"_meta":{"a":1}}],"ttlMs":7}',
        b'{"contents":["\\"_meta\\":"]}',
        rb'{"contents":["\ud800"],"_meta":{}}',
        b"[]",
        b"5",
    ],
)
def test_a_strange_result_passes_with_all_that_is_in_it(written: bytes) -> None:
    kind, is_escaped = type_and_spelling(written)
    parts = modern_parts(written, kind, "resources/read", b'{"name":"x"}', is_escaped=is_escaped)
    result = b"".join(parts)
    assert written[1:-1] in result
