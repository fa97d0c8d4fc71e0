"""Which hosts a server may reach."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.sandbox.egress_rules import EgressRules

RULES = EgressRules(("other.org", "api.github.com", "*.example.com", "odd.net:8443", "10.1.2.3", "fd00::/8"))


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("api.github.com", 443),
        ("API.GITHUB.COM.", 80),
        ("a.b.example.com", 443),
        ("odd.net", 8443),
        ("10.1.2.3", 5432),
        ("fd00::1", 443),
    ],
)
def test_listed_hosts_are_allowed(host: str, port: int) -> None:
    assert RULES.refusal(host, port) is None


@pytest.mark.parametrize(
    ("host", "port", "entry"),
    [
        ("github.com", 443, "github.com"),
        ("example.com", 443, "example.com"),
        ("notexample.com", 443, "notexample.com"),
        ("api.github.com.evil.net", 443, "api.github.com.evil.net"),
        ("api.github.com", 22, "api.github.com:22"),
        ("odd.net", 443, "odd.net"),
        ("10.1.2.4", 443, "10.1.2.4"),
        ("1.1.1.1", 53, "1.1.1.1:53"),
        ("fe80::1", 8080, "[fe80::1]:8080"),
        ("localhost", 80, "localhost"),
        # Spellings of addresses that a resolver would take, and what is no name.
        ("127.1", 80, ""),
        ("0x7f000001", 80, ""),
        ("2130706433", 80, ""),
        ("a.localhost", 80, ""),
        ("a b", 80, ""),
        ("a\0.example.com", 443, ""),
        ("fe80::2%eth0.100", 80, "[fe80::2%eth0.100]"),
        ("fe80::1%\x1b[31m", 80, ""),
        ("::1%" + "a" * 10_000, 80, ""),
    ],
)
def test_refused_hosts_come_with_the_setting_that_allows_them(host: str, port: int, entry: str) -> None:
    refusal = RULES.refusal(host, port)
    assert refusal is not None and refusal.entry == entry
    if entry:
        assert EgressRules(("other.org", entry)).refusal(host, port) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "10.9.9.9", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0"])
def test_a_listed_name_must_not_lead_into_the_users_own_network(address: str) -> None:
    refusal = RULES.address_refusal("api.github.com", 443, address)
    assert refusal is not None and refusal.entry == address and f"`{address}`" in refusal.reason
    assert EgressRules(("api.github.com", address)).address_refusal("api.github.com", 443, address) is None
    assert RULES.address_refusal("api.github.com", 443, "140.82.112.3") is None


def test_this_machine_is_reached_by_its_name_if_that_is_listed() -> None:
    rules = EgressRules(("other.org", "localhost:8080"))
    assert rules.refusal("localhost", 8080) is None and rules.refusal("localhost", 80) is not None
    assert rules.address_refusal("localhost", 8080, "127.0.0.1") is None
    assert rules.address_refusal("localhost", 8080, "10.0.0.1") is not None
    assert rules.names_this_machine and not RULES.names_this_machine
    assert EgressRules(("a.com", "127.0.0.1")).names_this_machine
