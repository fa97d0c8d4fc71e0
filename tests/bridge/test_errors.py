"""Errors in the words of the client's era."""

from __future__ import annotations

from functools import partial

import pytest

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.session import parking
from tests.bridge.conversation import URL, Conversation, attributed
from tests.bridge.in_process import ERAS, EVERYTHING, META, Json, in_process_workbench
from tests.bridge.modern_to_legacy import DONE, answered, modern_to_legacy
from tests.support.refusals import refused

PAGES: Json = {
    "elicitations": [URL, {**URL, "elicitationId": "e-2", "url": "https://example.test/pay"}],
    "x-unknown": 1,
}
SHOWN_PAGES: Json = {**PAGES, "elicitations": [attributed(page) for page in PAGES["elicitations"]]}
NOT_FOUND = {"legacy": -32002, "modern": -32602}


@pytest.mark.bridge("resource-not-found")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_resource_that_does_not_exist_is_said_in_the_words_of_the_client(
    client_era: str, server_era: str
) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call("resource")
        data = {"uri": "test:///one", "x-unknown": [1]}
        server.fail(server.call, NOT_FOUND[server_era], "Resource not found", data)
        assert request.error == {"code": NOT_FOUND[client_era], "message": "Resource not found", "data": data}


@pytest.mark.bridge("resource-not-found")
@pytest.mark.parametrize("client_era", ERAS)
async def test_a_resource_that_no_server_has_is_said_in_the_words_of_the_client(client_era: str) -> None:
    async with in_process_workbench(
        "legacy", servers={"server": "legacy", "other": "modern"}, use_cache=True
    ) as workbench:
        client = workbench.client(client_era)
        await workbench.connect(client)
        await workbench.connect(client, "other")
        request = client.send_request("resources/read", {"uri": "nobody://has-this"})
        assert request.error["code"] == NOT_FOUND[client_era]
        assert request.error["data"] == {"uri": "nobody://has-this"}


@pytest.mark.bridge("resource-not-found")
@pytest.mark.parametrize("data", [None, {"field": "uri"}, {"errors": [{"uri": "nested"}]}, ["uri"], "uri"])
async def test_parameters_that_are_wrong_are_not_a_resource_that_is_missing(data: object) -> None:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call("resource")
        server.fail(server.call, -32602, "bad", data)
        assert request.error["code"] == -32602


@pytest.mark.bridge("resource-not-found")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("code", [-32002, -32602])
async def test_resource_not_found_codes_from_tools_and_prompts_pass_unchanged(client_era: str, code: int) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        for route in ("tool", "prompt"):
            request = client.call(route)
            server.fail(server.call, code, "x", {"uri": "y"})
            assert request.error == {"code": code, "message": "x", "data": {"uri": "y"}}


