"""What servers declare beyond the specification, and the requests that belong to it."""

from __future__ import annotations

import pytest

from tests.bridge.in_process import ERAS, Client, Json, in_process_workbench, settled

DECLARED: dict[str, Json] = {
    "other": {"experimental": {"com.example/one": {}}},
    "server": {
        "experimental": {"com.example/two": {"level": 2}},
        "extensions": {"com.example/search": {}, "com.example/maps": {}},
    },
}


def shown(client: Client) -> Json:
    """What the workbench says that it can do."""
    if client.era == "modern":
        found: Json = client.send_request("server/discover").result["capabilities"]
    else:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "fake"}}
        found = client.send_request("initialize", params).result["capabilities"]
    return found


@pytest.mark.bridge("handshake")
@pytest.mark.parametrize("era", ERAS)
async def test_experimental_capabilities_of_all_servers_are_shown(era: str) -> None:
    eras = dict.fromkeys(DECLARED, era)
    async with in_process_workbench("", servers=eras, capabilities=DECLARED) as workbench:
        client = workbench.client(era)
        for name in DECLARED:
            await workbench.connect(client, name)
        assert shown(workbench.client(era))["experimental"] == {"com.example/one": {}, "com.example/two": {"level": 2}}


@pytest.mark.bridge("unknown-methods")
@pytest.mark.parametrize("method", ["maps/find", "com.example/maps/find"])
async def test_a_method_of_an_extension_goes_to_the_only_server_that_declares_it(method: str) -> None:
    eras = dict.fromkeys(DECLARED, "modern")
    async with in_process_workbench("", servers=eras, capabilities=DECLARED) as workbench:
        client = workbench.client("modern")
        other, server = [await workbench.connect(client, name) for name in DECLARED]
        request = client.send_request(method, {"place": "here"})
        await settled()
        (forwarded,) = server.requests(method)
        assert forwarded["params"]["place"] == "here"
        server.reply(forwarded, {"found": 1})
        assert request.result["found"] == 1
        assert other.received == []


@pytest.mark.bridge("unknown-methods")
@pytest.mark.parametrize("declared", [{}, {"extensions": {"com.example/maps": {}}}])
async def test_a_method_of_an_extension_that_none_or_several_declare_is_refused(declared: Json) -> None:
    eras = {"other": "modern", "server": "modern"}
    async with in_process_workbench("", servers=eras, capabilities=dict.fromkeys(eras, declared)) as workbench:
        client = workbench.client("modern")
        servers = [await workbench.connect(client, name) for name in eras]
        assert client.send_request("maps/find").error["code"] == -32601
        assert [each.received for each in servers] == [[], []]


@pytest.mark.bridge("handshake")
@pytest.mark.parametrize("era", ERAS)
async def test_extensions_of_a_server_that_is_running_are_shown_to_clients_of_both_eras(era: str) -> None:
    """Only in the modern era are they declared; a client of the other one is told all the same."""
    eras = dict.fromkeys(DECLARED, "modern")
    async with in_process_workbench("", servers=eras, capabilities=DECLARED) as workbench:
        first = workbench.client("modern")
        for name in DECLARED:
            await workbench.connect(first, name)
        assert shown(workbench.client(era))["extensions"] == {"com.example/search": {}, "com.example/maps": {}}
