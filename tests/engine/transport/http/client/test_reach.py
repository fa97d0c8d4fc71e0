"""From where addresses can be reached, in every spelling."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.transport.http.client.reach import Reach, reach_of_host, reach_of_ip

HERE = [
    "127.0.0.1",
    "127.8.9.10",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "0.0.0.0",
    "0",
    "0.1.2.3",
    "127.0.0.1.",
    "１２７.0.0.1",
    "127。0。0。1",
    "localhost",
    "LOCALHOST.",
    "app.localhost",
    "::1",
    "[::1]",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:0.0.0.0",
    "::127.0.0.1",
    "64:ff9b::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "2002:7f00:1::",
    "224.0.0.1",
    "ff02::1",
]
PRIVATE = [
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "192.168.1.1",
    "0xc0a80101",
    "100.64.0.1",
    "fd00::1",
    "::ffff:10.0.0.1",
    "fec0::1",
]
LINK = ["169.254.169.254", "2852039166", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"]
PUBLIC = ["1.1.1.1", "16843009", "8.8.8.8", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize(
    ("host", "reach"),
    [
        (host, reach)
        for hosts, reach in (
            (HERE, Reach.THIS_MACHINE),
            (PRIVATE, Reach.PRIVATE),
            (LINK, Reach.LINK_LOCAL),
            (PUBLIC, Reach.PUBLIC),
        )
        for host in hosts
    ],
)
def test_every_spelling_of_an_address_has_the_reach_of_the_address(host: str, reach: Reach) -> None:
    assert reach_of_host(host) is reach


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1.nip.io", "localhost.example.com", "1.2.3.4.5", "0x", "a:b"])
def test_the_reach_of_a_name_is_not_known_from_its_spelling(host: str) -> None:
    assert reach_of_host(host) is None


def test_addresses_with_a_scope_are_read() -> None:
    assert reach_of_ip("fe80::1%eth0") is Reach.LINK_LOCAL
