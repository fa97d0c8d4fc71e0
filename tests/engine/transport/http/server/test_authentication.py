"""Authentication that has to be waited for, and that depends on who is at the other end."""

from __future__ import annotations

import asyncio
import json

import pytest

from mcp_workbench.engine.transport.http.server.authentication import (
    Authentication,
    AuthenticationChallenge,
    BearerToken,
)
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import EchoRig, echoing
from tests.engine.transport.http.server.raw_client import initialize, modern, modern_headers, written

REFUSED = AuthenticationChallenge("nobody", b'Bearer realm="x", error="invalid_token"')
LARGE = 300 * 1024


class Asking:
    """Knows nobody until it is told."""

    depends_on_peer = False

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Authentication]] = []
        self.known: dict[str | None, Authentication] = {}

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        token = head.headers.get("authorization")
        if token in self.known:
            return self.known[token]
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    async def wait_asked(self, count: int = 1) -> None:
        await wait_until(lambda: len(self.asked) >= count)


def echo(token: str = "a", **params: object) -> bytes:
    return written("POST", "/mcp", modern("echo", params), authorization=token, **modern_headers("echo"))


def principal_in(body: bytes) -> str:
    found: str = json.loads(body)["result"]["principal"]
    return found


async def test_request_waits_for_authentication() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        await connection.send(echo())
        await asking.wait_asked()
        assert not rig.sessions, "nothing of it is looked at before"
        asking.asked[0].set_result("alice")
        assert principal_in((await connection.response()).body) == "alice"


async def test_unrecognised_caller_gets_the_challenge() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        await connection.send(echo())
        await asking.wait_asked()
        asking.asked[0].set_result(REFUSED)
        response = await connection.response()
        assert response.status == 401 and "invalid_token" in response.headers["www-authenticate"]
        asking.known["a"] = "alice"
        await connection.send(echo())
        assert (await connection.response()).status == 200, "and the connection is as good as before"


async def test_large_body_is_not_read_before_authentication() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        whole = echo(text="x" * 3 * LARGE)
        await connection.send(whole[:1000])
        await asking.wait_asked()
        rest = asyncio.create_task(connection.send(whole[1000:]))
        await asyncio.sleep(0)
        (held,) = rig.server._connections.open
        assert rig.server._connections.bodies.reserved < 2 * LARGE, "what came is what is held"
        assert not held._transport.is_reading()
        asking.asked[0].set_result("alice")
        assert principal_in((await connection.response()).body) == "alice"
        await rest
        assert rig.server._connections.bodies.reserved == 0


async def test_a_large_body_of_a_stranger_is_not_read_at_all() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        await connection.send(echo(text="x" * LARGE)[:2000])
        await asking.wait_asked()
        asking.asked[0].set_result(REFUSED)
        assert (await connection.response()).status == 401
        assert not rig.sessions
        assert rig.server._connections.bodies.reserved == 0


async def test_details_of_a_bad_request_require_authentication() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", b"{}", authorization="a", content_type="text/plain"))
        await asking.wait_asked()
        asking.asked[0].set_result("alice")
        assert (await connection.response()).status == 415


async def test_requests_that_were_sent_ahead_are_answered_in_order() -> None:
    asking = Asking()
    asking.known["b"] = "bob"
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        await connection.send(echo("a") + echo("b") + echo("c"))
        await asking.wait_asked(2)
        asking.asked[1].set_result("carol")
        asking.asked[0].set_result("alice")
        found = [principal_in((await connection.response()).body) for _ in range(3)]
        assert found == ["alice", "bob", "carol"]


async def test_a_client_may_be_told_to_go_on_once_it_is_known() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        body = json.dumps(modern("echo")).encode()
        head = written(
            "POST", "/mcp", body, authorization="a", expect="100-continue", **modern_headers("echo")
        ).removesuffix(body)
        await connection.send(head)
        await asking.wait_asked()
        asking.asked[0].set_result("alice")
        assert b"100 Continue" in await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(body)
        assert principal_in((await connection.response()).body) == "alice"


async def test_a_client_that_leaves_meanwhile_leaves_nothing_behind() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        await connection.send(echo())
        await asking.wait_asked()
        connection.writer.transport.abort()
        (held,) = rig.server._connections.open
        held.abort()
        await wait_until(lambda: not rig.server._connections.open)
        asking.asked[0].set_result("alice")
        await asyncio.sleep(0)
        assert not rig.sessions


async def test_failed_identity_lookup_answers_503_with_retry_after() -> None:
    asking = Asking()
    asking.known["a"] = AuthenticationChallenge("cannot be checked", b"", 503)
    asking.known["b"] = AuthenticationChallenge("lacks", b'Bearer error="insufficient_scope"', 403)
    async with echoing(authenticator=asking) as rig:
        later = await rig.client.request(body=initialize(), authorization="a")
        assert later.status == 503 and int(later.headers["retry-after"]) > 0 and "www-authenticate" not in later.headers
        lacking = await rig.client.request(body=initialize(), authorization="b")
        assert lacking.status == 403 and "insufficient_scope" in lacking.headers["www-authenticate"]