@pytest.mark.bridge("reserved-errors")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("face", ["flat", "proxy"])
@pytest.mark.parametrize("code", [-32020, -32021, -32022])
async def test_errors_that_clients_act_upon_reach_them_as_errors(client_era: str, face: FaceName, code: int) -> None:
    """Also through `use_tool`, where other errors become results for the agent to read."""
    async with in_process_workbench("modern", face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call()
        data = {"requiredCapabilities": {"sampling": {}}, "supported": [], "requested": "x"}
        server.fail(server.call, code, "said by the server", data)
        assert request.error == {"code": code, "message": "said by the server", "data": data}


# A page to be visited first


@pytest.mark.bridge("page-required")
@pytest.mark.parametrize("face", ["flat", "proxy"])
async def test_a_page_that_must_be_visited_first_becomes_a_question_to_a_modern_client(face: FaceName) -> None:
    async with modern_to_legacy(face) as on:
        request = on.client.call()
        on.server.fail(on.server.call, -32042, "Sign in first", PAGES)
        asked = request.result["inputRequests"]
        assert list(asked.values()) == [
            {"method": "elicitation/create", "params": attributed(page)} for page in PAGES["elicitations"]
        ]
        assert request.result["_meta"][META + "serverInfo"]["name"] == "fake-server"
        assert on.workbench.is_clean(), "nothing is kept for it: the call is over, and the next one is another"
        retry = on.client.retry(request, answered(request, {"action": "accept"}))
        sent = on.server.call["params"]
        assert "requestState" not in sent and "inputResponses" not in sent
        on.server.reply(on.server.call, DONE)
        assert retry.result["content"] == DONE["content"]


@pytest.mark.bridge("page-required")
@pytest.mark.parametrize("route", ["tool", "prompt", "resource"])
async def test_it_may_be_required_again(route: str) -> None:
    async with modern_to_legacy() as on:
        request = on.client.call(route)
        for _ in range(3):
            on.server.fail(on.server.call, -32042, "Sign in first", PAGES)
            request = on.client.retry(request, answered(request, {"action": "accept"}), route)
        assert len(on.server.requests(on.server.call["method"])) == 4


@pytest.mark.bridge("page-required")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_declining_to_visit_the_page_ends_the_call(action: str) -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        on.server.fail(on.server.call, -32042, "Sign in first", PAGES)
        retry = on.client.retry(request, {"question-1": {"action": "accept"}, "question-2": {"action": action}})
        assert "declined" in retry.result["content"][0]["text"]
        assert len(on.server.requests("tools/call")) == 1, "the server is not called once more"
        assert on.workbench.is_clean()


@pytest.mark.bridge("page-required", "request-state")
async def test_its_state_belongs_to_the_same_request_and_principal() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        on.server.fail(on.server.call, -32042, "Sign in first", PAGES)
        stranger = on.workbench.client("modern", principal="somebody else")
        for retry in (
            lambda: on.client.retry(request, {}, arguments={"a": "2"}),
            lambda: on.client.retry(request, {}, "prompt"),
            lambda: stranger.retry(request, {}),
            lambda: on.client.retry(request, []),
        ):
            await refused(on.workbench, retry, -32602)
        assert len(on.server.received) == 1


@pytest.mark.bridge("page-required", "request-state")
async def test_its_state_opens_once() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        on.server.fail(on.server.call, -32042, "Sign in first", PAGES)
        on.client.retry(request, answered(request, {"action": "accept"}))
        for _ in range(2):
            again = partial(on.client.retry, request, answered(request, {"action": "accept"}))
            await refused(on.workbench, again, -32602, "already been used")
        assert len(on.server.requests("tools/call")) == 2


@pytest.mark.bridge("page-required", "request-state")
async def test_of_many_such_states_the_oldest_do_not_open_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MAX_UNUSED_STATES", 2)
    async with modern_to_legacy() as on:
        requests = []
        for _ in range(3):
            requests.append(on.client.call())
            on.server.fail(on.server.call, -32042, "Sign in first", PAGES)
        retries = [on.client.retry(each, answered(each, {"action": "accept"})) for each in requests]
        assert retries[0].error["code"] == -32602
        assert len(on.server.open_calls()) == 2


@pytest.mark.bridge("page-required")
async def test_it_may_come_at_the_end_of_a_parked_call() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        on.server.fail(on.server.call, -32042, "Sign in first", PAGES)
        retry = on.client.retry(request, answered(request))
        assert retry.result["resultType"] == "input_required"
        on.client.retry(retry, answered(retry, {"action": "accept"}))
        assert len(on.server.open_calls()) == 1


@pytest.mark.bridge("page-required")
@pytest.mark.parametrize("face", ["flat", "proxy"])
@pytest.mark.parametrize("declared", [{}, {"elicitation": {}}, {"elicitation": {"form": {}}}])
async def test_a_modern_client_that_cannot_visit_pages_is_told_which_capability_it_lacks(
    face: FaceName, declared: Json
) -> None:
    """Its era forbids the code; the pages are in `data` all the same."""
    async with in_process_workbench("legacy", face=face) as workbench:
        client = workbench.client("modern", declared)
        server = await workbench.connect(client)
        request = client.call()
        server.fail(server.call, -32042, "Sign in first", PAGES)
        data = {**SHOWN_PAGES, "requiredCapabilities": {"elicitation": {"url": {}}}}
        assert request.error == {"code": -32021, "message": "Sign in first", "data": data}
        assert workbench.is_clean()


@pytest.mark.bridge("page-required")
@pytest.mark.parametrize("data", [None, {}, {"elicitations": []}, {"elicitations": "x"}, {"elicitations": [5]}, 5])
async def test_where_it_does_not_say_which_page_it_is_an_error(data: object) -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        on.server.fail(on.server.call, -32042, "Sign in first", data)
        assert request.error["code"] == -32021


@pytest.mark.bridge("page-required")
@pytest.mark.parametrize("declared", [{}, {"elicitation": {}}, EVERYTHING])
@pytest.mark.parametrize("face", ["flat", "proxy"])
async def test_question_within_the_legacy_era_passes_with_its_origin(declared: Json, face: FaceName) -> None:
    async with in_process_workbench("legacy", face=face) as workbench:
        client = workbench.client("legacy", declared)
        server = await workbench.connect(client)
        request = client.call()
        server.fail(server.call, -32042, "Sign in first", PAGES)
        assert request.error == {"code": -32042, "message": "Sign in first", "data": SHOWN_PAGES}


@pytest.mark.bridge("page-required", "rounds")
async def test_a_modern_server_asks_a_legacy_client_to_visit_a_page_directly() -> None:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        talk = Conversation(client, server)
        (asked,) = await talk.ask("url")
        assert asked["params"]["mode"] == "url"
        talk.finish()


@pytest.mark.bridge("call")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_other_errors_pass_with_their_code_and_data(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        for code in (-32000, -32001, -32600, -32601, -32603, 1, 12345):
            request = client.call()
            server.fail(server.call, code, "ü", {"kept": [None]})
            assert request.error == {"code": code, "message": "ü", "data": {"kept": [None]}}
