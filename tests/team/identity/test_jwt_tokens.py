"""JWTs: which are accepted, and every way in which one is not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from mcp_workbench.team.identity.credentials import TokenRejection, Verified
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.identity.jwt_tokens import MALFORMED, JwtIssuer, peek
from tests.team.identity_provider import AUDIENCE, ISSUER, Provider, ec_key, ed_key, judged, rsa_key

ALICE = f"{ISSUER}#alice"
HOUR = 3600


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize("make", [ec_key, ed_key, rsa_key])
async def test_a_token_of_the_provider_identifies_the_caller(make: Any) -> None:
    provider = Provider(make("key"))
    found = await judged(provider.tokens(), provider.token(groups=["admins", "staff"]))
    assert found == Identity(principal=ALICE, groups=frozenset({"admins", "staff"}))


async def test_a_known_token_is_accepted_without_a_request() -> None:
    provider = Provider()
    tokens = provider.tokens()
    token = provider.token()
    await judged(tokens, token)
    asked = len(provider.asked)
    assert tokens.recognise(token) == Identity(principal=ALICE)
    assert tokens.recognise(provider.token(sub="bob")) == Identity(principal=f"{ISSUER}#bob"), "nor is a known key"
    assert len(provider.asked) == asked


def test_cached_results_expire_with_the_token() -> None:
    async def check() -> None:
        provider = Provider()
        tokens = provider.tokens(clock_skew=0.0)
        token = provider.token()
        await judged(tokens, token)
        provider.clock.wall += 601
        found = tokens.recognise(token)
        assert isinstance(found, TokenRejection) and found.message == "this token has expired"

    asyncio.run(check())


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": None}, "another audience"),
        ({"aud": "https://other.example.com"}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": {"x": AUDIENCE}}, "another audience"),
        ({"aud": AUDIENCE + "/"}, "another audience"),
        ({"exp": None}, "has no expiry time"),
        ({"exp": "soon"}, "has no expiry time"),
        ({"exp": True}, "has no expiry time"),
        ({"exp": 10**400}, "has no expiry time"),
        ({"exp": 1_800_000_000 - 61}, "has expired"),
        ({"nbf": 1_800_000_000 + 61}, "not valid yet"),
        ({"nbf": "now"}, "not valid yet"),
        ({"iat": 1_800_000_000 + 61}, "not valid yet"),
        ({"sub": None}, "does not name its subject"),
        ({"sub": ""}, "does not name its subject"),
        ({"sub": 7}, "does not name its subject"),
        ({"sub": "a" * 256}, "does not name its subject"),
        ({"sub": "alice\nbob"}, "does not name its subject"),
        ({"sub": " alice"}, "does not name its subject"),
        ({"groups": ["x"] * 501}, "more than 500 groups"),
        ({"groups": ["x" * 300]}, "more than 500 groups"),
    ],
)
async def test_claims_that_do_not_hold(claims: dict[str, Any], said: str) -> None:
    provider = Provider()
    found = await judged(provider.tokens(), provider.token(**claims))
    assert isinstance(found, TokenRejection) and said in found.message and found.error == "invalid_token"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["https://other.example.com", AUDIENCE]},
        {"exp": 1_800_000_000 - 59},
        {"nbf": 1_800_000_000 + 59},
        {"iat": 1_800_000_000 + 59},
        {"nbf": None, "iat": None},
        {"exp": 1_800_000_000.5},
    ],
)
async def test_claims_that_do(claims: dict[str, Any]) -> None:
    provider = Provider()
    assert await judged(provider.tokens(), provider.token(**claims)) == Identity(principal=ALICE)


async def test_identity_is_read_from_the_configured_claims() -> None:
    provider = Provider()
    tokens = provider.tokens(principal="email", groups="realm_access.roles")
    token = provider.token(email="a@example.com", realm_access={"roles": ["dev"]})
    expected = Identity(principal=f"{ISSUER}#a@example.com", groups=frozenset({"dev"}))
    assert await judged(tokens, token) == expected


@pytest.mark.parametrize(
    ("claims", "passes"),
    [
        ({"scope": "mcp:use other"}, True),
        ({"scp": ["mcp:use"]}, True),
        ({"scope": "other"}, False),
        ({}, False),
        ({"scope": "mcp:user"}, False),
    ],
)
async def test_a_token_without_a_scope_that_is_needed(claims: dict[str, Any], passes: bool) -> None:
    provider = Provider()
    found = await judged(provider.tokens(scopes=("mcp:use",)), provider.token(**claims))
    if passes:
        assert isinstance(found, Identity)
    else:
        assert (found.error, found.scope) == ("insufficient_scope", "mcp:use")


@pytest.mark.requirement("team.oauth")
async def test_a_token_without_a_signature_proves_nothing() -> None:
    provider = Provider()
    _, claims, signature = provider.token().split(".")
    for algorithm in ("none", "None", "NONE", "nOnE", ""):
        for end in ("", signature):
            found = await judged(provider.tokens(), f"{encoded({'alg': algorithm, 'kid': 'one'})}.{claims}.{end}")
            assert isinstance(found, TokenRejection), algorithm
            assert found.message == "the algorithm of this token is not accepted"


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
async def test_a_public_key_is_not_a_secret(algorithm: str) -> None:
    """The confusion of algorithms: what everybody may read signs nothing."""
    provider = Provider(rsa_key("key"))
    key = provider.keys[0]
    assert isinstance(key, RSAKey)
    public = key.as_pem(private=False)
    claims = provider.token().split(".")[1]
    signed = f"{encoded({'alg': algorithm, 'kid': 'key'})}.{claims}"
    name = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[algorithm]
    mac = hmac.new(public, signed.encode(), getattr(hashlib, name)).digest()
    token = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    assert (await judged(provider.tokens(), token)).message == "the algorithm of this token is not accepted"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES384", "EdDSA"])
async def test_a_key_is_used_for_its_own_algorithm_alone(algorithm: str) -> None:
    provider = Provider(ec_key("one"))
    _, claims, signature = provider.token().split(".")
    found = await judged(provider.tokens(), f"{encoded({'alg': algorithm, 'kid': 'one'})}.{claims}.{signature}")
    assert isinstance(found, TokenRejection)


async def test_only_algorithms_that_are_allowed_are_tried() -> None:
    provider = Provider()
    found = await judged(provider.tokens(algorithms=("RS256",)), provider.token())
    assert found.message == "the algorithm of this token is not accepted" and not provider.asked


@pytest.mark.parametrize(
    "header", [{"jwk": True}, {"jku": "https://evil.example/jwks"}, {"x5u": "https://evil.example"}]
)
async def test_a_key_that_a_token_brings_along_is_not_used(header: dict[str, Any]) -> None:
    provider = Provider()
    own = ec_key("one")
    if "jwk" in header:
        header = {"jwk": own.as_dict(private=False)}
    found = await judged(provider.tokens(), provider.token(own, header))
    assert isinstance(found, TokenRejection)
    assert all("evil" not in url for url in provider.asked)


async def test_an_unknown_critical_header_is_refused() -> None:
    provider = Provider()
    head, claims, signature = provider.token().split(".")
    changed = encoded({**json.loads(base64.urlsafe_b64decode(head + "==")), "crit": ["x"], "x": 1})
    assert isinstance(await judged(provider.tokens(), f"{changed}.{claims}.{signature}"), TokenRejection)


@pytest.mark.parametrize("part", [0, 1, 2])
async def test_a_token_that_was_changed_is_refused(part: int) -> None:
    provider = Provider()
    parts = provider.token().split(".")
    if part == 2:
        parts[2] = parts[2][:-6] + ("AAAAAA" if not parts[2].endswith("AAAAAA") else "BBBBBB")
    else:
        whole = json.loads(base64.urlsafe_b64decode(parts[part] + "=="))
        parts[part] = encoded({**whole, "x": 1})
    assert isinstance(await judged(provider.tokens(), ".".join(parts)), TokenRejection)


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b'"x"', b"[" * 100_000, b"\xff"])
async def test_a_payload_that_is_no_object_is_refused_even_if_it_is_signed(payload: bytes) -> None:
    provider = Provider()
    found = await judged(provider.tokens(), provider.signed(payload))
    assert isinstance(found, TokenRejection)


@pytest.mark.parametrize(
    "token", ["", ".", "..", "...", "a.b.c", "a.b", "é.é.é", "{}.{}.", "e30.e30.", "bnVsbA.bnVsbA."]
)
async def test_a_malformed_jwt_is_refused(token: str) -> None:
    assert isinstance(await judged(Provider().tokens(), token), TokenRejection)


@pytest.mark.parametrize("kid", [7, [], {"x": 1}, "x" * 513])
async def test_an_invalid_kid_is_refused_without_a_request(kid: object) -> None:
    provider = Provider()
    found = await judged(provider.tokens(), provider.token(header={"kid": "one"}))
    assert isinstance(found, Identity)
    asked = len(provider.asked)
    _, claims, signature = provider.token().split(".")
    found = await judged(provider.tokens(), f"{encoded({'alg': 'ES256', 'kid': kid})}.{claims}.{signature}")
    assert isinstance(found, TokenRejection) and len(provider.asked) == asked


async def test_a_token_without_a_kid_is_tried_with_the_keys_that_fit() -> None:
    provider = Provider(rsa_key("rsa"), ec_key("one"), ec_key("two"))
    token = provider.token(provider.keys[2], {"kid": None})
    assert await judged(provider.tokens(), token) == Identity(principal=ALICE)


async def test_a_token_of_another_issuer_is_refused_without_a_request() -> None:
    provider = Provider()
    for issuer in ("https://evil.example", ISSUER + "/", ISSUER.upper(), None, 7, ""):
        found = await judged(provider.tokens(), provider.token(iss=issuer))
        assert isinstance(found, TokenRejection), issuer
    assert not provider.asked


async def test_a_token_may_not_be_long() -> None:
    provider = Provider()
    found = await judged(provider.tokens(), provider.token(text="x" * 20_000))
    assert "longer than 16 KiB" in found.message and not provider.asked


def test_nothing_is_believed_of_a_token_that_is_only_looked_into() -> None:
    assert peek("a.b.c") is None and peek("x") is None
    header, issuer = peek(f"{encoded({'alg': 'x'})}.{encoded({'iss': 7})}.") or ({}, "?")
    assert header == {"alg": "x"} and issuer == ""


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize(
    "kind", ["logout+jwt", "application/secevent+jwt", "dpop+jwt", "id_token+jwt", "", 7, ["at+jwt"]]
)
async def test_a_header_with_another_token_type_is_refused_without_a_request(kind: object) -> None:
    provider = Provider()
    _, payload, signature = provider.token().split(".")
    header = encoded({"alg": "ES256", "kid": "one", "typ": kind})
    found = await judged(provider.tokens(), f"{header}.{payload}.{signature}")
    assert isinstance(found, TokenRejection) and found.message == "this token is not an access token"
    assert provider.asked == []


@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", "jwt", "application/jwt"])
async def test_access_tokens_and_those_that_do_not_say_are_taken(kind: str) -> None:
    provider = Provider()
    assert await judged(provider.tokens(), provider.token(header={"typ": kind})) == Identity(principal=ALICE)


async def test_a_header_without_a_type_is_taken() -> None:
    provider = Provider()
    _, payload, _ = provider.token().split(".")
    token = provider.signed(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    seen = peek(token)
    assert seen is not None and "typ" not in seen[0]
    assert await judged(provider.tokens(), token) == Identity(principal=ALICE)


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize(
    "claims",
    [
        {"typ": "ID"},
        {"typ": "Logout"},
        {"typ": "Refresh"},
        {"token_use": "id"},
        {"at_hash": "x"},
        {"c_hash": "x"},
        {"nonce": "n"},
        {"nonce": "n", "sid": "x", "azp": "client"},
        {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}},
    ],
)
async def test_id_tokens_and_logout_tokens_are_refused_by_their_claims(claims: dict[str, Any]) -> None:
    """Providers that write `JWT` into the header of everything, as most do."""
    provider = Provider()
    found = await judged(provider.tokens(), provider.token(header={"typ": "JWT"}, **claims))
    assert isinstance(found, TokenRejection) and found.message == "this token is not an access token"


@pytest.mark.parametrize(
    "claims",
    [
        {"typ": "Bearer"},
        {"token_use": "access"},
        {"nonce": "n", "typ": "Bearer"},
        {"nonce": "n", "token_use": "access"},
        {"nonce": "n", "scope": "openid profile"},
        {"nonce": "n", "scp": "use"},
    ],
)
async def test_claims_of_access_tokens_are_taken(claims: dict[str, Any]) -> None:
    """Also with the nonce of a sign-in, which Keycloak wrote into access tokens, too, until version 25."""
    provider = Provider()
    assert await judged(provider.tokens(), provider.token(header={"typ": "JWT"}, **claims)) == Identity(principal=ALICE)


async def test_a_nonce_does_no_harm_in_what_its_header_calls_an_access_token() -> None:
    """Also if the keys have to be fetched first."""
    provider = Provider()
    for token in (
        provider.token(header={"typ": "at+jwt"}, nonce="n"),
        provider.token(header={"typ": "AT+jwt"}, nonce="n"),
    ):
        assert await judged(provider.tokens(), token) == Identity(principal=ALICE)


@pytest.mark.requirement("team.oauth")
@pytest.mark.parametrize("bound", [{"jkt": "x"}, {"x5t#S256": "x"}, {}, "x"])
async def test_a_token_that_is_bound_to_a_key_is_refused_without_its_proof(bound: object) -> None:
    provider = Provider()
    found = await judged(provider.tokens(), provider.token(cnf=bound))
    assert isinstance(found, TokenRejection) and "bound to a key" in found.message


async def test_a_client_that_left_while_keys_were_fetched_is_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider()
    provider.gate = asyncio.Event()
    issuer = provider.jwts()
    token = provider.token()
    header, _ = peek(token) or ({}, "")
    left, stays = issuer.verify(token, header), issuer.verify(token, header)
    assert isinstance(left, asyncio.Future) and isinstance(stays, asyncio.Future)
    left.cancel()
    provider.gate.set()
    async with asyncio.timeout(10):
        assert isinstance(await stays, Verified)
    assert left.cancelled() and caplog.records == [], "asyncio logs what a callback raises"


async def test_a_defect_while_a_token_is_checked_ends_the_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    issuer = provider.jwts()

    def fail(*_: object, **__: object) -> object:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(issuer, "_checked", fail)
        found = await _verdict(issuer, provider.token())
        assert isinstance(found, TokenRejection) and found.error == "temporarily_unavailable"
        assert "RuntimeError: a defect" in caplog.text
    assert isinstance(await _verdict(issuer, provider.token()), Verified)


async def test_claims_that_are_nested_too_deeply_are_malformed() -> None:
    """`peek` reads them too, with more of the stack left."""
    provider = Provider()
    issuer = provider.jwts()
    await judged(provider.tokens(), provider.token())
    deep = provider.signed(b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}")
    assert await _verdict(issuer, deep) == MALFORMED
    assert isinstance(await _verdict(issuer, provider.token()), Verified)


@pytest.mark.parametrize("deep", ["header", "claims"])
async def test_a_token_of_a_stranger_that_is_nested_too_deeply_is_refused(deep: str) -> None:
    """Anybody can send one: it is looked into before its signature is checked."""
    provider = Provider()
    nested = b'{"alg":"ES256","kid":"one","iss":"x","a":' + b"[" * 2_900 + b"]" * 2_900 + b"}"
    part = base64.urlsafe_b64encode(nested).rstrip(b"=").decode()
    header, claims, signature = provider.token().split(".")
    token = f"{part}.{claims}.{signature}" if deep == "header" else f"{header}.{part}.{signature}"
    assert isinstance(await judged(provider.tokens(), token), TokenRejection)


async def _verdict(issuer: JwtIssuer, token: str) -> object:
    found = issuer.verify(token, {"alg": "ES256", "kid": "one"})
    async with asyncio.timeout(10):
        return await found if isinstance(found, asyncio.Future) else found
