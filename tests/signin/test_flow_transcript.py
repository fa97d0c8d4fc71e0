"""A sign-in as a transcript, without a network: what is sent where, and what is not sent after a refusal."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.json import decode

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin import flow
from mcp_workbench.signin.assertion import Credentials
from mcp_workbench.signin.challenge import Challenge
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.dpop import ProofKey
from mcp_workbench.signin.flow_io import AuthorizationRequest, OAuthRequest, OAuthResponse, Registered, SignInFailed

URL = "https://mcp.example.com/mcp"
# Of two that the resource could name, so that each may be confused with the other.
OTHER, ISSUER = "https://other.example.com", "https://login.example.com"
CALLBACK = "http://127.0.0.1:1/callback"
OFFLINE = "offline_access"
APP = OAuthConfig(client_id="app", client_secret="hidden")
REGISTERED = OAuthClient(issuer=ISSUER, id="registered", redirect_uris=(CALLBACK,), is_registered=True)


def _json(value: object, status: int = 200) -> OAuthResponse:
    return OAuthResponse(status, json.dumps(value).encode(), "application/json")


class Authority:
    """Answers like an authorization server and the server that names it, and writes down what it is asked."""

    def __init__(self, *, resource: Mapping[str, Any] | None = None, **metadata: Any) -> None:
        self.resource = {"resource": URL, "authorization_servers": [ISSUER], **(resource or {})}
        self.metadata: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize?tenant=7&flag=",
            "token_endpoint": f"{ISSUER}/token",
            "registration_endpoint": f"{ISSUER}/register",
            "code_challenge_methods_supported": ["S256"],
            **metadata,
        }
        self.tokens: dict[str, Any] = {"access_token": "a", "token_type": "bearer"}
        # What the user brings back, beside the state of the request.
        self.returned: dict[str, str | None] = {"code": "c"}
        self.seen: list[str] = []
        self.forms: dict[str, dict[str, str]] = {}
        self.headers: dict[str, Mapping[str, str]] = {}
        self.page: dict[str, str] = {}
        self.kept: list[object] = []

    def run(self, steps: Any) -> Any:
        step = next(steps)
        try:
            while True:
                step = steps.send(self._answer(step))
        except StopIteration as done:
            return done.value

    def _answer(self, step: Any) -> Any:
        match step:
            case Registered():
                self.kept.append(step.client)
                return None
            case AuthorizationRequest():
                self.seen.append("page")
                self.page = dict(parse_qsl(urlsplit(step.url).query, keep_blank_values=True))
                fields = {"state": self.page["state"], **self.returned}
                return {name: value for name, value in fields.items() if value is not None}
            case _:
                return self._respond(step)

    def _respond(self, request: OAuthRequest) -> OAuthResponse:
        if "oauth-protected-resource" in request.url:
            return _json(self.resource)
        if "well-known" in request.url:
            assert request.url.startswith(ISSUER)
            return _json(self.metadata)
        name = request.url.rpartition("/")[2]
        self.seen.append(name)
        self.headers[name] = request.headers
        if name == "register":
            return _json({"client_id": "new", **decode(request.body or b"")}, 201)
        if name == "mcp":
            return OAuthResponse(401)
        self.forms[name] = dict(parse_qsl((request.body or b"").decode()))
        return _json(self.tokens)


def attempt(**members: Any) -> flow.SignInRequest:
    # A challenge is known, so nobody asks the server for one.
    settled = {"url": URL, "redirect_uri": CALLBACK, "challenge": Challenge(is_known=True), **members}
    return flow.SignInRequest(**settled)


def test_code_is_exchanged_by_who_asked_for_it() -> None:
    authority = Authority()
    grant = authority.run(flow.sign_in(attempt(settings=OAuthConfig(scopes=("read", "write")))))
    assert authority.seen == ["register", "page", "token"]
    (client,) = authority.kept
    assert grant.client == client and grant.tokens.access_token == "a"
    assert (grant.scopes, grant.dpop_key) == (("read", "write"), "")
    verifier = authority.forms["token"].pop("code_verifier")
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    # RFC 7636: 43 characters at least.
    assert len(verifier) == 43 and len(authority.page.pop("state")) == 48
    assert authority.page == {
        "tenant": "7",
        "flag": "",
        "response_type": "code",
        "client_id": "new",
        "redirect_uri": CALLBACK,
        "code_challenge": digest,
        "code_challenge_method": "S256",
        "scope": "read write",
        "resource": URL,
    }
    assert authority.forms["token"] == {
        "grant_type": "authorization_code",
        "code": "c",
        "redirect_uri": CALLBACK,
        "resource": URL,
        "client_id": "new",
    }


def test_no_two_sign_ins_share_a_state_or_a_verifier() -> None:
    states, verifiers = set(), set()
    for _ in range(2):
        authority = Authority()
        authority.run(flow.sign_in(attempt()))
        states.add(authority.page["state"])
        verifiers.add(authority.forms["token"]["code_verifier"])
    assert len(states) == len(verifiers) == 2


def test_consent_is_asked_for_with_offline_access_alone() -> None:
    for scopes, prompt in ((("read",), None), (("read", OFFLINE), "consent")):
        authority = Authority(scopes_supported=[*scopes])
        authority.run(flow.sign_in(attempt(settings=OAuthConfig(scopes=scopes))))
        assert authority.page.get("prompt") == prompt


@pytest.mark.parametrize(("endpoint", "callback"), [(None, CALLBACK), (f"{ISSUER}/authorize", None)])
def test_sign_in_without_a_page_or_a_callback_is_refused_before_anything_is_registered(
    endpoint: str | None, callback: str | None
) -> None:
    authority = Authority(authorization_endpoint=endpoint)
    with pytest.raises(SignInFailed, match="no sign-in page"):
        authority.run(flow.sign_in(attempt(redirect_uri=callback)))
    assert authority.seen == authority.kept == []


def test_only_a_new_registration_is_kept() -> None:
    for clients, kept in (({OTHER: REGISTERED}, ["new"]), ({OTHER: REGISTERED, ISSUER: REGISTERED}, [])):
        authority = Authority()
        grant = authority.run(flow.sign_in(attempt(clients=clients)))
        assert [client.id for client in authority.kept if isinstance(client, OAuthClient)] == kept
        assert grant.client.id == authority.page["client_id"] == (kept or ["registered"])[0]
    authority = Authority()
    assert authority.run(flow.sign_in(attempt(settings=APP))).client.id == "app"
    assert authority.kept == [] and authority.seen == ["page", "token"]


@pytest.mark.parametrize(
    ("sends_iss", "returned", "why"),
    [
        (False, {"state": "of another"}, "does not belong to this sign-in"),
        (False, {"state": None}, "does not belong to this sign-in"),
        (False, {"state": "of another", "error": "access_denied"}, "does not belong to this sign-in"),
        (True, {}, "lacks `iss`"),
        (False, {"iss": OTHER}, "another authorization server"),
        (True, {"iss": OTHER, "error": "access_denied"}, "another authorization server"),
        (True, {"iss": ISSUER, "error": "access_denied", "error_description": "no"}, "(access_denied: no)"),
        (False, {"error": "access_denied"}, "(access_denied)"),
        (False, {"code": None}, "contains no code"),
        (False, {"code": ""}, "contains no code"),
    ],
)
def test_nothing_is_sent_after_a_callback_that_is_not_ours(
    sends_iss: bool, returned: dict[str, str | None], why: str
) -> None:
    authority = Authority(authorization_response_iss_parameter_supported=sends_iss)
    authority.returned |= returned
    with pytest.raises(SignInFailed) as failed:
        authority.run(flow.sign_in(attempt(settings=APP)))
    assert why in failed.value.message
    assert authority.seen == ["page"]


@pytest.mark.parametrize(("sends_iss", "iss"), [(True, ISSUER), (False, ISSUER), (False, None)])
def test_callback_of_the_authorization_server_is_taken(sends_iss: bool, iss: str | None) -> None:
    authority = Authority(authorization_response_iss_parameter_supported=sends_iss)
    authority.returned["iss"] = iss
    assert authority.run(flow.sign_in(attempt(settings=APP))).tokens.access_token == "a"


SECRETS = [
    OAuthConfig(client_id="app"),
    OAuthConfig(initial_access_token="t"),
    OAuthConfig(client_id="app", initial_access_token="t"),
]


@pytest.mark.parametrize("settings", SECRETS)
def test_credentials_are_not_sent_to_an_authorization_server_that_is_new(settings: OAuthConfig) -> None:
    authority = Authority()
    with pytest.raises(SignInFailed, match="names another authorization server"):
        authority.run(flow.sign_in(attempt(settings=settings, bound_issuer=OTHER)))
    assert authority.seen == []


@pytest.mark.parametrize(
    ("settings", "bound_issuer"),
    [
        (None, OTHER),
        *((settings, bound) for settings in SECRETS for bound in (None, ISSUER)),
        (OAuthConfig(client_id="app", issuer=ISSUER), OTHER),
    ],
)
def test_credentials_are_sent_where_they_belong(settings: OAuthConfig | None, bound_issuer: str | None) -> None:
    authority = Authority()
    authority.run(flow.sign_in(attempt(settings=settings, bound_issuer=bound_issuer)))
    assert authority.seen[-1] == "token"


@pytest.mark.parametrize(
    ("challenge", "resource", "configured", "earlier", "requested"),
    [
        ((), None, None, (), ()),
        ((), ["read", "write"], None, (), ("read", "write")),
        (("admin",), ["read", "write"], None, (), ("admin",)),
        (("admin", "read"), None, None, ("read", "write"), ("read", "write", "admin")),
        ((), ["read"], None, ("write",), ("write", "read")),
        (("admin",), ["read"], ("own",), ("write",), ("own", "write", "admin")),
        (("admin",), ["read"], (), (), ("admin",)),
    ],
)
def test_scopes_are_those_of_the_challenge_else_of_the_resource_and_add_up(
    challenge: tuple[str, ...],
    resource: list[str] | None,
    configured: tuple[str, ...] | None,
    earlier: tuple[str, ...],
    requested: tuple[str, ...],
) -> None:
    authority = Authority(resource={"scopes_supported": resource})
    settings = OAuthConfig(client_id="app", scopes=configured)
    about = Challenge(scope=challenge, is_known=True)
    grant = authority.run(flow.sign_in(attempt(settings=settings, challenge=about, earlier_scopes=earlier)))
    assert grant.scopes == requested and authority.page.get("scope", "") == " ".join(requested)


# ── tokens that are bound to a key ──

PROOFS = {"dpop_signing_alg_values_supported": ["ES256"]}


@pytest.mark.parametrize("grant_kind", ["code", "client credentials"])
@pytest.mark.parametrize(
    ("dpop", "is_required", "type", "is_bound"),
    [
        ("never", False, "bearer", False),
        ("never", True, "bearer", False),
        ("never", False, "DPoP", False),
        ("always", False, "DPoP", True),
        ("auto", True, "DPoP", True),
        ("auto", False, "DPoP", True),
        # RFC 9449, section 5: it may give a bearer token all the same.
        ("auto", False, "bearer", False),
        ("always", False, "bearer", None),
        ("auto", True, "bearer", None),
    ],
)
def test_tokens_are_bound_to_the_key_where_they_have_to_be(
    grant_kind: str, dpop: str, is_required: bool, type: str, is_bound: bool | None
) -> None:
    authority = Authority(resource={"dpop_bound_access_tokens_required": is_required}, **PROOFS)
    authority.tokens["token_type"] = type
    settings = OAuthConfig(client_id="app", client_secret="hidden", dpop=dpop)
    asked = attempt(settings=settings, challenge=Challenge(is_known=True, is_dpop=True))
    steps = flow.sign_in(asked) if grant_kind == "code" else flow.client_credentials(asked)
    if is_bound is None:
        with pytest.raises(SignInFailed, match="not bound to a key"):
            authority.run(steps)
        return
    grant = authority.run(steps)
    assert bool(grant.dpop_key) is is_bound
    assert ("dpop" in authority.headers["token"]) is (dpop != "never")
    if is_bound and grant_kind == "code":
        assert authority.page["dpop_jkt"] == ProofKey(grant.dpop_key).thumbprint
    else:
        assert "dpop_jkt" not in authority.page or not is_bound


def test_refresh_proves_the_key_that_its_token_is_bound_to() -> None:
    key = ProofKey()
    client = OAuthClient(issuer=ISSUER, id="app")
    for written in ("", key.written):
        authority = Authority()
        grant = flow.RefreshGrant(f"{ISSUER}/token", client, "r", URL, written)
        tokens = authority.run(flow.refresh(grant, Credentials()))
        assert tokens.access_token == "a" and authority.seen == ["token"]
        assert authority.forms["token"] == {
            "grant_type": "refresh_token",
            "refresh_token": "r",
            "resource": URL,
            "client_id": "app",
        }
        proof = authority.headers["token"].get("dpop")
        assert (proof is None) is (written == "")
        if proof is not None:
            head = decode(base64.urlsafe_b64decode(proof.partition(".")[0] + "=="))
            assert head["jwk"]["x"] == decode(key.written)["x"] and "d" not in head["jwk"]


# ── without a user ──


def test_a_machine_signs_in_as_the_client_that_is_configured() -> None:
    authority = Authority()
    settings = OAuthConfig(client_id="app", client_secret="hidden", scopes=("read", "write"))
    grant = authority.run(flow.client_credentials(attempt(settings=settings, redirect_uri=None)))
    assert authority.seen == ["token"] and grant.scopes == ("read", "write") and grant.client.id == "app"
    assert authority.forms["token"] == {
        "grant_type": "client_credentials",
        "scope": "read write",
        "resource": URL,
    }
    assert authority.headers["token"]["authorization"] == "Basic " + base64.b64encode(b"app:hidden").decode()


def test_a_machine_without_a_client_registers_none() -> None:
    authority = Authority()
    with pytest.raises(SignInFailed, match="needs a client"):
        authority.run(flow.client_credentials(attempt(redirect_uri=None)))
    assert authority.seen == []


def test_token_is_revoked_by_its_client() -> None:
    request = flow.revoke(f"{ISSUER}/revoke", OAuthClient(issuer=ISSUER, id="app"), Credentials(), "r")
    assert (request.method, request.url) == ("POST", f"{ISSUER}/revoke")
    assert dict(parse_qsl((request.body or b"").decode())) == {"token": "r", "client_id": "app"}
