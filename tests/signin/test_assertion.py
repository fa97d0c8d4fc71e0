"""Machines that sign in with a key: the assertion of RFC 7523, section 2.2."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin.assertion import ASSERTION_TYPE, Credentials, sign
from mcp_workbench.signin.flow_io import SignInFailed
from tests.signin.authority import sign_in_setup

pytestmark = pytest.mark.processes

KEYS: dict[str, Any] = {
    "RS256": RSAKey.generate_key(2048),
    "ES256": ECKey.generate_key("P-256"),
    "ES384": ECKey.generate_key("P-384"),
    "EdDSA": OKPKey.generate_key("Ed25519"),
}


def pem(key: Any) -> str:
    written: bytes = key.as_pem(private=True)
    return written.decode()


@pytest.mark.requirement("signin.machines")
async def test_a_machine_authenticates_with_its_key(tmp_path: Path) -> None:
    settings = OAuthConfig(client_id="robot", private_key=pem(KEYS["ES256"]), grant="client_credentials", key_id="k1")
    async with sign_in_setup(tmp_path, settings) as at:
        assert await at.call() == 200
        at.authority.expire()
        assert await at.call() == 200
        first, second = at.authority.token_requests
        assert first["client_assertion_type"] == ASSERTION_TYPE and first["client_id"] == "robot"
        assert "client_secret" not in first and "authorization" not in at.authority.token_headers[0]
        found = jwt.decode(first["client_assertion"], KEYS["ES256"], algorithms=["ES256"])
        assert found.header == {"alg": "ES256", "typ": "JWT", "kid": "k1"}
        assert found.claims.items() >= {"iss": "robot", "sub": "robot", "aud": at.authority.origin}.items()
        assert found.claims["iat"] <= time.time() < found.claims["exp"] <= time.time() + 120
        again = jwt.decode(second["client_assertion"], KEYS["ES256"], algorithms=["ES256"])
        assert again.claims["jti"] != found.claims["jti"], "each is good for one use"


@pytest.mark.parametrize("algorithm", KEYS)
def test_the_algorithm_follows_from_the_key(algorithm: str) -> None:
    key = KEYS[algorithm]
    for written in (pem(key), f"\n{pem(key)}\n"):
        token = sign(Credentials(private_key=written), "robot", "https://as.example", time.time())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert jwt.decode(token, key, algorithms=[algorithm]).header["alg"] == algorithm


def test_a_key_may_be_written_as_jwk() -> None:
    import json

    key = KEYS["ES256"]
    written = json.dumps({**key.as_dict(private=True), "kid": "own"})
    token = sign(Credentials(private_key=written), "robot", "https://as.example", time.time())
    assert jwt.decode(token, key, algorithms=["ES256"]).header["kid"] == "own"


def test_another_algorithm_can_be_asked_for() -> None:
    key = KEYS["RS256"]
    token = sign(Credentials(private_key=pem(key), algorithm="PS256"), "robot", "https://as.example", time.time())
    assert jwt.decode(token, key, algorithms=["PS256"]).claims["iss"] == "robot"


@pytest.mark.parametrize(
    ("written", "algorithm", "words"),
    [
        ("hunter2", None, "`privateKey` is not a private key that can be used"),
        ("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----", None, "is not a private key"),
        ('{"kty": "hunter2"}', None, "is not a private key"),
        ("{hunter2", None, "is not a private key"),
        (KEYS["ES256"].as_pem(private=False).decode(), None, "is not a private key"),
        (pem(KEYS["ES256"]), "RS256", "`privateKey` cannot sign with RS256"),
    ],
)
def test_a_key_that_cannot_be_used_is_not_quoted(written: str, algorithm: str | None, words: str) -> None:
    with pytest.raises(SignInFailed) as told:
        sign(Credentials(private_key=written, algorithm=algorithm), "robot", "https://as.example", time.time())
    assert words in str(told.value) and told.value.hint
    assert "hunter2" not in str(told.value) + told.value.hint


def test_without_the_library_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(SignInFailed, match="`joserfc`, which is not installed") as told:
        sign(Credentials(private_key=pem(KEYS["ES256"])), "robot", "https://as.example", time.time())
    assert "`pip install joserfc`" in (told.value.hint or "")
