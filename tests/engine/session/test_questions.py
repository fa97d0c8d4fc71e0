"""Questions of several servers to one client: each ends once, and an answer or a cancellation is about one of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.jsonrpc.pending import AwaitedExchange
from mcp_workbench.engine.session.questions import TOO_LATE, Question, Questions
from mcp_workbench.errors import DownstreamError
from tests.support.virtual_time import VirtualLoop

PARAMS = Raw(b'{"message":"a","_meta":{"progressToken":"own"}}')
CALL = b"1"


class _Server:
    """The connection to a server that asks, as far as questions know it."""

    def __init__(self) -> None:
        self.answers: list[tuple[bytes, Any]] = []
        self.told: list[tuple[str, Any]] = []

    def answer(self, id: bytes, payload: bytes) -> None:
        self.answers.append((id, json.loads(b"{" + payload + b"}")))

    def notify(self, method: str, params: bytes) -> None:
        self.told.append((method, json.loads(params)))


class _Client:
    """What is sent to the client, and its questions."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, Any], bytes | None]] = []
        self.questions = Questions(lambda message, about: self.received.append((json.loads(message), about)))

    def asked_by(self, *servers: _Server, id: bytes = b"7") -> list[int]:
        for server in servers:
            asking: Any = server
            self.questions.relay(asking, id, "elicitation/create", PARAMS, CALL, lambda method, params: params)
        return [message["id"] for message, _ in self.received[-len(servers) :]]

    def cancelled(self) -> list[tuple[int, bytes | None]]:
        return [
            (message["params"]["requestId"], about)
            for message, about in self.received
            if message["method"] == "notifications/cancelled"
        ]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(0)
    yield loop
    loop.close()


def test_each_answer_goes_to_the_server_that_asked(loop: VirtualLoop) -> None:
    async def run() -> None:
        client, one, other = _Client(), _Server(), _Server()
        ids = client.asked_by(one, other)
        assert [message["params"]["_meta"]["progressToken"] for message, _ in client.received] == ids
        for id, result in zip(reversed(ids), (b'"b"', b'"a"'), strict=True):
            question = client.questions.take(b"%d" % id)
            assert question is not None and client.questions.take(b"%d" % id) is None
            question.on_result(Raw(result))
        assert (one.answers, other.answers) == ([(b"7", {"result": "a"})], [(b"7", {"result": "b"})])
        await asyncio.sleep(2 * client.questions.seconds)
        assert len(one.answers) == len(other.answers) == 1 and client.cancelled() == []

    loop.run_until_complete(run())


def test_a_server_cancels_its_own_question_alone_which_then_gets_no_answer(loop: VirtualLoop) -> None:
    async def run() -> None:
        client, one, other, own = _Client(), _Server(), _Server(), AwaitedExchange()
        client.questions.ask(own, "elicitation/create", PARAMS, None)
        ids = [*client.asked_by(one, other), *client.asked_by(other, id=b"8")]
        asking: Any = other
        client.questions.cancelled_by_server(asking, b"9", Raw(b"{}"), CALL)
        assert client.cancelled() == [], "there is no such question"
        client.questions.cancelled_by_server(asking, b"8", Raw(b'{"reason":"r"}'), CALL)
        assert client.cancelled() == [(ids[2], CALL)]
        client.questions.cancelled_by_server(asking, b"7", Raw(b"{}"), None)
        assert client.cancelled()[1:] == [(ids[1], None)] and len(client.questions) == 2
        await asyncio.sleep(2 * client.questions.seconds)
        assert other.answers == [], "their time has stopped, too"
        assert [(id, answer["error"]["message"]) for id, answer in one.answers] == [(b"7", TOO_LATE)]
        with pytest.raises(DownstreamError, match=TOO_LATE):
            await own.future

    loop.run_until_complete(run())


def test_a_question_whose_time_is_over_is_cancelled_at_the_client_and_answered_once(loop: VirtualLoop) -> None:
    async def run() -> None:
        client, one, other = _Client(), _Server(), _Server()
        ids = client.asked_by(one, other)
        await asyncio.sleep(client.questions.seconds / 2)
        assert (one.answers, client.cancelled()) == ([], [])
        await asyncio.sleep(client.questions.seconds)
        assert sorted(client.cancelled()) == [(id, None) for id in ids] and len(client.questions) == 0
        assert [len(one.answers), len(other.answers)] == [1, 1]

    loop.run_until_complete(run())


def test_progress_of_a_question_reaches_its_server_with_its_own_token(loop: VirtualLoop) -> None:
    async def run() -> None:
        client, one, other = _Client(), _Server(), _Server()
        ids = client.asked_by(one, other)
        for token in (ids[1], max(ids) + 1, '"text"', "null"):
            client.questions.on_progress(Raw(f'{{"progressToken":{token},"progress":1}}'.encode()))
        assert one.told == []
        assert other.told == [("notifications/progress", {"progressToken": "own", "progress": 1})]
        client.questions.end(DownstreamError("gone"))

    loop.run_until_complete(run())


def test_a_question_of_our_own_keeps_the_token_it_has_and_ends_with_the_client(loop: VirtualLoop) -> None:
    async def run() -> None:
        client, server = _Client(), _Server()
        own = AwaitedExchange()
        client.questions.ask(own, "elicitation/create", PARAMS, CALL)
        assert client.received[0][0]["params"]["_meta"]["progressToken"] == "own"
        client.asked_by(server)
        client.questions.end(DownstreamError("the client has disconnected"))
        with pytest.raises(DownstreamError, match="has disconnected"):
            await own.future
        assert server.answers[0][1]["error"]["message"] == "the client has disconnected"
        await asyncio.sleep(2 * client.questions.seconds)
        assert len(server.answers) == 1 and len(client.questions) == 0

    loop.run_until_complete(run())


def test_a_question_is_one_whatever_else_is_asked(loop: VirtualLoop) -> None:
    async def run() -> None:
        client, server = _Client(), _Server()
        asking: Any = server
        question = Question(asking, b"7")
        client.questions.ask(question, "roots/list", None, None)
        client.asked_by(server, id=b"8")
        client.questions.forget(question)
        client.questions.forget(question)
        assert client.cancelled() == [(question.wire_id, None)] and len(client.questions) == 1
        client.questions.end(DownstreamError("gone"))
        assert [id for id, _ in server.answers] == [b"8"]

    loop.run_until_complete(run())
