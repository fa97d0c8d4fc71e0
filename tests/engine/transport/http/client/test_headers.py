"""Headers from a source that may have to wait for them, and that hears when a server wants other credentials."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextvars import ContextVar

import pytest

from mcp_workbench.engine.transport.http.client import http_link as link_module
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal, FixedHeaders, HeaderSource
from mcp_workbench.errors import DownstreamError
from tests.engine.transport.http.client.talk import MODERN, STAMP, Talk, talking
from tests.engine.transport.http.listening import Handler, Reply, Request, scripted_http

SCOPE = 'Bearer error="insufficient_scope", scope="files:write"'


class Tokens:
    """A source as signing in will be: token after token, one refresh for all who wait."""

    def __init__(self, *, first: int = 1, last: int = 99) -> None:
        self.refusals: list[CredentialRefusal] = []
        self.refreshes = 0
        self.may_refresh = asyncio.Event()
        self.may_refresh.set()
        self._number, self._last = first, last
        self._headers: Mapping[str, str] | None = None if first == 0 else self._made()
        self._refreshing: asyncio.Task[None] | None = None

    def headers(self) -> Mapping[str, str] | None:
        return self._headers

    async def fetch(self) -> Mapping[str, str]:
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.shield(self._refreshing)
        assert self._headers is not None
        return self._headers

    async def refused(self, refusal: CredentialRefusal) -> bool:
        self.refusals.append(refusal)
        if refusal.sent is self._headers:
            await self.fetch()
        return True

    def expire(self) -> None:
        self._headers = None

    def _made(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._number}"}

    async def _refresh(self) -> None:
        try:
            await self.may_refresh.wait()
            if self._number >= self._last:
                raise DownstreamError("you have to sign in", hint="mcp-workbench auth login files")
            self.refreshes += 1
            self._number += 1
            self._headers = self._made()
        finally:
            self._refreshing = None


def token_of(request: Request) -> int:
    return int(request.headers["authorization"].removeprefix("Bearer "))


async def answer(request: Request, reply: Reply) -> None:
    id = json.loads(request.body).get("id")
    await reply.send(200, json.dumps({"jsonrpc": "2.0", "id": id, "result": {"token": token_of(request)}}).encode())


def wants(least: int, status: int = 401, challenge: str = "Bearer") -> Handler:
    """A server that takes tokens from this one on."""

    async def handler(request: Request, reply: Reply) -> None:
        if token_of(request) >= least:
            await answer(request, reply)
        else:
            await reply.send(status, www_authenticate=challenge)

    return handler


def call(talk: Talk, id: int) -> None:
    params = {"name": "write", "arguments": {}, "_meta": STAMP}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    talk.link.send_call(json.dumps(message).encode(), id, "write", "2026-07-28")


async def test_a_request_waits_for_headers_that_are_not_there_yet() -> None:
    tokens = Tokens(first=0)
    tokens.may_refresh.clear()
    async with scripted_http(answer) as server, talking(server.url, source=tokens) as talk:
        call(talk, 1)
        id = talk.request("tools/list", modern=True)
        await asyncio.sleep(0)
        assert not server.requests
        tokens.may_refresh.set()
        assert (await talk.answer(1))["result"] == (await talk.answer(id))["result"] == {"token": 1}
        assert tokens.refreshes == 1


async def test_a_call_after_the_headers_ran_out_carries_the_new_ones() -> None:
    tokens = Tokens()
    async with scripted_http(answer) as server, talking(server.url, source=tokens) as talk:
        for id in (1, 2, 3):
            call(talk, id)
            assert (await talk.answer(id))["result"] == {"token": id}
            tokens.expire()


async def test_a_call_that_is_cancelled_while_it_waits_for_headers_is_never_sent() -> None:
    tokens = Tokens(first=0)
    tokens.may_refresh.clear()
    async with scripted_http(answer) as server, talking(server.url, source=tokens) as talk:
        call(talk, 1)
        call(talk, 2)
        await asyncio.sleep(0)
        talk.notify("notifications/cancelled", {"requestId": 1})
        tokens.may_refresh.set()
        await talk.answer(2)
        assert [json.loads(request.body)["id"] for request in server.requests] == [2]


async def test_a_source_without_headers_fails_the_request_with_its_own_words() -> None:
    async with scripted_http(answer) as server, talking(server.url, source=Tokens(first=0, last=0)) as talk:
        call(talk, 1)
        error = await talk.failure(1)
        assert (error.message, error.hint) == ("you have to sign in", "mcp-workbench auth login files")
        assert not server.requests and not talk.closed


@pytest.mark.parametrize(("status", "challenge"), [(401, ""), (401, "Bearer scope=x"), (403, SCOPE)])
async def test_a_request_that_was_refused_is_sent_once_more_with_better_headers(status: int, challenge: str) -> None:
    tokens = Tokens()
    async with scripted_http(wants(2, status, challenge)) as server, talking(server.url, source=tokens) as talk:
        assert (await talk.ask("tools/list", modern=True))["result"] == {"token": 2}
        assert tokens.refusals == [CredentialRefusal(status, challenge, {"authorization": "Bearer 1"})]
        assert len(server.requests) == 2


async def test_a_request_is_sent_again_once_for_each_status_and_the_source_hears_of_the_next() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if token_of(request) % 2:
            await reply.send(401)
        else:
            await reply.send(403, www_authenticate=SCOPE)

    tokens = Tokens()
    async with scripted_http(handler) as server, talking(server.url, source=tokens) as talk:
        assert "(401)" in (await talk.failure(talk.request("tools/list", modern=True))).message
        assert [refusal.status for refusal in tokens.refusals] == [401, 403, 401]
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("challenge", "body"),
    [
        ('Bearer error="invalid_token"', b""),
        ("", b'{"error": "invalid_token", "error_description": "The access token expired"}'),
        ("", b'{"error": "expired_token"}'),
    ],
)
async def test_a_403_that_says_that_the_token_is_over_counts_as_401(challenge: str, body: bytes) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if token_of(request) > 1:
            await answer(request, reply)
        else:
            await reply.head(403, {"content-type": "application/json", "content-length": str(len(body)), **extra})
            for piece in (body[:9], body[9:]):
                await reply.raw(piece)

    extra = {"www-authenticate": challenge} if challenge else {}
    tokens = Tokens()
    async with scripted_http(handler) as server, talking(server.url, source=tokens) as talk:
        assert (await talk.ask("tools/list", modern=True))["result"] == {"token": 2}
        assert tokens.refusals == [CredentialRefusal(401, challenge, {"authorization": "Bearer 1"})]
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "access_denied"}',
        b'{"message": "invalid_token"}',
        b'["invalid_token"]',
        b"invalid_token",
    ],
)
async def test_a_403_of_the_servers_own_code_is_not_repeated_and_keeps_its_body(body: bytes) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(403, body)

    tokens = Tokens()
    async with scripted_http(handler) as server, talking(server.url, source=tokens) as talk:
        said = (await talk.failure(talk.request("tools/list", modern=True))).message
        assert "(403)" in said and ("invalid_token" in said or "access_denied" in said)
        assert not tokens.refusals and len(server.requests) == 1


async def test_a_403_with_an_error_of_json_rpc_is_not_repeated() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(403, b'{"jsonrpc": "2.0", "error": {"code": -32000, "message": "invalid_token"}}')

    tokens = Tokens()
    async with scripted_http(handler) as server, talking(server.url, source=tokens) as talk:
        assert (await talk.ask("tools/list", modern=True))["error"]["message"] == "invalid_token"
        assert not tokens.refusals and len(server.requests) == 1


@pytest.mark.parametrize("challenge", ["", 'Bearer error="access_denied"'])
async def test_any_other_403_is_not_repeated(challenge: str) -> None:
    tokens = Tokens()
    async with scripted_http(wants(2, 403, challenge)) as server, talking(server.url, source=tokens) as talk:
        assert "(403)" in (await talk.failure(talk.request("tools/list", modern=True))).message
        assert not tokens.refusals and len(server.requests) == 1


async def test_calls_that_are_refused_together_need_one_refresh() -> None:
    tokens = Tokens()
    gathered = asyncio.Barrier(5)

    async def handler(request: Request, reply: Reply) -> None:
        if token_of(request) == 1:
            await gathered.wait()
            await reply.send(401)
        else:
            await answer(request, reply)

    async with scripted_http(handler) as server, talking(server.url, source=tokens) as talk:
        for id in range(1, 6):
            call(talk, id)
        for id in range(1, 6):
            assert (await talk.answer(id))["result"] == {"token": 2}
        assert (tokens.refreshes, len(server.requests)) == (1, 10)


async def test_a_refusal_names_the_headers_of_its_request_and_not_those_of_today() -> None:
    """A call that comes back late with 401 must not use up the token that another one has refreshed since."""
    tokens = Tokens()
    refreshed = asyncio.Event()

    async def handler(request: Request, reply: Reply) -> None:
        if b'"warm"' in request.body or token_of(request) > 1:
            await answer(request, reply)
        elif b'"late"' in request.body:
            await refreshed.wait()
            await reply.send(401)
        else:
            await reply.send(401)

    async with scripted_http(handler) as server, talking(server.url, source=tokens) as talk:
        # Two connections that are free: the calls after it need no task, and are settled by another way.
        warm = [talk.request("warm", modern=True) for _ in range(2)]
        for id in warm:
            await talk.answer(id)
        late = {"name": "late", "arguments": {}, "_meta": STAMP}
        message = {"jsonrpc": "2.0", "id": 11, "method": "tools/call", "params": late}
        talk.link.send_call(json.dumps(message).encode(), 11, "late", "2026-07-28")
        call(talk, 12)
        assert (await talk.answer(12))["result"] == {"token": 2}
        refreshed.set()
        assert (await talk.answer(11))["result"] == {"token": 2}
        assert tokens.refreshes == 1 and len(tokens.refusals) == 2
        assert server.connections == 2


async def test_a_source_that_raises_when_refused_leaves_its_connection_to_others() -> None:
    tokens = Tokens(last=1)
    async with scripted_http(wants(2)) as server, talking(server.url, source=tokens) as talk:
        for _ in range(3):
            error = await talk.failure(talk.request("tools/list", modern=True))
            assert error.message == "you have to sign in"
        assert server.connections == 1, "a refusal was read to its end, so its connection is free again"


async def test_fixed_headers_are_there_at_once_and_have_nothing_better() -> None:
    source: HeaderSource = FixedHeaders({"Authorization": "Bearer 1", "Content-Length": "7"})
    assert source.headers() is source.headers() and source.headers() == {"authorization": "Bearer 1"}
    assert await source.fetch() is source.headers()
    assert not await source.refused(CredentialRefusal(401, "Bearer", {}))


_who: ContextVar[int] = ContextVar("who", default=0)


class OfRequest:
    """A source whose headers depend on the request that is being handled."""

    def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {_who.get()}"}

    async def fetch(self) -> Mapping[str, str]:
        return self.headers()

    async def refused(self, refusal: CredentialRefusal) -> bool:
        return True


async def test_a_delayed_message_is_sent_with_the_headers_of_its_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much is under way, so that the others are sent when one ends, whoever's that is."""
    monkeypatch.setattr(link_module, "MAX_CONCURRENT_POSTS", 1)
    async with scripted_http(answer) as server, talking(server.url, source=OfRequest()) as talk:
        ids = {}
        for who in range(1, 4):
            _who.set(who)
            ids[who] = talk.request("tools/list", modern=True)
        found = {who: (await talk.answer(id))["result"]["token"] for who, id in ids.items()}
    assert found == {1: 1, 2: 2, 3: 3}


async def test_a_retry_is_sent_with_the_headers_of_its_own_request() -> None:
    """The connection was opened by another request, and the answer that brings about the second try comes on it."""
    refused: set[int] = set()

    async def refuse_once(request: Request, reply: Reply) -> None:
        who = token_of(request)
        if who > 1 and who not in refused:
            refused.add(who)
            await reply.send(401, b"", www_authenticate="Bearer")
        else:
            await answer(request, reply)

    async with scripted_http(refuse_once) as server, talking(server.url, source=OfRequest()) as talk:
        _who.set(1)
        await talk.ask("tools/list", modern=True)
        _who.set(2)
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t", "_meta": STAMP}}
        talk.link.send_call(json.dumps(message).encode(), 7, "t", MODERN)
        _who.set(3)
        assert (await talk.answer(7))["result"]["token"] == 2
