"""Tokens bound to a key (RFC 9449): at the token endpoint, at the server, with nonces, and where nobody asks for it."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from msgspec.structs import replace

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal, ProvenHeaders
from mcp_workbench.engine.transport.http.client.http_client import HttpTarget
from mcp_workbench.engine.transport.http.client.response_body import read_whole
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin.challenge import parse
from mcp_workbench.signin.dpop import MAX_NONCE_LENGTH, ProofKey, TokenProof
from mcp_workbench.signin.flow_io import SignInFailed
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.identity.user_headers import AssertedIdentity
from tests.engine.transport.http.listening import Reply, Request
from tests.signin.authority import Authority, Fields, another, sign_in_setup

pytestmark = pytest.mark.processes


def thumbprint(jwk: dict[str, str]) -> str:
    written = json.dumps({name: jwk[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
    return base64.urlsafe_b64encode(hashlib.sha256(written.encode()).digest()).rstrip(b"=").decode()


@dataclass
class ProvingAuthority(Authority):
    """Checks every proof, as RFC 9449 describes it in section 4.3."""

    metadata: Fields | None = field(default_factory=lambda: {"dpop_signing_alg_values_supported": ["ES256"]})
    token_nonce: str = ""
    nonce: str = ""
    # Whether tokens are bound, although the request had a proof.
    binds: bool = True
    challenge: str | None = 'DPoP algs="ES256"'
    seen: set[str] = field(default_factory=set)
    bound: dict[str, str] = field(default_factory=dict)
    calls: list[dict[str, str]] = field(default_factory=list)

    def check(self, request: Request, url: str) -> tuple[str, dict[str, Any]]:
        proof = request.headers["dpop"]
        head = json.loads(base64.urlsafe_b64decode(proof.split(".")[0] + "=="))
        assert head["typ"] == "dpop+jwt" and head["alg"] == "ES256"
        assert set(head["jwk"]) == {"kty", "crv", "x", "y"}, "nothing private, nothing else"
        claims = jwt.decode(proof, ECKey.import_key(head["jwk"]), algorithms=["ES256"]).claims
        assert (claims["htm"], claims["htu"]) == (request.method, url)
        assert abs(claims["iat"] - time.time()) < 5
        assert claims["jti"] not in self.seen
        self.seen.add(claims["jti"])
        return thumbprint(head["jwk"]), claims

    async def _token(self, asked: Fields, request: Request, reply: Reply) -> None:
        if "dpop" not in request.headers:
            return await super()._token(asked, request, reply)
        thumb, claims = self.check(request, f"{self.origin}/token")
        assert "ath" not in claims
        if self.token_nonce and claims.get("nonce") != self.token_nonce:
            await reply.send(400, b'{"error": "use_dpop_nonce"}', dpop_nonce=self.token_nonce)
            return None
        if self.binds:
            self.bound[f"access-{self.number + 1}"] = thumb
            self.token_answer = {"token_type": "DPoP"}
        return await super()._token(asked, request, reply)

    async def _call(self, request: Request, reply: Reply) -> None:
        self.calls.append(request.headers)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme == "DPoP" and token in self.valid:
            thumb, claims = self.check(request, self.url)
            assert thumb == self.bound[token]
            hashed = hashlib.sha256(token.encode()).digest()
            assert claims["ath"] == base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
            if self.nonce and claims.get("nonce") != self.nonce:
                challenge = 'DPoP error="use_dpop_nonce"'
                await reply.send(401, b"no", "text/plain", www_authenticate=challenge, dpop_nonce=self.nonce)
                return
            await self._speak(request, reply)
            return
        await super()._call(request, reply)


async def test_calls_carry_a_token_bound_to_a_key_and_a_proof_of_their_own(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority) as at:
        record = await at.log_in()
        assert [await at.call() for _ in range(3)] == [200, 200, 200]
        authority = at.authority
        assert isinstance(authority, ProvingAuthority)
        key = json.loads(record.dpop_key)
        assert authority.authorizations[0]["dpop_jkt"] == thumbprint(key) and key["d"], "the code is bound to it, too"
        assert {each["authorization"] for each in authority.calls[-3:]} == {"DPoP access-1"}
        assert len({each["dpop"] for each in authority.calls[-3:]}) == 3
        store = Path(at.sign_ins.store.path)
        assert store.stat().st_mode & 0o777 == 0o600 and key["d"] in store.read_text()


async def test_a_refresh_proves_the_same_key_and_another_process_uses_it(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority) as at:
        first = await at.log_in()
        at.authority.expire()
        assert await at.call() == 200 and at.authority.refreshes == 1
        assert at.record.dpop_key == first.dpop_key and at.record.access_token != first.access_token
        assert await another(at).call() == 200


async def test_nonces_are_taken_over_at_the_token_endpoint_and_at_the_server(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, token_nonce="t1", nonce="n1") as at:
        await at.log_in()
        authority = at.authority
        assert isinstance(authority, ProvingAuthority)
        before = len(authority.calls)
        assert await at.call() == 200
        assert len(authority.calls) - before == 2, "sent again with the nonce"
        assert await at.call() == 200
        assert len(authority.calls) - before == 3, "and then at once"
        # A token and a nonce that are both out of date: a refresh and a nonce for each end.
        authority.nonce, authority.token_nonce = "n2", "t2"
        authority.expire()
        assert await at.call() == 200 and authority.refreshes == 1


async def test_a_server_that_never_accepts_the_nonce_is_asked_twice(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority) as at:
        await at.log_in()
        authority = at.authority
        assert isinstance(authority, ProvingAuthority)
        numbers = iter(range(100))

        async def call(request: Request, reply: Reply) -> None:
            authority.calls.append(request.headers)
            nonce = f"n{next(numbers)}"
            await reply.send(401, b"", www_authenticate='DPoP error="use_dpop_nonce"', dpop_nonce=nonce)

        authority._call = call  # type: ignore[method-assign]
        before = len(authority.calls)
        assert await at.call() == 401
        assert len(authority.calls) - before == 2 and authority.refreshes == 0


async def test_a_nonce_that_a_successful_answer_brings_is_used_next(tmp_path: Path) -> None:
    key = ProofKey()
    headers = ProvenHeaders({"authorization": "DPoP token"}, TokenProof(key, "token"))
    headers.answered({"dpop-nonce": "next"})
    proof = headers.proven("GET", "https://tools.example/mcp?key=secret#part")["dpop"]
    claims = jwt.decode(proof, ECKey.import_key(json.loads(key.written)), algorithms=["ES256"]).claims
    assert claims["nonce"] == "next"
    assert claims["htu"] == "https://tools.example/mcp" and claims["htm"] == "GET"
    headers.answered({"dpop-nonce": "x" * (MAX_NONCE_LENGTH + 1)})
    assert key.nonce == "next", "one that is too long is not sent with every request"


@pytest.mark.parametrize(
    ("metadata", "challenge", "resource"),
    [
        pytest.param({"dpop_signing_alg_values_supported": ["ES256"]}, None, {}, id="the server wants bearer tokens"),
        pytest.param({}, "DPoP", {}, id="the authorization server cannot"),
        pytest.param({"dpop_signing_alg_values_supported": ["EdDSA"]}, "DPoP", {}, id="not with our algorithm"),
    ],
)
async def test_tokens_stay_bearer_tokens_unless_both_ends_want_more(
    tmp_path: Path, metadata: Fields, challenge: str | None, resource: Fields
) -> None:
    switches: Fields = {"metadata": metadata, "challenge": challenge, "resource_metadata": resource}
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, **switches) as at:
        record = await at.log_in()
        assert record.dpop_key == "" and "dpop_jkt" not in at.authority.authorizations[0]
        assert await at.call() == 200
        assert at.server.requests[-1].headers["authorization"] == "Bearer access-1"
        assert "dpop" not in at.server.requests[-1].headers


async def test_the_server_is_not_asked_where_the_authorization_server_offers_nothing(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert not [each for each in at.server.requests if each.path == "/mcp"]


async def test_required_by_the_metadata_of_the_server(tmp_path: Path) -> None:
    required = {"dpop_bound_access_tokens_required": True}
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, resource_metadata=required) as at:
        assert (await at.log_in()).dpop_key
        assert not [each for each in at.server.requests if each.path == "/mcp"], "there is nothing to ask"
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, resource_metadata=required, metadata={}) as at:
        with pytest.raises(SignInFailed, match=r"only tokens bound to a key \(DPoP\)"):
            await at.log_in()


async def test_an_authorization_server_that_does_not_bind(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, binds=False) as at:
        assert (await at.log_in()).dpop_key == ""
        assert await at.call() == 200
    for settings, metadata in (
        (OAuthConfig(dpop="always"), {}),
        (None, {"dpop_bound_access_tokens_required": True}),
    ):
        switches = {"binds": False, "resource_metadata": metadata}
        async with sign_in_setup(tmp_path / "strict", settings, kind=ProvingAuthority, **switches) as at:
            with pytest.raises(SignInFailed, match="issued a token that is not bound to a key"):
                await at.log_in()


@pytest.mark.parametrize(("dpop", "expected"), [("always", True), ("never", False)])
async def test_settings_decide(tmp_path: Path, dpop: str, expected: bool) -> None:
    # Neither of them says anything, or both do.
    switches: Fields = {"metadata": {}, "challenge": None} if dpop == "always" else {}
    async with sign_in_setup(tmp_path, OAuthConfig(dpop=dpop), kind=ProvingAuthority, **switches) as at:
        assert bool((await at.log_in()).dpop_key) is expected


async def test_a_machine_proves_a_key(tmp_path: Path) -> None:
    settings = OAuthConfig(client_id="robot", client_secret="s", grant="client_credentials")
    async with sign_in_setup(tmp_path, settings, kind=ProvingAuthority, token_nonce="t1") as at:
        assert await at.call() == 200
        assert at.record.dpop_key
        at.authority.expire()
        assert await at.call() == 200


async def test_a_device_code_is_exchanged_with_proof(tmp_path: Path) -> None:
    metadata = {"dpop_signing_alg_values_supported": ["ES256"], "device_authorization_endpoint": ""}
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, metadata=metadata) as at:
        assert at.authority.metadata is not None
        at.authority.metadata["device_authorization_endpoint"] = f"{at.authority.origin}/device"
        record = await at.sign_ins.sign_in_by_device(at.target, lambda wait: None)
        assert record.dpop_key and await at.call() == 200


async def test_a_server_that_starts_to_want_proof_wants_a_new_sign_in(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, challenge=None) as at:
        await at.log_in()
        at.authority.challenge, at.authority.refuses_all = "DPoP", True
        with pytest.raises(SignInNeeded):
            await at.call()
        at.authority.refuses_all = False
        assert (await at.log_in()).dpop_key and await at.call() == 200


async def test_a_key_of_another_record_is_never_used(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority) as at:
        await at.log_in()
        assert await at.call() == 200
        authority = at.authority
        assert isinstance(authority, ProvingAuthority)
        # As after `login` in another process: other tokens, another key.
        key = ProofKey()
        authority.valid["other"], authority.bound["other"] = "", key.thumbprint
        await at.change(lambda record: replace(record, access_token="other", dpop_key=key.written))
        assert await at.call() == 200


async def test_proof_is_sent_beside_an_identity_assertion(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, kind=ProvingAuthority, nonce="n1") as at:
        await at.log_in()
        ada = Identity(principal="ada")
        source = AssertedIdentity(at.source, "x-user", lambda: ada, lambda identity, now: "it is ada")
        response = await at.client.request("POST", HttpTarget.of(at.target.url, source), {}, b"{}")
        await read_whole(response, 1024)
        response.release()
        assert response.status == 200
        sent = at.server.requests[-1].headers
        assert sent["x-user"] == "it is ada" and sent["dpop"] and sent["authorization"].startswith("DPoP ")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("DPoP", True),
        ('DPoP algs="ES256"', True),
        ('Bearer realm="x", DPoP algs="ES256 PS256"', True),
        ('Bearer error="invalid_token",dpop resource_metadata="https://a/b"', True),
        ('Bearer realm="DPoP"', False),
        ('Bearer realm="a, DPoP b"', False),
        ("Bearer scheme=dpop", False),
        ("Bearer realm=x, dpop=y", False),
        ("", False),
    ],
)
def test_challenges_that_ask_for_proof(header: str, expected: bool) -> None:
    assert parse(header).is_dpop is expected


def test_a_nonce_counts_apart_from_a_token() -> None:
    wants_nonce = CredentialRefusal(401, 'DPoP error="use_dpop_nonce"', {})
    assert wants_nonce.kind != CredentialRefusal(401, 'DPoP error="invalid_token"', {}).kind
