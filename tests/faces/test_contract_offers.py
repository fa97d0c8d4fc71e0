"""Prompts, resources, templates and completions, the same through every face, for clients and servers of either era."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.faces.harness import ERAS, EVERY_ABILITY, FACES, Bench, Seen, introduce, without_stamp
from tests.faces.memory import DirectClient, MemoryClient
from tests.support.client import Json, RpcError

every_face = pytest.mark.parametrize("face", FACES)
every_client = pytest.mark.parametrize("era", ERAS)
every_server = pytest.mark.parametrize("server_era", ERAS)
LISTS = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}


async def directly(server_era: str, method: str, params: Json) -> Json:
    async with DirectClient.of("--era", server_era, "--offers", "test") as client:
        await introduce(client, server_era)
        return await client.request(method, params)


def offering(server_era: str, *flags: object) -> dict[str, Any]:
    return {"box": {"server": ("--era", server_era, "--offers", "test", *flags)}}


async def failure(seen: Seen, method: str, params: Json) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await seen.client.request(method, params)
    return caught.value


@pytest.mark.requirement(
    "prompts.list", "resources.list", "resources.templates", "faithful.definitions", "prompts.names"
)
@every_face
@every_client
@every_server
async def test_lists_show_server_definitions_under_face_names(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    async with bench.within(offering(server_era), face, era) as seen:
        await seen.open()
        for method, kind in LISTS.items():
            own = (await directly(server_era, method, {}))[kind]
            if kind == "prompts":
                own = [{**prompt, "name": seen.name(prompt["name"])} for prompt in own]
            listed = await seen.client.request(method)
            assert listed[kind] == own
            assert ("ttlMs" in listed) == ("cacheScope" in listed) == (era == "modern")


@pytest.mark.requirement("prompts.get", "faithful.meta")
@every_face
@every_client
@every_server
async def test_a_prompt_is_got_with_its_arguments(bench: Bench, face: str, era: str, server_era: str) -> None:
    given = {"arguments": {"who": "Ann", "tone": "é"}, "_meta": {"example.test/a": [1]}}
    async with bench.within(offering(server_era), face, era) as seen:
        await seen.open()
        through = await seen.client.request("prompts/get", {"name": seen.name("greet"), **given})
        direct = await directly(server_era, "prompts/get", {"name": "greet", **given})
        assert without_stamp(through) == without_stamp(direct)
        assert ("resultType" in through) == (era == "modern")


@pytest.mark.requirement("prompts.errors")
@every_face
@every_client
@every_server
async def test_a_prompt_that_cannot_be_got_says_why(bench: Bench, face: str, era: str, server_era: str) -> None:
    async with bench.within(offering(server_era), face, era) as seen:
        await seen.open()
        unknown = await failure(seen, "prompts/get", {"name": seen.name("gret"), "arguments": {}})
        assert unknown.code == -32602 and f"`{seen.name('greet')}`" in unknown.message
        assert (await failure(seen, "prompts/get", {"name": 5})).code == -32602
        relayed = await failure(seen, "prompts/get", {"name": seen.name("greet"), "arguments": {}})
        assert relayed.error == {"code": -32602, "message": "Missing argument: who", "data": {"argument": "who"}}


@pytest.mark.requirement("resources.read", "faithful.meta")
@every_face
@every_client
@every_server
async def test_a_resource_is_read_under_its_own_uri(bench: Bench, face: str, era: str, server_era: str) -> None:
    async with bench.within(offering(server_era), face, era) as seen:
        await seen.open()
        for uri in ("test:///one", "test:///blob", "test:///item/7", "test:///file/a/b?c=ü", "ui://test/view.html"):
            params = {"uri": uri, "_meta": {"example.test/a": 1}}
            through = await seen.client.request("resources/read", params)
            direct = await directly(server_era, "resources/read", params)
            assert without_stamp(through) == without_stamp(direct)
            if era == "modern":
                assert through["resultType"] == "complete"
                assert (through["ttlMs"], through["cacheScope"]) == (
                    (1234, "public") if server_era == "modern" else (0, "private")
                )


@pytest.mark.requirement("resources.not-found")
@every_face
@every_client
@every_server
async def test_a_resource_that_does_not_exist_is_told_in_the_words_of_the_clients_era(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    boxes = {"box": {"server": offering(server_era)["box"]["server"], "other": ("--offers", "other")}}
    async with bench.within(boxes, face, era) as seen:
        await seen.open()
        code = -32602 if era == "modern" else -32002
        ours = await failure(seen, "resources/read", {"uri": "nowhere:///one"})
        assert (ours.code, ours.data) == (code, {"uri": "nowhere:///one"})
        theirs = await failure(seen, "resources/read", {"uri": "test:///item/missing"})
        assert theirs.code == code and theirs.data["uri"] == "test:///item/missing"
        assert (await failure(seen, "resources/read", {"uri": 5})).code == -32602


@pytest.mark.requirement("resources.unlisted")
@every_face
@every_client
async def test_an_unlisted_resource_is_read_from_the_only_server_with_resources(
    bench: Bench, face: str, era: str
) -> None:
    boxes = {"box": {"server": ("--offers", "test"), "without": ()}}
    async with bench.within(boxes, face, era) as seen:
        await seen.open()
        read = await seen.client.request("resources/read", {"uri": "unlisted:x"})
        assert read["contents"][0]["text"] == "unlisted:x of test"


@pytest.mark.requirement("resources.routing", "resources.collisions")
@every_face
@every_client
async def test_a_uri_that_two_servers_have_is_read_from_neither_and_that_is_reported_once(
    bench: Bench, face: str, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = {"box": {"first": ("--offers", "test"), "second": ("--offers", "test"), "third": ("--offers", "other")}}
    with caplog.at_level(logging.WARNING, "mcp_workbench"):
        async with bench.within(boxes, face, era) as seen:
            await seen.open()
            for _ in range(2):
                uris = await seen.names("resources/list")
                assert len(set(uris)) == len(uris) == 8
            for uri in ("other:///one", "other:///item/1"):
                read = await seen.client.request("resources/read", {"uri": uri})
                assert read["contents"][0]["text"] == f"{uri} of other"
            for uri in ("test:///one", "test:///item/1"):
                error = await failure(seen, "resources/read", {"uri": uri})
                assert (error.code, error.data) == (-32602, {"uri": uri, "servers": ["box/first", "box/second"]})
                assert f"`{uri}`" in error.message and "`box/first` and `box/second`" in error.message
            ref = {"ref": {"type": "ref/resource", "uri": "test:///item/{id}"}, "argument": {"name": "id", "value": ""}}
            assert "`box/first` and `box/second`" in (await failure(seen, "completion/complete", ref)).message
            for server in ("first", "second"):
                await seen.call("change_offers", {"kind": "resources", "name": "late"}, server=server)
            # One more that both have, which is the same news.
            while "test:///late" not in await seen.names("resources/list"):
                await asyncio.sleep(0.01)
    told = [record.getMessage() for record in caplog.records if "`test:///" in record.getMessage()]
    assert len(told) == 1, "one line, however many addresses there are"
    assert "`box/first` and `box/second` both list" in told[0] and "`test:///one` and 3 more" in told[0]


@pytest.mark.requirement("resources.collisions")
@every_client
async def test_the_toolbox_that_a_client_opened_decides_which_of_two_is_meant(bench: Bench, era: str) -> None:
    """The same server in two toolboxes: what is remembered of the other one does not stand in the way."""
    boxes = {"one": {"server": ("--offers", "test")}, "two": {"server": ("--offers", "test")}}
    async with bench.within(boxes, "proxy", era) as seen:
        await seen.open("one")
        await seen.open("two")
    async with bench.within(boxes, "proxy", era) as seen:
        error = await failure(seen, "resources/read", {"uri": "test:///one"})
        assert "`one/server` and `two/server`" in error.message and "open the toolbox" in error.message
        await seen.open("two")
        await seen.client.request("resources/read", {"uri": "test:///one"})
        assert set(seen.gateway.started) == {"two/server"}
        await seen.open("one")
        ambiguous = (await failure(seen, "resources/read", {"uri": "test:///one"})).message
        assert "read workbench://resources/one/server/test:///one" in ambiguous


@pytest.mark.requirement("resources.links")
@every_face
@every_client
@every_server
async def test_a_link_in_a_result_is_read_from_the_server_whose_result_it_was(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    boxes = {"box": {**offering(server_era)["box"], "other": ("--offers", "other")}}
    async with bench.within(boxes, face, era) as seen:
        await seen.open()
        code = -32602 if era == "modern" else -32002
        for server, scheme in (("server", "test"), ("other", "other")):
            uri = f"unlisted:{server}"
            assert (await failure(seen, "resources/read", {"uri": uri})).code == code
            await seen.call("link", {"uris": [uri, "unlisted:both"]}, server=server)
            read = await seen.client.request("resources/read", {"uri": uri})
            assert read["contents"][0]["text"] == f"{uri} of {scheme}"
        rivals = (await failure(seen, "resources/read", {"uri": "unlisted:both"})).data["servers"]
        assert rivals == ["box/server", "box/other"], "both have named it"
        async with MemoryClient.of(seen.gateway, "somebody else") as stranger:
            await introduce(stranger, era)
            theirs = Seen(stranger, face, era)
            await theirs.open()
            assert (await failure(theirs, "resources/read", {"uri": "unlisted:server"})).code == code


@pytest.mark.requirement("resources.links", "resources.unsubscribe")
async def test_a_subscription_is_ended_where_it_was_made(bench: Bench) -> None:
    boxes = {"box": {"server": ("--offers", "test"), "other": ("--offers", "other")}}
    async with bench.within(boxes, "flat") as seen:
        await seen.open()
        await seen.call("link", {"uris": ["unlisted:x"]})
        await seen.client.request("resources/subscribe", {"uri": "unlisted:x"})
        await seen.call("link", {"uris": ["unlisted:x"]}, server="other")
        await seen.client.request("resources/unsubscribe", {"uri": "unlisted:x"})
        assert not seen.gateway.only_connection("box/server").subscriptions.is_needed


@pytest.mark.requirement("completions")
@every_face
@every_client
@every_server
async def test_completions_are_asked_of_the_server_that_has_the_prompt_or_template(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    boxes = {"box": {"other": ("--offers", "other"), **offering(server_era)["box"]}}
    async with bench.within(boxes, face, era) as seen:
        await seen.open()
        argument = {"argument": {"name": "who", "value": "ap"}, "context": {"arguments": {"tone": "x"}}}
        for ref, own in (
            ({"type": "ref/prompt", "name": seen.name("greet"), "title": "T"}, {"name": "greet"}),
            ({"type": "ref/resource", "uri": "test:///item/{id}"}, {}),
        ):
            through = await seen.client.request("completion/complete", {"ref": ref, **argument})
            direct = await directly(server_era, "completion/complete", {"ref": {**ref, **own}, **argument})
            assert without_stamp(through) == without_stamp(direct)
            assert through["completion"]["values"] == ["apple", "apricot"]
        for wrong in ({"type": "ref/prompt", "name": "nobody"}, {"type": "ref/other"}, {}, 5):
            assert (await failure(seen, "completion/complete", {"ref": wrong, **argument})).code == -32602


@pytest.mark.requirement("pagination.downstream", "pagination.upstream")
@every_face
@every_client
@every_server
async def test_pages_of_a_server_are_followed_and_shown_as_one(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    async with bench.within(offering(server_era), face, era) as seen:
        await seen.open()
        whole = {method: await seen.names(method) for method in ("tools/list", *LISTS)}
    async with bench.within(offering(server_era, "--page-size", 2), face, era, options={"use_cache": False}) as seen:
        await seen.open()
        for method, names in whole.items():
            assert await seen.names(method) == names
            answer = await seen.client.request(method)
            assert "nextCursor" not in answer
            assert (await failure(seen, method, {"cursor": "7"})).code == -32602


@pytest.mark.requirement("prompts.input")
@every_face
@every_client
@every_server
async def test_a_prompt_may_ask_its_client_first(bench: Bench, face: str, era: str, server_era: str) -> None:
    answer = {"action": "accept", "content": {"mood": "good"}}
    async with bench.within(offering(server_era), face, era, capabilities=EVERY_ABILITY) as seen:
        await seen.open()
        seen.client.handlers["elicitation/create"] = lambda params: answer
        result = await seen.get_prompt("ask_first", {"who": "Ann"})
        if era == "modern":
            (key,) = result["inputRequests"]
            assert result["inputRequests"][key]["params"]["message"] == "[box/server] Mood?"
            more = {"inputResponses": {key: answer}, "requestState": result["requestState"]}
            result = await seen.get_prompt("ask_first", {"who": "Ann"}, **more)
        assert "'mood': 'good'" in result["messages"][0]["content"]["text"]


@pytest.mark.requirement("prompts.scope")
@pytest.mark.parametrize("era", ERAS)
async def test_the_proxy_face_shows_prompts_of_toolboxes_that_are_opened_or_remembered(bench: Bench, era: str) -> None:
    boxes = {"one": {"server": ("--offers", "one")}, "two": {"server": ("--offers", "two")}}
    async with bench.within(boxes, "proxy", era) as seen:
        assert await seen.names("prompts/list") == []
        await seen.open("one")
        assert set(await seen.names("prompts/list")) == {"one/server/greet", "one/server/ask_first"}
        assert [uri for uri in await seen.names("resources/list") if uri.startswith("two")] == []
    async with bench.within(boxes, "proxy", era) as seen:
        assert set(await seen.names("prompts/list")) == {"one/server/greet", "one/server/ask_first"}
        read = await seen.client.request("resources/read", {"uri": "one:///one"})
        assert read["contents"][0]["text"] == "one:///one of one"


@pytest.mark.requirement("prompts.scope")
@pytest.mark.parametrize("era", ERAS)
async def test_the_dynamic_face_shows_prompts_and_resources_of_opened_toolboxes_only(bench: Bench, era: str) -> None:
    boxes = {"one": {"server": ("--offers", "one")}, "two": {"server": ("--offers", "two")}}
    for _ in range(2):
        async with bench.within(boxes, "dynamic", era) as seen:
            assert await seen.names("prompts/list") == []
            assert (await failure(seen, "prompts/get", {"name": "one__server_greet"})).code == -32602
            await seen.open("one")
            assert set(await seen.names("prompts/list")) == {"one__server_greet", "one__server_ask_first"}
            assert {uri.partition(":")[0] for uri in await seen.names("resources/list")} == {"one", "ui"}
