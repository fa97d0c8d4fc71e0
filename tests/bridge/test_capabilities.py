"""A server is told what the client it talks to can do, and nothing else."""

from __future__ import annotations

import pytest

from tests.bridge.conversation import FORM, input_required
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import ERAS, META, Json, in_process_workbench, until

pytestmark = pytest.mark.bridge("capabilities")

DECLARED: list[Json] = [
    {},
    {"elicitation": {}},
    {"elicitation": {"form": {}, "url": {}}},
    {"sampling": {"tools": {}}, "roots": {"listChanged": True}, "experimental": {"x": {"deep": [1, None, "ü"]}}},
    {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}},
]


def declared_to(server: FakeServer) -> Json:
    declared: Json = server.declared["capabilities" if server.era == "legacy" else META + "clientCapabilities"]
    return declared


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_legacy_server_gets_a_connection_whose_handshake_declared_exactly_that(client_era: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        servers = []
        for declared in DECLARED:
            server = await workbench.connect(workbench.client(client_era, declared))
            assert declared_to(server) == declared
            servers.append(server)
        assert len(set(map(id, servers))) == len(DECLARED), (
            "clients that can do something else have a server of their own"
        )


async def test_clients_that_can_do_the_same_share_a_server_however_they_write_it() -> None:
    async with in_process_workbench("legacy") as workbench:
        one = workbench.client("modern", {"sampling": {}, "elicitation": {"form": {}, "url": {}}})
        other = workbench.client("modern", {"elicitation": {"url": {}, "form": {}}, "sampling": {}})
        legacy = workbench.client("legacy", {"elicitation": {"form": {}, "url": {}}, "sampling": {}})
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        assert await workbench.connect(legacy) is server


async def test_one_modern_client_may_declare_something_else_with_each_request() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern", {})
        plain = await workbench.connect(client)
        client.capabilities = {"roots": {}}
        able = await workbench.connect(client)
        assert (declared_to(plain), declared_to(able)) == ({}, {"roots": {}})
        client.call()
        assert len(able.open_calls()) == 1
        assert plain.open_calls() == []


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("declared", DECLARED)
async def test_a_modern_server_is_told_with_each_request(client_era: str, declared: Json) -> None:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client(client_era, declared)
        server = await workbench.connect(client)
        for route in ("tool", "prompt", "resource"):
            client.call(route)
            assert server.open_calls()[-1]["params"]["_meta"][META + "clientCapabilities"] == declared


@pytest.mark.bridge("client-info", "version")
@pytest.mark.parametrize("server_era", ERAS)
async def test_client_info_is_forwarded_only_from_modern_clients_to_modern_servers(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        legacy, modern = workbench.client("legacy"), workbench.client("modern")
        server = await workbench.connect(legacy)
        assert await workbench.connect(modern) is server
        legacy.call()
        modern.call()
        of_legacy, of_modern = (call["params"].get("_meta", {}) for call in server.open_calls())
        if server_era == "legacy":
            assert server.declared["clientInfo"]["name"] == "mcp-workbench", "many clients, one handshake: it is ours"
            assert server.declared["protocolVersion"] == "2025-11-25"
            assert (of_legacy, of_modern) == ({}, {}), "a legacy server knows nothing of stamps"
        else:
            assert of_legacy[META + "clientInfo"]["name"] == "mcp-workbench"
            assert of_modern[META + "clientInfo"] == {"name": "fake", "version": "1"}
            versions = {meta[META + "protocolVersion"] for meta in (of_legacy, of_modern)}
            assert versions == {"2026-07-28"}


@pytest.mark.bridge("client-info")
async def test_a_legacy_client_cannot_declare_otherwise_in_a_request() -> None:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("legacy", {"roots": {}})
        server = await workbench.connect(client)
        claims = {META + "clientCapabilities": {"sampling": {}}, META + "clientInfo": {"name": "x"}, "kept": 1}
        client.call(meta=claims)
        meta = server.call["params"]["_meta"]
        assert meta[META + "clientCapabilities"] == {"roots": {}}
        assert meta[META + "clientInfo"]["name"] == "mcp-workbench"
        assert meta["kept"] == 1


@pytest.mark.bridge("version", "handshake")
@pytest.mark.parametrize("requested", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_legacy_client_of_any_revision_reaches_both_eras(server_era: str, requested: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("legacy")
        request = client.send_request("initialize", {"protocolVersion": requested, "capabilities": {}})
        assert request.result["protocolVersion"] == requested
        await workbench.connect(client)


@pytest.mark.bridge("version", "reserved-errors")
async def test_an_unknown_revision_is_refused_with_the_supported_ones() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        request = client.call(meta={META + "protocolVersion": "2031-01-01"})
        assert request.error["code"] == -32022
        assert request.error["data"] == {"supported": ["2026-07-28"], "requested": "2031-01-01"}
        unknown = workbench.client("legacy").send_request("initialize", {"protocolVersion": "1999-01-01"})
        assert unknown.result["protocolVersion"] == "2025-11-25", "a legacy client is offered the newest it may know"


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("settings", [{"ask": False}, {"share": "everyone"}], ids=["ask", "share"])
@pytest.mark.parametrize("method", ["roots/list", "elicitation/create"])
async def test_a_modern_server_that_may_not_ask_and_does_so_all_the_same_fails_its_call(
    client_era: str, settings: Json, method: str
) -> None:
    async with in_process_workbench("modern", settings=settings) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        for params in ({}, FORM):
            request = client.call()
            server.reply(server.call, input_required({"one": (method, params)}))
            await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
            assert request.result["isError"], request.result
            assert "may not ask" in request.result["content"][0]["text"]
        assert client.questions() == [] and len(server.requests("tools/call")) == 2
        assert workbench.is_clean()
