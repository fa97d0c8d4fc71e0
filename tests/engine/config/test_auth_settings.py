"""Settings about who may call over HTTP: what they mean, and what is wrong with others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.engine.config import auth_settings
from mcp_workbench.engine.config.auth_settings import SAFE_ALGORITHMS, ForwardedIdentityConfig, TokenExchangeConfig
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.problems import ConfigProblems
from mcp_workbench.engine.transport.http.client import address
from mcp_workbench.engine.transport.http.server.admission import LOOPBACK_NAMES

ISSUER = {"issuer": "https://id.example.com", "publicUrl": "https://tools.example.com/mcp"}
PROXY = {"peers": "10.0.0.1", "secret": "s3cret-of-the-proxy"}


def loaded(server: dict[str, Any] | None = None, **settings: Any) -> WorkbenchConfig:
    entry = {"url": "https://server.example.com/mcp", **(server or {})}
    document = {"toolboxes": {"box": {"description": "A box.", "mcpServers": {"server": entry}}}, **settings}
    return parse(json.dumps(document).encode(), "c.json", {"SECRET": "from-the-environment"})


def test_an_identity_provider_with_every_default() -> None:
    auth = loaded(auth=ISSUER).auth
    assert auth is not None and auth.public_url == ISSUER["publicUrl"]
    (issuer,) = auth.issuers
    assert (issuer.principal, issuer.groups, issuer.clock_skew) == ("sub", "groups", 60.0)
    assert issuer.algorithms == SAFE_ALGORITHMS and not any(name.startswith("HS") for name in SAFE_ALGORITHMS)
    assert issuer.audience == ()


def test_several_providers_share_one_address() -> None:
    other = {"issuer": "https://other.example.com", "audience": ["a", "b"], "clockSkew": 0}
    auth = loaded(auth=[ISSUER, other]).auth
    assert auth is not None and [each.issuer for each in auth.issuers] == [ISSUER["issuer"], other["issuer"]]
    assert auth.issuers[1].audience == ("a", "b") and auth.issuers[1].clock_skew == 0


def test_secrets_come_from_variables_and_are_hidden() -> None:
    introspection = {"introspection": "https://id.example.com/i", "clientId": "we", "clientSecret": "${SECRET}"}
    config = loaded(auth={**ISSUER, **introspection}, trustedProxy=PROXY)
    assert config.auth is not None and config.auth.issuers[0].client_secret == "from-the-environment"
    assert "from-the-environment" in config.secrets and PROXY["secret"] in config.secrets


def test_headers_of_a_proxy_are_compared_in_lower_case() -> None:
    proxy = loaded(trustedProxy={**PROXY, "peers": ["10.0.0.0/8", "unix:www-data"], "header": "X-User"}).trusted_proxy
    assert proxy is not None and proxy.header == "x-user" and proxy.peers == ("10.0.0.0/8", "unix:www-data")


def test_identity_forwarded_to_servers() -> None:
    def server(**settings: Any) -> Any:
        return loaded(settings).toolboxes["box"].servers["server"]

    assert server(forwardIdentity=True).forward_identity == ForwardedIdentityConfig()
    assert server(forwardIdentity=False).forward_identity is None
    assert server(forwardIdentity={"header": "X-Who", "audience": "a"}).forward_identity == ForwardedIdentityConfig(
        header="x-who", audience="a"
    )
    assert server(tokenExchange={"audience": "a", "scopes": ["s"]}).token_exchange == TokenExchangeConfig(
        audience="a", scopes=("s",)
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"auth": 7}, "expected an identity provider with `issuer`"),
        ({"auth": [ISSUER, "x"]}, "expected an identity provider with `issuer`"),
        ({"auth": {}}, "`issuer` is missing"),
        ({"auth": {"issuer": "https://id.example.com"}}, "found no `publicUrl`"),
        ({"auth": []}, "found no `publicUrl`"),
        ({"auth": {**ISSUER, "issuer": "http://id.example.com"}}, "expected an https:// address"),
        ({"auth": {**ISSUER, "issuer": "https://me:secret@id.example.com"}}, "expected an https:// address"),
        ({"auth": {**ISSUER, "jwks": "ftp://id.example.com"}}, "found an address with"),
        ({"auth": {**ISSUER, "publicUrl": "https://tools.example.com/mcp#x"}}, "expected an https:// address"),
        ({"auth": {**ISSUER, "algorithms": ["none"]}}, "expected one of `RS256`"),
        ({"auth": {**ISSUER, "algorithms": ["HS256"]}}, "expected one of `RS256`"),
        ({"auth": {**ISSUER, "introspection": "https://id.example.com/i"}}, "found `introspection` alone"),
        ({"auth": {**ISSUER, "isuer": "x"}}, "unknown key `isuer`"),
        ({"auth": [ISSUER, ISSUER]}, "found the issuer"),
        ({"auth": [ISSUER, {"issuer": "https://b.example", "publicUrl": "https://b.example/mcp"}]}, "more than one"),
        ({"trustedProxy": 7}, "expected a proxy with"),
        ({"trustedProxy": {"secret": "s"}}, "`peers` is missing"),
        ({"trustedProxy": {"peers": "10.0.0.1"}}, "found neither `secret` nor `certificate`"),
        ({"trustedProxy": {**PROXY, "peers": "the-proxy"}}, "expected addresses or networks"),
        ({"trustedProxy": {**PROXY, "header": "authorization"}}, "expected the name of a header of its own"),
        ({"trustedProxy": {**PROXY, "header": "Mcp-Session-Id"}}, "expected the name of a header of its own"),
        ({"trustedProxy": {**PROXY, "header": "a b"}}, "expected the name of a header of its own"),
        ({"server": {"tokenExchange": {}}}, "found neither `audience` nor `resource`"),
        ({"server": {"tokenExchange": True}}, "expected an object with `audience` or `resource`"),
        (
            {"server": {"forwardIdentity": {}, "share": "everyone"}},
            "found `forwardIdentity` beside `share`: `everyone`",
        ),
        (
            {"server": {"tokenExchange": {"audience": "a"}, "share": "everyone"}},
            "found `tokenExchange` beside `share`: `everyone`",
        ),
        ({"server": {"forwardIdentity": "yes"}}, "expected `true`, or an object"),
    ],
)
def test_every_kind_of_mistake_is_reported(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigProblems) as raised:
        loaded(**settings)
    assert said in str(raised.value)


def test_this_machine_has_the_same_names_in_every_layer() -> None:
    """Settings and transports cannot import each other."""
    assert auth_settings.LOOPBACK == address.LOOPBACK == {name.strip("[]") for name in LOOPBACK_NAMES}
