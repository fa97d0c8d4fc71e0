"""A server that speaks both eras is spoken to in its client's; the bridge is for servers that speak only the other."""

from __future__ import annotations

import pytest

from tests.bridge.stage import ERAS, META, Json, Stage, staged, until

pytestmark = pytest.mark.bridge("handshake", "capabilities")
FORM: Json = {"elicitation": {}}


def running(stage: Stage) -> list[str]:
    return [played.era for played in stage.gateway.played if not played.is_stopped]


async def test_each_client_gets_a_connection_of_its_own_era() -> None:
    async with staged("both") as stage:
        servers = {era: await stage.connect(stage.client(era)) for era in ERAS}
        assert {era: server.era for era, server in servers.items()} == {"legacy": "legacy", "modern": "modern"}
        for era in ERAS:
            assert await stage.connect(stage.client(era)) is servers[era], "and shares it with others of that era"
        assert sorted(running(stage)) == ["legacy", "modern"]


async def test_a_question_in_a_legacy_connection_reaches_the_legacy_client_directly() -> None:
    async with staged("both") as stage:
        client = stage.client("legacy")
        server = await stage.connect(client)
        request = client.call()
        (call,) = server.open_calls()
        server.ask("elicitation/create", {"message": "Sure?", "requestedSchema": {"type": "object"}})
        (question,) = client.questions()
        client.answer(question, {"action": "accept"})
        server.reply(call, {"content": []})
        assert request.result["content"] == []


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_modern_server_needs_one_process_whatever_clients_declare(client_era: str) -> None:
    async with staged("modern") as stage:
        declared: list[Json] = [
            {},
            FORM,
            {"sampling": {}},
            {"roots": {"listChanged": True}},
            {"experimental": {"x": {}}},
        ]
        clients = [stage.client(client_era, each) for each in declared]
        servers = [await stage.connect(client) for client in clients]
        assert len(set(map(id, servers))) == 1
        for client, capabilities in zip(clients, declared, strict=True):
            client.call()
            assert servers[0].open_calls()[-1]["params"]["_meta"][META + "clientCapabilities"] == capabilities


async def test_clients_of_both_eras_share_a_modern_server() -> None:
    async with staged("modern") as stage:
        assert await stage.connect(stage.client("legacy", {})) is await stage.connect(stage.client("modern", FORM))


async def test_legacy_clients_that_come_at_once_to_a_server_that_turns_out_modern_share_it_in_the_end() -> None:
    async with staged("modern") as stage:
        clients = [stage.client("legacy", each) for each in ({}, FORM)]
        requests = [client.call() for client in clients]
        await until(lambda: len(stage.unanswered()) == 2)
        (server,) = {id(played): played for played in stage.gateway.played if played.open_calls()}.values()
        for call in server.open_calls():
            server.reply(call, {"content": []})
        assert all(request.result["content"] == [] for request in requests)
        await until(lambda: running(stage) == ["modern"])


async def test_modern_clients_that_come_at_once_to_a_server_that_turns_out_legacy_are_each_told_of() -> None:
    async with staged("legacy") as stage:
        declared: list[Json] = [{}, FORM]
        clients = [stage.client("modern", each) for each in declared]
        for client in clients:
            client.call()
        await until(lambda: len(stage.unanswered()) == 2)
        servers = [played for played in stage.gateway.played if played.open_calls()]
        assert sorted(str(server.declared["capabilities"]) for server in servers) == sorted(map(str, declared))


async def test_a_modern_client_joins_the_legacy_connection_once_it_is_known_that_there_is_no_other() -> None:
    async with staged("legacy") as stage:
        server = await stage.connect(stage.client("legacy", FORM))
        assert await stage.connect(stage.client("modern", FORM)) is server
        await until(lambda: running(stage) == ["legacy"])
        assert len(stage.gateway.played) == 2, "it was asked once whether it speaks modern MCP too"
        assert await stage.connect(stage.client("modern", FORM)) is server
        assert len(stage.gateway.played) == 2


async def test_what_does_not_matter_to_a_server_does_not_start_another_one() -> None:
    async with staged("legacy") as stage:
        alike: list[Json] = [
            {"elicitation": {}, "roots": {}, "sampling": {}},
            {"elicitation": {"form": {}}, "roots": {"listChanged": False}, "sampling": {}, "experimental": {}},
        ]
        first, second = [await stage.connect(stage.client("legacy", each)) for each in alike]
        assert first is second
