"""Keys of a provider: when they are fetched, how long they are good, and which of them are used."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from mcp_workbench.team.identity import jwks
from mcp_workbench.team.identity.credentials import TokenRejection
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.identity.jwks import JWKS_RETRY_INTERVAL, KEY_LIFETIME, MIN_KEY_FETCH_INTERVAL, read_key
from tests.team.identity_provider import ISSUER, Provider, ec_key, judged, rsa_key

ALICE = Identity(principal=f"{ISSUER}#alice")


def fetches(provider: Provider) -> int:
    return sum(url.endswith("/jwks") for url in provider.asked)


@pytest.mark.requirement("team.oauth")
async def test_a_key_that_is_new_is_fetched_and_an_old_one_ends() -> None:
    provider = Provider()
    tokens = provider.tokens()
    old = provider.token()
    assert await judged(tokens, old) == ALICE
    provider.keys = [ec_key("two")]
    provider.clock.monotonic += MIN_KEY_FETCH_INTERVAL
    assert await judged(tokens, provider.token()) == ALICE
    found = await judged(tokens, old)
    assert isinstance(found, TokenRejection), "what the withdrawn key has proved is proved no more"


async def test_tokens_that_wait_for_keys_share_one_fetch() -> None:
    provider = Provider()
    provider.gate = asyncio.Event()
    tokens = provider.tokens()
    waiting = [asyncio.ensure_future(judged(tokens, provider.token(sub=f"user{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    provider.gate.set()
    assert len(set(await asyncio.gather(*waiting))) == 20
    assert fetches(provider) == 1


@pytest.mark.requirement("team.oauth")
async def test_a_flood_of_made_up_kids_is_one_fetch_in_half_a_minute() -> None:
    provider = Provider()
    tokens = provider.tokens()
    assert await judged(tokens, provider.token()) == ALICE
    stranger = ec_key("x")
    provider.clock.monotonic += MIN_KEY_FETCH_INTERVAL
    for number in range(200):
        found = await judged(tokens, provider.token(stranger, {"kid": f"k{number}"}))
        assert found.message == "this token is signed with a key that its issuer does not have"
    assert fetches(provider) == 2
    assert await judged(tokens, provider.token(sub="bob")) != ALICE, "and nobody else notices"


@pytest.mark.requirement("team.oauth")
async def test_while_the_provider_is_down_known_keys_go_on_until_they_end() -> None:
    provider = Provider()
    tokens = provider.tokens()
    assert await judged(tokens, provider.token()) == ALICE
    provider.status = 0
    provider.clock.monotonic += KEY_LIFETIME - 1
    assert await judged(tokens, provider.token(sub="bob")) == Identity(principal=f"{ISSUER}#bob")
    provider.clock.monotonic += 2
    found = await judged(tokens, provider.token(sub="carol"))
    assert isinstance(found, TokenRejection) and found.error == "temporarily_unavailable"


@pytest.mark.requirement("team.oauth")
async def test_a_token_in_use_ends_with_its_key() -> None:
    """One token, used all the time, and nobody else: it alone has to find out."""
    provider = Provider()
    tokens = provider.tokens()
    token = provider.token(exp=int(provider.clock.wall) + 10 * int(KEY_LIFETIME))
    assert await judged(tokens, token) == ALICE
    provider.keys = [ec_key("two")]
    provider.clock.monotonic += jwks.KEY_REFRESH_INTERVAL - 1
    assert tokens.recognise(token) == ALICE and fetches(provider) == 1
    provider.clock.monotonic += 1
    assert tokens.recognise(token) == ALICE, "nobody waits for the keys"
    await asyncio.gather(*provider.tasks)
    assert fetches(provider) == 2
    found = await judged(tokens, token)
    assert isinstance(found, TokenRejection) and found.message.endswith("a key that its issuer does not have")


@pytest.mark.requirement("team.oauth")
async def test_a_token_in_use_is_not_accepted_with_keys_that_have_ended() -> None:
    provider = Provider()
    tokens = provider.tokens()
    token = provider.token(exp=int(provider.clock.wall) + 10 * int(KEY_LIFETIME))
    assert await judged(tokens, token) == ALICE
    provider.status = 0
    for age in (jwks.KEY_REFRESH_INTERVAL, jwks.KEY_REFRESH_INTERVAL + MIN_KEY_FETCH_INTERVAL, KEY_LIFETIME - 1):
        provider.clock.monotonic = age
        before = len(provider.asked)
        assert tokens.recognise(token) == ALICE
        await asyncio.gather(*provider.tasks)
        assert len(provider.asked) > before, "the keys are tried to fetch again"
    provider.clock.monotonic = KEY_LIFETIME
    found = await judged(tokens, token)
    assert isinstance(found, TokenRejection) and found.error == "temporarily_unavailable"


async def test_keys_are_confirmed_beside_the_requests_that_use_them() -> None:
    provider = Provider()
    tokens = provider.tokens()
    await judged(tokens, provider.token())
    provider.clock.monotonic += jwks.KEY_REFRESH_INTERVAL + 1
    assert tokens.recognise(provider.token(sub="bob")) == Identity(principal=f"{ISSUER}#bob"), "nobody waits for it"
    await asyncio.gather(*provider.tasks)
    assert fetches(provider) == 2


@pytest.mark.parametrize("status", [0, 302, 404, 500])
async def test_without_keys_callers_are_refused_and_the_provider_is_retried(status: int) -> None:
    provider = Provider()
    provider.status = status
    tokens = provider.tokens()
    for _ in range(50):
        found = await judged(tokens, provider.token())
        assert isinstance(found, TokenRejection) and found.error == "temporarily_unavailable"
    first = len(provider.asked)
    assert first <= 2, "one look, at both places where metadata may be"
    provider.status = 200
    provider.clock.monotonic += JWKS_RETRY_INTERVAL
    assert await judged(tokens, provider.token()) == ALICE, "and when it is back, they do"


async def test_a_provider_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "KEY_FETCH_TIMEOUT", 0.01)
    provider = Provider()
    provider.gate = asyncio.Event()
    found = await judged(provider.tokens(), provider.token())
    assert isinstance(found, TokenRejection) and found.error == "temporarily_unavailable"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"issuer": "https://evil.example", "jwks_uri": "https://evil.example/jwks"},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": "http://id.example.com/jwks"},
        {"issuer": ISSUER, "jwks_uri": 7},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        [],
    ],
)
async def test_metadata_that_is_not_its_own_or_leads_astray_gives_no_keys(document: Any) -> None:
    provider = Provider()
    provider.document = document
    found = await judged(provider.tokens(), provider.token())
    assert isinstance(found, TokenRejection) and found.error == "temporarily_unavailable"
    assert not any("evil" in url or "jwks" in url or "passwd" in url for url in provider.asked)


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize("keys", [[], [{"kty": "oct", "k": "c2VjcmV0"}]])
async def test_a_provider_that_has_no_keys_any_more_has_withdrawn_them(
    keys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 7517 allows a set of none. It is the provider's word, unlike an answer that is no set."""
    provider = Provider()
    tokens = provider.tokens(jwks=f"{ISSUER}/jwks")
    token = provider.token()
    assert await judged(tokens, token) == ALICE
    provider.document = {"keys": keys}
    provider.clock.monotonic += MIN_KEY_FETCH_INTERVAL
    for each in (provider.token(ec_key("x")), token):
        found = await judged(tokens, each)
        assert isinstance(found, TokenRejection) and found.error == "invalid_token"
    assert "has no key that can be used" in caplog.text
    provider.document = None
    provider.clock.monotonic += JWKS_RETRY_INTERVAL
    assert await judged(tokens, token) == ALICE, "it is looked at again soon"


