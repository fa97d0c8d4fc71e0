"""A stream ends with the token that opened it; calls under way finish, and the session goes on with another token."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.server.authentication import (
    UNAVAILABLE,
    Authentication,
    AuthenticationChallenge,
)
from mcp_workbench.engine.transport.http.server.endpoint import MAX_UNANSWERED_CHECKS, OpenStream
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.shared_timer import SharedTimer
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import initialize, modern, modern_headers

EXPIRED = AuthenticationChallenge("this token has expired", b"Bearer")
DOWN = AuthenticationChallenge("the identity provider cannot be reached", b"", UNAVAILABLE)
# Asked about again some milliseconds after another.
OFTEN = Limits(comment_seconds=0.03)


class Tokens:
    """Accepts `Bearer good` for as long as it is told to, and `Bearer other` always (`Authenticator`)."""

    depends_on_peer = False

    def __init__(self) -> None:
        self.answer: Authentication | asyncio.Future[Authentication] = "alice"
        self.asked = 0

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        if head.headers.get("authorization") == "Bearer other":
            return "alice"
        self.asked += 1
        return self.answer


@pytest.mark.requirement("team.streams")
async def test_a_legacy_stream_ends_with_its_token_and_opens_again_with_another() -> None:
    tokens = Tokens()
    async with echoing(OFTEN, authenticator=tokens) as rig:
        opened = await rig.client.request(body=initialize(), authorization="Bearer good")
        session = opened.headers["mcp-session-id"]
        headers: dict[str, Any] = {"accept": "text/event-stream", "mcp_session_id": session}
        stream = await rig.client.request("GET", authorization="Bearer good", **headers)
        assert stream.is_stream
        rig.last.notify("first")
        assert (await stream.message())["method"] == "first"
        tokens.answer = EXPIRED
        await stream.end()
        assert rig.server.session_count == 1 and not rig.last.ended, "the session goes on"
        rig.last.notify("second")
        again = await rig.client.request("GET", authorization="Bearer other", **headers)
        assert (await again.message())["method"] == "second", "nothing was lost"


@pytest.mark.requirement("team.streams")
async def test_a_modern_stream_ends_with_its_token_and_a_call_does_not() -> None:
    tokens = Tokens()
    async with echoing(OFTEN, authenticator=tokens) as rig:
        connection = await rig.client.connect()
        call = asyncio.ensure_future(
            connection.request(body=modern("later"), authorization="Bearer good", **modern_headers("later"))
        )
        await rig.under_way()
        (calling,) = rig.sessions
        listening = asyncio.ensure_future(
            rig.client.request(
                body=modern("subscriptions/listen"),
                authorization="Bearer good",
                **modern_headers("subscriptions/listen"),
            )
        )
        await rig.under_way(2)
        rig.last.notify("notifications/subscriptions/acknowledged")
        stream = await listening
        await stream.message()
        tokens.answer = EXPIRED
        await stream.end()
        assert rig.last.ended and not calling.ended, "whoever called before gets the answer"
        calling.answer(next(iter(calling.calls)), {})
        assert (await call).status == 200


class Writer:
    def __init__(self) -> None:
        self.is_over = False
        self.left = 0
        self.gone = self._gone

    def _gone(self) -> None:
        self.left += 1

    def finish(self) -> None:
        self.is_over = True


class Watched:
    """One stream, asked about as often as a test wants."""

    def __init__(self) -> None:
        self.tokens = Tokens()
        self.writer = Writer()
        self.timer: SharedTimer[OpenStream] = SharedTimer(3600.0)
        head = RequestHead("GET", "/mcp", "192.0.2.1")
        head.principal = "alice"
        self.stream = OpenStream(head, self.writer, self.tokens.authenticate, self.timer)  # type: ignore[arg-type]
        self.timer.add(self.stream)

    def check(self, answer: Authentication | asyncio.Future[Authentication]) -> bool:
        """Whether it goes on."""
        self.tokens.answer = answer
        self.stream.on_timer(0.0)
        return not self.writer.is_over


async def test_a_token_that_becomes_somebody_elses_ends_it() -> None:
    watched = Watched()
    assert watched.check("alice") and not watched.check("bob")
    assert watched.writer.left == 1 and len(watched.timer) == 0
    watched.timer.stop()


async def test_a_provider_that_is_away_for_a_moment_ends_nothing() -> None:
    watched = Watched()
    for _ in range(3):
        assert all(watched.check(DOWN) for _ in range(MAX_UNANSWERED_CHECKS)) and watched.check("alice")
    assert all(watched.check(DOWN) for _ in range(MAX_UNANSWERED_CHECKS)) and not watched.check(DOWN)
    watched.timer.stop()


async def test_identity_lookups_of_one_user_are_coalesced() -> None:
    watched = Watched()
    later: asyncio.Future[Authentication] = asyncio.get_running_loop().create_future()
    assert watched.check(later) and watched.check(later) and watched.tokens.asked == 1
    later.set_result("alice")
    assert watched.check(later) and watched.tokens.asked == 1
    refused: asyncio.Future[Authentication] = asyncio.get_running_loop().create_future()
    assert watched.check(refused)
    refused.set_result(EXPIRED)
    assert not watched.check(refused) and watched.tokens.asked == 2
    watched.timer.stop()


async def test_a_stream_that_is_over_is_not_asked_about() -> None:
    watched = Watched()
    watched.writer.is_over = True
    watched.stream.on_timer(0.0)
    assert watched.tokens.asked == 0 and len(watched.timer) == 0
    watched.timer.stop()
