"""Hosts as they are written in `network`."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from mcp_workbench.engine.config.host_names import BadHost, HostName, parse_host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("api.github.com", HostName("api.github.com")),
        ("API.GitHub.com.", HostName("api.github.com")),
        ("*.example.com:8443", HostName("example.com", is_wildcard=True, port=8443)),
        ("bücher.de", HostName("xn--bcher-kva.de")),
        ("localhost:5432", HostName("localhost", port=5432)),
        ("10.0.0.0/8", HostName(addresses=ip_network("10.0.0.0/8"))),
        ("127.0.0.1:80", HostName(addresses=ip_network("127.0.0.1"), port=80)),
        ("::1", HostName(addresses=ip_network("::1"))),
        ("[::1]:80", HostName(addresses=ip_network("::1"), port=80)),
        ("[::1]", HostName(addresses=ip_network("::1"))),
    ],
)
def test_names_wildcards_ports_and_addresses_are_read(text: str, host: HostName) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://api.github.com", "without `https://`"),
        ("api.github.com/repos", "without a path"),
        ("api.*.com", "a host such as"),
        ("*", "a host such as"),
        ("*.com", "at least a domain"),
        ("a.com:0", "a port from 1"),
        ("a.com:http", "a port from 1"),
        ("a b.com", "a host such as"),
        ("-a.com", "a host such as"),
        ("a" * 64 + ".com", "a host such as"),
        ("", "a host such as"),
        ("user@a.com", "a host such as"),
    ],
)
def test_invalid_host_is_refused_with_the_expected_form(text: str, expected: str) -> None:
    with pytest.raises(BadHost, match=expected):
        parse_host(text)