async def test_a_page_for_callers_waits_as_well() -> None:
    asking = Asking()
    async with echoing(authenticator=asking) as rig:
        connection = await rig.client.connect()
        await connection.send(written("GET", "/readyz", authorization="a"))
        await asking.wait_asked()
        asking.asked[0].set_result("alice")
        assert (await connection.response()).status == 200


class ByPort:
    """Whoever comes from one port is one, everybody else is another: what a peer is depends on its connection."""

    def __init__(self, *, depends_on_peer: bool) -> None:
        self.depends_on_peer = depends_on_peer

    def authenticate(self, head: RequestHead) -> Authentication:
        return "unknown" if not head.peer_names else head.peer_names[0]


@pytest.mark.requirement("team.peers")
async def test_a_head_of_one_peer_is_not_known_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are the same; who sent them is not."""
    names = iter(("alice", "bob"))
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.server_connection.names_in_certificate",
        lambda transport: (next(names),),
    )
    async with echoing(authenticator=ByPort(depends_on_peer=True)) as rig:
        first, second = await rig.client.connect(), await rig.client.connect()
        for _ in range(3):
            await first.send(echo())
            assert principal_in((await first.response()).body) == "alice"
            await second.send(echo())
            assert principal_in((await second.response()).body) == "bob"


@pytest.mark.requirement("team.peers")
async def test_an_address_is_known_beside_the_network_that_requests_are_held_against(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.server_connection.peer_of", lambda transport: "2001:db8::/64"
    )
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.server_connection.address_of", lambda transport: "2001:db8::5"
    )

    class ByAddress:
        depends_on_peer = True

        def authenticate(self, head: RequestHead) -> Authentication:
            return f"{head.address} in {head.peer}"

    async with echoing(authenticator=ByAddress()) as rig:
        connection = await rig.client.connect()
        for _ in range(2):
            await connection.send(echo())
            assert principal_in((await connection.response()).body) == "2001:db8::5 in 2001:db8::/64"


async def test_a_head_from_another_address_is_taken_apart_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a head has the address in it that it came from, which the audit writes down."""
    addresses = iter(("2001:db8::1", "2001:db8::2"))
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.server_connection.peer_of", lambda transport: "2001:db8::/64"
    )
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.server_connection.address_of", lambda transport: next(addresses)
    )
    asking = Asking()
    asking.known["a"] = "alice"
    judged: list[str] = []

    class Noting:
        depends_on_peer = False

        def authenticate(self, head: RequestHead) -> Authentication:
            judged.append(head.address)
            return "alice"

    async with echoing(authenticator=Noting()) as rig:
        first, second = await rig.client.connect(), await rig.client.connect()
        for connection in (first, second, first, second):
            await connection.send(echo())
            assert principal_in((await connection.response()).body) == "alice"
    assert judged == ["2001:db8::1", "2001:db8::2"] * 2


async def test_other_tokens_than_the_one_are_somebody_elses_to_judge() -> None:
    tokens = BearerToken("secret", lambda head: "alice" if head.headers["authorization"] == "Bearer key" else REFUSED)
    async with echoing(authenticator=tokens) as rig:
        for token, principal in (("secret", "default"), ("key", "alice"), ("secret", "default")):
            response = await rig.client.request(
                body=modern("echo"), authorization=f"Bearer {token}", **modern_headers("echo")
            )
            assert principal_in(response.body) == principal
        await rig.refused(rig.client.request(body=initialize(), authorization="Bearer x"), 401)
        await rig.refused(rig.client.request(body=initialize()), 401)


async def test_revoked_caller_loses_open_streams() -> None:
    asking = Asking()
    asking.known = {"a": "alice", "b": "bob"}
    async with echoing(authenticator=asking) as rig:
        streams = {}
        for token in ("a", "b"):
            opened = await rig.client.request(body=initialize(), authorization=token)
            session = opened.headers["mcp-session-id"]
            streams[token] = await rig.client.request("GET", authorization=token, mcp_session_id=session)
            connection = await rig.client.connect()
            later = written("POST", "/mcp", modern("later"), authorization=token, **modern_headers("later"))
            await connection.send(later)
        await _under_way(rig, 2)

        rig.server.end_those_of(frozenset({"alice"}), "revoked")

        assert not (await streams["a"].event()).data
        await streams["a"].end()
        assert rig.server.session_count == 1 and rig.server.call_count == 1


async def _under_way(rig: EchoRig, count: int) -> None:
    await rig.under_way(count)
