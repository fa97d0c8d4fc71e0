"""Every client reaches every server: the same conversations in all four combinations of eras, on every route."""

from __future__ import annotations

import pytest

from mcp_workbench.config.model import FaceName
from tests.bridge.conversation import KINDS, METHODS, Conversation
from tests.bridge.stage import ERAS, META, staged

# A call of a tool, in the face that shows it and through `use_tool`; a prompt; a resource.
ROUTES: list[tuple[FaceName, str]] = [("flat", "tool"), ("proxy", "tool"), ("flat", "prompt"), ("flat", "resource")]

every_combination = pytest.mark.parametrize(
    ("client_era", "server_era"), [(client, server) for client in ERAS for server in ERAS]
)
every_route = pytest.mark.parametrize(("face", "route"), ROUTES, ids=[f"{face}-{route}" for face, route in ROUTES])


@every_combination
@every_route
async def test_a_plain_call_arrives_as_it_was_sent_and_is_answered_as_the_server_said(
    client_era: str, server_era: str, face: FaceName, route: str
) -> None:
    async with staged(server_era, face=face) as stage:
        client = stage.client(client_era)
        server = await stage.connect(client)
        talk = Conversation(client, server, route, member={"kept": [1, None]})
        assert server.call["method"] == METHODS[route]
        assert server.call["params"]["member"] == {"kept": [1, None]}
        result = talk.finish()
        assert client_era == "legacy" or result["resultType"] == "complete"
        assert stage.is_clean()


@every_combination
@every_route
@pytest.mark.parametrize("kind", KINDS)
async def test_a_question_reaches_the_client_and_its_answer_the_server(
    client_era: str, server_era: str, face: FaceName, route: str, kind: str
) -> None:
    async with staged(server_era, face=face) as stage:
        client = stage.client(client_era)
        server = await stage.connect(client)
        talk = Conversation(client, server, route)
        (asked,) = talk.ask(kind)
        assert asked["method"] == KINDS[kind][0]
        talk.finish()
        assert stage.is_clean()


@every_combination
@every_route
async def test_questions_may_follow_each_other_and_come_at_once(
    client_era: str, server_era: str, face: FaceName, route: str
) -> None:
    async with staged(server_era, face=face) as stage:
        client = stage.client(client_era)
        server = await stage.connect(client)
        talk = Conversation(client, server, route)
        assert len(talk.ask("form")) == 1
        assert len(talk.ask("sampling", "roots", "url")) == 3
        assert len(talk.ask("roots")) == 1
        assert len(talk.ask("declined form", "sampling")) == 2
        talk.finish()
        assert stage.is_clean()
