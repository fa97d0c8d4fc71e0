"""A server that speaks both eras is spoken to in its client's; the bridge is for servers that speak only the other."""

from __future__ import annotations

import pytest

from tests.bridge.in_process import ERAS, META, InProcessWorkbench, Json, in_process_workbench, until

pytestmark = pytest.mark.bridge("handshake", "capabilities")
FORM: Json = {"elicitation": {}}


def running(workbench: InProcessWorkbench) -> list[str]:
    return [fake.era for fake in workbench.gateway.fake_servers if not fake.is_stopped]


async def test_each_client_gets_a_connection_of_its_own_era() -> None:
    async with in_process_workbench("both") as workbench:
        servers = {era: await workbench.connect(workbench.client(era)) for era in ERAS}
        assert {era: server.era for era, server in servers.items()} == {"legacy": "legacy", "modern": "modern"}
        for era in ERAS:
            assert await workbench.connect(workbench.client(era)) is servers[era], (
                "and shares it with others of that era"
            )
        assert sorted(running(workbench)) == ["legacy", "modern"]


async def test_a_question_in_a_legacy_connection_reaches_the_legacy_client_directly() -> None:
    async with in_process_workbench("both") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call()
        (call,) = server.open_calls()
        server.ask("elicitation/create", {"message": "Sure?", "requestedSchema": {"type": "object"}})
        (question,) = client.questions()
        client.answer(question, {"action": "accept"})
        server.reply(call, {"content": []})
        assert request.result["content"] == []


@pytest.mark.parametrize("client_era", ERAS)
async def test_modern_server_needs_one_process_for_all_capabilities(client_era: str) -> None:
    async with in_process_workbench("modern") as workbench:
        declared: list[Json] = [
            {},
            FORM,
            {"sampling": {}},
            {"roots": {"listChanged": True}},
            {"experimental": {"x": {}}},
        ]
        clients = [workbench.client(client_era, each) for each in declared]
        servers = [await workbench.connect(client) for client in clients]
        assert len(set(map(id, servers))) == 1
        for client, capabilities in zip(clients, declared, strict=True):
            client.call()
            assert servers[0].open_calls()[-1]["params"]["_meta"][META + "clientCapabilities"] == capabilities


async def test_clients_of_both_eras_share_a_modern_server() -> None:
    async with in_process_workbench("modern") as workbench:
        assert await workbench.connect(workbench.client("legacy", {})) is await workbench.connect(
            workbench.client("modern", FORM)
        )


async def test_legacy_clients_that_come_at_once_to_a_server_that_turns_out_modern_share_it_in_the_end() -> None:
    async with in_process_workbench("modern") as workbench:
        clients = [workbench.client("legacy", each) for each in ({}, FORM)]
        requests = [client.call() for client in clients]
        await until(lambda: len(workbench.unanswered()) == 2)
        (server,) = {id(fake): fake for fake in workbench.gateway.fake_servers if fake.open_calls()}.values()
        for call in server.open_calls():
            server.reply(call, {"content": []})
        assert all(request.result["content"] == [] for request in requests)
        await until(lambda: running(workbench) == ["modern"])


async def test_modern_clients_that_come_at_once_to_a_server_that_turns_out_legacy_are_each_told_of() -> None:
    async with in_process_workbench("legacy") as workbench:
        declared: list[Json] = [{}, FORM]
        clients = [workbench.client("modern", each) for each in declared]
        for client in clients:
            client.call()
        await until(lambda: len(workbench.unanswered()) == 2)
        servers = [fake for fake in workbench.gateway.fake_servers if fake.open_calls()]
        assert sorted(str(server.declared["capabilities"]) for server in servers) == sorted(map(str, declared))


async def test_a_modern_client_joins_the_legacy_connection_once_it_is_known_that_there_is_no_other() -> None:
    async with in_process_workbench("legacy") as workbench:
        server = await workbench.connect(workbench.client("legacy", FORM))
        assert await workbench.connect(workbench.client("modern", FORM)) is server
        await until(lambda: running(workbench) == ["legacy"])
        assert len(workbench.gateway.fake_servers) == 2, "it was asked once whether it speaks modern MCP too"
        assert await workbench.connect(workbench.client("modern", FORM)) is server
        assert len(workbench.gateway.fake_servers) == 2


async def test_differences_irrelevant_to_a_server_do_not_start_another_one() -> None:
    async with in_process_workbench("legacy") as workbench:
        alike: list[Json] = [
            {"elicitation": {}, "roots": {}, "sampling": {}},
            {"elicitation": {"form": {}}, "roots": {"listChanged": False}, "sampling": {}, "experimental": {}},
        ]
        first, second = [await workbench.connect(workbench.client("legacy", each)) for each in alike]
        assert first is second
