"""Opaque tokens: asked about once, believed for a while."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import Any

import pytest

from mcp_workbench.team.identity import introspection as module
from mcp_workbench.team.identity.bearer_tokens import REJECTED_TOKEN_LIFETIME, BearerTokens
from mcp_workbench.team.identity.credentials import PresentingPeer, TokenRejection
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.identity.introspection import INTROSPECTION_CACHE_LIFETIME
from tests.team.identity_provider import AUDIENCE, ISSUER, Provider, judged

ALICE = Identity(principal=f"{ISSUER}#alice")
GOOD = {"sub": "alice", "aud": AUDIENCE, "exp": 1_800_000_600}


def tokens_of(*providers: Provider) -> BearerTokens:
    clock = providers[0].clock
    return BearerTokens(
        opaque=[each.introspection() for each in providers], now=lambda: clock.wall, age=lambda: clock.monotonic
    )


@pytest.mark.requirement("team.introspection")
@pytest.mark.parametrize("clock", ["wall", "monotonic"])
async def test_a_token_is_asked_about_once_and_believed_for_a_while(clock: str) -> None:
    provider = Provider()
    provider.opaque["t"] = GOOD
    tokens = tokens_of(provider)
    assert await judged(tokens, "t") == ALICE
    assert tokens.recognise("t") == ALICE
    assert len(provider.asked) == 1

    del provider.opaque["t"]
    # Whichever says so first: the one may be set back meanwhile, the other stands still while the machine sleeps.
    setattr(provider.clock, clock, getattr(provider.clock, clock) + INTROSPECTION_CACHE_LIFETIME + 1)
    assert isinstance(await judged(tokens, "t"), TokenRejection), "one that was withdrawn ends"
    assert len(provider.asked) == 2


async def test_our_client_authenticates_itself() -> None:
    provider = Provider()
    request = provider.introspection()._request("t&x=1")
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"we:s3cret").decode()
    assert request.body is not None and b"token=t%26x%3D1" in request.body


async def test_an_unknown_token_is_not_introspected_repeatedly() -> None:
    provider = Provider()
    tokens = tokens_of(provider)
    for _ in range(20):
        assert isinstance(await judged(tokens, "guess"), TokenRejection)
    assert len(provider.asked) == 1
    provider.opaque["guess"] = GOOD
    provider.clock.wall -= 3600
    provider.clock.monotonic += REJECTED_TOKEN_LIFETIME
    assert await judged(tokens, "guess") == ALICE


@pytest.mark.parametrize("wrong", [{"aud": "https://elsewhere.example"}, {"scope": "other"}, {"exp": 1_700_000_000}])
async def test_a_token_that_is_refused_is_not_asked_about_again_and_again(wrong: dict[str, Any]) -> None:
    provider = Provider()
    provider.opaque["t"] = {**GOOD, "scope": "use", **wrong}
    tokens = BearerTokens(
        opaque=[provider.introspection(scopes=("use",))],
        now=lambda: provider.clock.wall,
        age=lambda: provider.clock.monotonic,
    )
    first = await judged(tokens, "t")
    assert isinstance(first, TokenRejection)
    for _ in range(20):
        assert await judged(tokens, "t") == first
    assert len(provider.asked) == 1
    provider.opaque["t"] = {**GOOD, "scope": "use"}
    provider.clock.monotonic += REJECTED_TOKEN_LIFETIME
    assert await judged(tokens, "t") == ALICE


async def test_requests_with_one_token_share_one_question() -> None:
    provider = Provider()
    provider.opaque["t"] = GOOD
    provider.gate = asyncio.Event()
    tokens = tokens_of(provider)
    waiting = [asyncio.ensure_future(judged(tokens, "t")) for _ in range(10)]
    await asyncio.sleep(0)
    provider.gate.set()
    assert set(await asyncio.gather(*waiting)) == {ALICE} and len(provider.asked) == 1


@pytest.mark.requirement("team.introspection")
async def test_a_flood_of_tokens_is_bounded() -> None:
    provider = Provider()
    provider.gate = asyncio.Event()
    tokens = tokens_of(provider)
    waiting = [asyncio.ensure_future(judged(tokens, f"guess{n}")) for n in range(100)]
    await asyncio.sleep(0)
    assert len(provider.tasks) == module.MAX_INTROSPECTIONS_IN_PROGRESS
    provider.gate.set()
    found = await asyncio.gather(*waiting)
    assert sum(each.error == "temporarily_unavailable" for each in found) == 100 - module.MAX_INTROSPECTIONS_IN_PROGRESS


async def test_one_peer_leaves_places_for_the_tokens_of_others() -> None:
    provider = Provider()
    provider.opaque["t"] = GOOD
    provider.gate = asyncio.Event()
    tokens = tokens_of(provider)
    found = [tokens.recognise(f"guess{n}", partial(PresentingPeer, "10.0.0.9")) for n in range(100)]
    assert found[module.MAX_REQUESTS_PER_PEER :] == [module.BUSY] * (100 - module.MAX_REQUESTS_PER_PEER)
    right = tokens.recognise("t", partial(PresentingPeer, "10.0.0.1"))
    assert isinstance(right, asyncio.Future)
    provider.gate.set()
    assert await right == ALICE
    asked = [each for each in found if isinstance(each, asyncio.Future)]
    assert await asyncio.gather(*asked) == [module.UNKNOWN_TOKEN] * module.MAX_REQUESTS_PER_PEER
    assert isinstance(tokens.recognise("another", partial(PresentingPeer, "10.0.0.9")), asyncio.Future), (
        "its places are free"
    )
    await asyncio.gather(*provider.tasks)
    assert not provider_counts(tokens)


async def test_a_peer_that_fails_often_waits_before_its_tokens_are_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SLOWED_PEER_DELAY", 1000.0)
    provider = Provider()
    provider.opaque["t"] = GOOD
    tokens = tokens_of(provider)
    slowed = [tokens.recognise(f"guess{n}", partial(PresentingPeer, f"10.0.0.{n}", is_slowed=True)) for n in range(100)]
    assert all(isinstance(each, asyncio.Future) for each in slowed)
    assert await judged(tokens, "t") == ALICE, "while they wait, they take nobody's place"
    assert len(provider.asked) == 1
    for task in provider.tasks:
        task.cancel()
    await asyncio.wait(provider.tasks)
    assert not provider_counts(tokens)
    monkeypatch.setattr(module, "SLOWED_PEER_DELAY", 0.0)
    found = tokens.recognise("guess", partial(PresentingPeer, "10.0.0.1", is_slowed=True))
    assert isinstance(found, asyncio.Future) and await found == module.UNKNOWN_TOKEN
    assert len(provider.asked) == 2 and not provider_counts(tokens)


def provider_counts(tokens: BearerTokens) -> object:
    (introspection,) = tokens._opaque
    return introspection._asked or introspection._of_peers or introspection._under_way


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({**GOOD, "active": False}, "does not know this token"),
        ({**GOOD, "active": "true"}, "does not know this token"),
        ({**GOOD, "aud": None}, "another audience"),
        ({"sub": "alice"}, "another audience"),
        ({**GOOD, "iss": "https://evil.example"}, "another issuer"),
        ({**GOOD, "exp": 1_700_000_000}, "has expired"),
        ({**GOOD, "sub": None}, "does not name its subject"),
    ],
)
async def test_an_answer_has_to_say_as_much_as_a_jwt(answer: dict[str, Any], said: str) -> None:
    provider = Provider()
    provider.document = {"active": True, **answer}
    found = await judged(tokens_of(provider), "t")
    assert isinstance(found, TokenRejection) and said in found.message


async def test_a_token_without_an_end_is_asked_about_again_before_long() -> None:
    provider = Provider()
    provider.opaque["t"] = {"sub": "alice", "aud": AUDIENCE}
    tokens = tokens_of(provider)
    assert await judged(tokens, "t") == ALICE
    provider.clock.wall += INTROSPECTION_CACHE_LIFETIME + 1
    assert await judged(tokens, "t") == ALICE
    assert len(provider.asked) == 2


@pytest.mark.parametrize("status", [0, 302, 401, 500])
async def test_callers_are_refused_while_the_provider_is_unavailable(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    provider.status = status
    tokens = tokens_of(provider)
    for _ in range(3):
        found = await judged(tokens, "t")
        assert isinstance(found, TokenRejection) and found.error == "temporarily_unavailable"
    assert caplog.text.count("cannot be checked with the identity provider") == 1, "said once a minute"


async def test_of_several_providers_one_has_to_know_it() -> None:
    one, other = Provider(), Provider(issuer="https://other.example.com")
    other.opaque["t"] = GOOD
    tokens = tokens_of(one, other)
    assert await judged(tokens, "t") == Identity(principal="https://other.example.com#alice")
    assert isinstance(await judged(tokens, "x"), TokenRejection)
    one.status = 0
    found = await judged(tokens, "y")
    assert found.error == "temporarily_unavailable", "the one that could not be asked may have known it"
