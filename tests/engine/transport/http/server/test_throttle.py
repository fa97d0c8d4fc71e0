"""Failed authentication: answered late after a few, logged once in a while, and never in the way of a right token."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from mcp_workbench.engine.transport.http.server.authentication import (
    UNAVAILABLE,
    Authentication,
    AuthenticationChallenge,
    BearerToken,
)
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.throttle import (
    FAILED_AUTHENTICATION_DELAY,
    FAILURE_WINDOW,
    FREE_FAILURES,
    MAX_DELAYED_RESPONSES,
    MAX_THROTTLED_PEERS,
    AuthenticationThrottle,
)
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import modern, modern_headers

WRONG = "this token is not valid"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_few_failures_are_free_and_the_others_wait() -> None:
    throttle = AuthenticationThrottle(Clock())
    assert [throttle.failed("a", WRONG) for _ in range(FREE_FAILURES + 2)] == (
        [0.0] * FREE_FAILURES + [FAILED_AUTHENTICATION_DELAY] * 2
    )
    assert throttle.failed("b", WRONG) == 0.0, "each peer for itself"


def test_delayed_answers_are_bounded() -> None:
    throttle = AuthenticationThrottle(Clock())
    for _ in range(FREE_FAILURES + MAX_DELAYED_RESPONSES):
        throttle.failed("a", WRONG)
    assert throttle.failed("a", WRONG) is None
    throttle.answered("a")
    assert throttle.failed("a", WRONG) == FAILED_AUTHENTICATION_DELAY
    assert throttle.failed("a", WRONG) is None, "one was answered, so one more fits"
    throttle.answered("b")
    for _ in range(MAX_DELAYED_RESPONSES):
        throttle.answered("a")
    throttle.answered("a")
    assert [throttle.failed("a", WRONG) for _ in range(MAX_DELAYED_RESPONSES + 1)] == [
        *[FAILED_AUTHENTICATION_DELAY] * MAX_DELAYED_RESPONSES,
        None,
    ]


def test_a_peer_is_forgiven_after_a_while() -> None:
    clock = Clock()
    throttle = AuthenticationThrottle(clock)
    for _ in range(FREE_FAILURES + 1):
        throttle.failed("a", WRONG)
    clock.now += FAILURE_WINDOW + 1
    assert throttle.failed("a", WRONG) == 0.0


def test_attempt_that_cannot_be_verified_is_throttled_like_failures() -> None:
    clock = Clock()
    throttle = AuthenticationThrottle(clock)
    for _ in range(FREE_FAILURES):
        throttle.failed("a", WRONG)
    assert [throttle.hold("a") for _ in range(100)] == [0.0] * 100, "it is no failure"
    throttle.failed("a", WRONG)
    assert throttle.is_slowed("a") and throttle.hold("a") == FAILED_AUTHENTICATION_DELAY
    assert not throttle.is_slowed("b") and throttle.hold("b") == 0.0
    clock.now += FAILURE_WINDOW + 1
    assert not throttle.is_slowed("a") and throttle.hold("a") == 0.0


def test_peers_are_forgotten_beyond_a_number() -> None:
    throttle = AuthenticationThrottle(Clock())
    for number in range(MAX_THROTTLED_PEERS + 10):
        throttle.failed(str(number), WRONG)
    assert len(throttle._peers) == MAX_THROTTLED_PEERS


def test_peer_is_logged_at_intervals_with_a_count_of_omitted_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    throttle = AuthenticationThrottle(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(5000):
            throttle.failed("10.0.0.9", WRONG)
        clock.now += FAILURE_WINDOW
        throttle.failed("10.0.0.9", WRONG)
    first, second = (record.getMessage() for record in caplog.records)
    assert "10.0.0.9" in first and second.startswith(first) and "4999" in second


@pytest.mark.requirement("http.connections")
async def test_guesses_are_delayed_and_valid_tokens_are_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.throttle.FAILED_AUTHENTICATION_DELAY", 1000.0)
    async with echoing(authenticator=BearerToken("x")) as rig:
        for _ in range(FREE_FAILURES):
            response = await rig.client.request("GET", "/readyz", authorization="Bearer guess")
            assert response.status == 401, "no page tells whether a guess was right"
        guessing = [await rig.client.connect() for _ in range(MAX_DELAYED_RESPONSES)]
        for connection in guessing:
            await connection.send(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\n\r\n")
        beyond = await rig.client.connect()
        await beyond.send(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\n\r\n")
        assert await beyond.closed() == b"", "no answer at all"
        right = await rig.client.request(body=modern("echo"), authorization="Bearer x", **modern_headers("echo"))
        assert right.status == 200
    assert caplog.text.count("was refused: this token is not valid") == 1


async def test_guesses_are_delayed_even_while_they_cannot_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.throttle.FAILED_AUTHENTICATION_DELAY", 1000.0)
    busy = AuthenticationChallenge("too many tokens are being checked", b"", UNAVAILABLE)
    slowed: list[bool] = []

    def has_come(count: int) -> bool:
        return len(slowed) == count

    class Busy(BearerToken):
        def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
            slowed.append(head.is_slowed("127.0.0.1"))
            return busy if head.headers["authorization"] == "Bearer busy" else super().authenticate(head)

    async with echoing(authenticator=Busy("x")) as rig:
        for _ in range(FREE_FAILURES):
            await rig.client.request("GET", "/readyz", authorization="Bearer guess")
        assert (await rig.client.request("GET", "/mcp", authorization="Bearer busy")).status == 503
        guessing = [await rig.client.connect() for _ in range(MAX_DELAYED_RESPONSES)]
        for number, connection in enumerate(guessing):
            token = b"busy" if number else b"guess"
            await connection.send(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n\r\n" % token)
            await wait_until(partial(has_come, FREE_FAILURES + 2 + number))
        beyond = await rig.client.connect()
        await beyond.send(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer busy\r\n\r\n")
        assert await beyond.closed() == b"", "no answer at all"
    assert not slowed[FREE_FAILURES] and slowed[-1]


async def test_repeated_guesses_on_one_connection_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.throttle.FAILED_AUTHENTICATION_DELAY", 0.01)
    async with echoing(authenticator=BearerToken("x")) as rig:
        connection = await rig.client.connect()
        for _ in range(FREE_FAILURES + MAX_DELAYED_RESPONSES + 2):
            await rig.refused(connection.request(body=modern("echo"), **modern_headers("echo")), 401)


async def test_those_without_a_line_of_their_own_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.throttle.FAILED_AUTHENTICATION_DELAY", 0.01)
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.endpoint.FAILURE_WINDOW", 0.05)
    told: list[tuple[str, str]] = []
    async with echoing(authenticator=BearerToken("x"), on_refused=lambda *line: told.append(line)) as rig:
        connection = await rig.client.connect()
        for _ in range(FREE_FAILURES + 7):
            await rig.refused(connection.request(body=modern("echo"), **modern_headers("echo")), 401)
        await wait_until(lambda: counted(told) == 7)
    assert len([reason for _, reason in told if "more attempts" not in reason]) == FREE_FAILURES
    assert {peer for peer, _ in told} == {"127.0.0.1"}


async def test_final_counts_are_reported_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.throttle.FAILED_AUTHENTICATION_DELAY", 0.01)
    told: list[tuple[str, str]] = []
    async with echoing(authenticator=BearerToken("x"), on_refused=lambda *line: told.append(line)) as rig:
        connection = await rig.client.connect()
        for _ in range(FREE_FAILURES + 3):
            await rig.refused(connection.request(body=modern("echo"), **modern_headers("echo")), 401)
        assert counted(told) == 0
    assert counted(told) == 3


def counted(told: list[tuple[str, str]]) -> int:
    return sum(int(reason.partition(" ")[0]) for _, reason in told if "more attempts" in reason)


def test_number_of_counted_keys_is_bounded() -> None:
    throttle = AuthenticationThrottle(Clock())
    begun = [throttle.leave_out(str(number)) for number in range(MAX_THROTTLED_PEERS + 2)]
    assert begun[-3:] == [str(MAX_THROTTLED_PEERS - 1), "", None]
    assert throttle.take_left_out("") == 2 and throttle.take_left_out("") == 0


class Unreachable:
    depends_on_peer = False

    def authenticate(self, head: RequestHead) -> AuthenticationChallenge:
        return AuthenticationChallenge("the provider cannot be reached", b"", UNAVAILABLE)


async def test_unverifiable_attempt_does_not_count_as_failure(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, str]] = []
    async with echoing(authenticator=Unreachable(), on_refused=lambda *line: told.append(line)) as rig:
        connection = await rig.client.connect()
        for _ in range(FREE_FAILURES + MAX_DELAYED_RESPONSES + 2):
            response = await connection.request(body=modern("echo"), **modern_headers("echo"))
            assert response.status == 503 and "retry-after" in response.headers
        assert not rig.server._endpoint._throttle._peers
    assert not told and "was refused" not in caplog.text


async def test_a_failure_is_reported_with_its_address_and_counted_by_its_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.throttle.FAILED_AUTHENTICATION_DELAY", 0.01)
    addresses = iter(["2001:db8::1", "2001:db8::2"])
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.server_connection.peer_of", lambda transport: "2001:db8::/64"
    )
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.server_connection.address_of", lambda transport: next(addresses)
    )
    told: list[tuple[str, str]] = []
    async with echoing(authenticator=BearerToken("x"), on_refused=lambda *line: told.append(line)) as rig:
        for _ in range(2):
            connection = await rig.client.connect()
            for _ in range(FREE_FAILURES // 2 + 1):
                await rig.refused(connection.request(body=modern("echo"), **modern_headers("echo")), 401)
    half = FREE_FAILURES // 2
    assert [peer for peer, _ in told] == (
        ["2001:db8::1"] * (half + 1) + ["2001:db8::2"] * (half - 1) + ["2001:db8::/64"]
    )
    assert counted(told) == 2
