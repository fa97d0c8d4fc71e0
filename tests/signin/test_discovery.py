"""Where metadata is looked for."""

from __future__ import annotations

import pytest

from mcp_workbench.signin.challenge import Challenge
from mcp_workbench.signin.discovery import resource_metadata_urls, server_metadata_urls

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@pytest.mark.requirement("signin.discovery")
@pytest.mark.parametrize(
    ("url", "named", "places"),
    [
        ("https://a.example/mcp", None, [f"https://a.example{RESOURCE}/mcp", f"https://a.example{RESOURCE}"]),
        ("https://a.example", None, [f"https://a.example{RESOURCE}"]),
        ("https://a.example/mcp?x=1", None, [f"https://a.example{RESOURCE}/mcp?x=1", f"https://a.example{RESOURCE}"]),
        ("https://me:pass@a.example/", None, [f"https://a.example{RESOURCE}"]),
        (
            "https://a.example/mcp",
            "https://a.example/told",
            ["https://a.example/told", f"https://a.example{RESOURCE}/mcp", f"https://a.example{RESOURCE}"],
        ),
        (
            "https://a.example/mcp",
            f"https://a.example{RESOURCE}",
            [f"https://a.example{RESOURCE}", f"https://a.example{RESOURCE}/mcp"],
        ),
    ],
)
def test_metadata_of_a_resource_is_where_its_challenge_says_then_at_its_path_then_at_its_root(
    url: str, named: str | None, places: list[str]
) -> None:
    assert resource_metadata_urls(url, Challenge(named)) == places


@pytest.mark.requirement("signin.discovery")
@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        ("https://auth.example", [f"https://auth.example{SERVER}", f"https://auth.example{OPENID}"]),
        ("https://auth.example/", [f"https://auth.example{SERVER}", f"https://auth.example{OPENID}"]),
        (
            "https://auth.example/tenant1",
            [
                f"https://auth.example{SERVER}/tenant1",
                f"https://auth.example{OPENID}/tenant1",
                f"https://auth.example/tenant1{OPENID}",
            ],
        ),
    ],
)
def test_metadata_of_an_authorization_server_is_looked_for_in_the_order_of_the_specification(
    issuer: str, places: list[str]
) -> None:
    assert server_metadata_urls(issuer) == places