@pytest.mark.parametrize("document", [{"keys": {}}, {"keys": [7, None, {}]}, {"keys": "x"}, {"x": 1}])
async def test_an_invalid_key_set_keeps_the_known_keys(document: Any) -> None:
    provider = Provider()
    tokens = provider.tokens(jwks=f"{ISSUER}/jwks")
    assert await judged(tokens, provider.token()) == ALICE
    provider.document = document
    provider.clock.monotonic += MIN_KEY_FETCH_INTERVAL
    assert isinstance(await judged(tokens, provider.token(ec_key("x"))), TokenRejection)
    assert await judged(tokens, provider.token(sub="alice", iat=None)) == ALICE


async def test_where_keys_are_may_be_configured() -> None:
    provider = Provider()
    assert await judged(provider.tokens(jwks="https://keys.example.com/jwks"), provider.token()) == ALICE
    assert provider.asked == ["https://keys.example.com/jwks"]
    assert provider.named_by == [None], "it may be anywhere"


async def test_where_keys_are_according_to_metadata_is_named_by_the_issuer() -> None:
    provider = Provider()
    assert await judged(provider.tokens(), provider.token()) == ALICE
    assert provider.asked[-1].endswith("/jwks")
    assert provider.named_by == [None, ISSUER]


async def test_an_issuer_elsewhere_does_not_name_keys_on_this_machine() -> None:
    provider = Provider()
    provider.document = {"issuer": ISSUER, "jwks_uri": "https://127.1/jwks"}
    assert isinstance(await judged(provider.tokens(), provider.token()), TokenRejection)
    assert not any("127" in url for url in provider.asked)


async def test_a_set_of_many_keys_is_read_in_part() -> None:
    provider = Provider()
    good = provider.keys[0]
    provider.keys = [good]
    spam = [{"kty": "EC", "kid": str(number)} for number in range(jwks.MAX_PROVIDER_KEYS)]
    provider.document = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks", "keys": [*spam, good.as_dict(private=False)]}
    assert isinstance(await judged(provider.tokens(), provider.token()), TokenRejection)


def large(letters: int) -> str:
    return base64.urlsafe_b64encode(b"\xff" * (letters * 3 // 4)).decode().rstrip("=")


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize(
    "written",
    [
        None,
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA", "n": large(1_000_000), "e": "AQAB"},
        {"kty": "RSA", "n": large(170), "e": "AQAB"},
        {"kty": "RSA", "n": large(400), "e": large(400)},
        {"kty": "RSA", "n": 7, "e": "AQAB"},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": large(1_000_000), "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": 7, "y": 7},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        {"kty": "OKP"},
        {"kty": "XYZ"},
    ],
)
def test_a_key_that_should_not_be_used_is_not(written: Any) -> None:
    assert read_key(written) is None


def test_a_key_for_something_else_is_not_used() -> None:
    public = ec_key("one").as_dict(private=False)
    assert read_key(public) is not None
    assert read_key({**public, "use": "enc"}) is None
    assert read_key({**public, "key_ops": ["encrypt"]}) is None
    assert read_key({**public, "kid": "x" * 600}) is None


def test_the_private_part_of_a_key_is_not_kept() -> None:
    found = read_key(rsa_key("one").as_dict(private=True))
    assert found is not None and not found.is_private
