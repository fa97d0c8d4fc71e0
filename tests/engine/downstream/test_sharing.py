"""Who shares a connection, as a table: two callers, a server, and whether they are served by one process."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.downstream.sharing import (
    Caller,
    connection_key,
    declared_capabilities,
    era_for,
    is_everyones,
    modern_caller,
    owner_of,
)
from mcp_workbench.engine.protocol.revisions import SpokenEras, newest

FORM, SAMPLING, ROOTS = b'{"elicitation":{}}', b'{"sampling":{}}', b'{"roots":{"listChanged":true}}'
FORM_AND_ROOTS = b'{"elicitation":{},"roots":{}}'
BOTH, LEGACY_ONLY, MODERN_ONLY = SpokenEras(True, True), SpokenEras.only("legacy"), SpokenEras.only("modern")


def server(eras: SpokenEras = BOTH, *, asks: bool = False, per_client: bool = False, **config: Any) -> ServerEntry:
    store: Any = None
    entry = ServerEntry("box", ServerConfig(name="server", command="run", **config), store)
    entry.eras, entry.asks = eras, asks
    entry.per_client = per_client or entry.per_client
    return entry


def anna(era: Any = "legacy", capabilities: bytes = b"{}", client: int = 1) -> Caller:
    return Caller("anna", era, capabilities, client)


def bert(era: Any = "legacy", capabilities: bytes = b"{}", client: int = 2) -> Caller:
    return Caller("bert", era, capabilities, client)


@pytest.mark.parametrize(
    ("entry", "first", "second", "alone", "among_many"),
    [
        # Each toolbox and each principal have their own, unless the server is everyone's.
        (server(), anna(), bert(), False, False),
        (server(share="everyone"), anna(), bert(), True, True),
        (server(share="everyone"), anna("legacy", FORM), bert("modern", SAMPLING), True, True),
        (server(share="user"), anna(), bert(), False, False),
        # Legacy: by what a server can tell of them.
        (server(LEGACY_ONLY), anna(client=1), anna(client=2), True, True),
        (server(LEGACY_ONLY), anna("legacy", FORM, 1), anna("legacy", FORM, 2), True, True),
        (server(LEGACY_ONLY), anna(capabilities=FORM), anna(capabilities=b'{"elicitation":{"form":{}}}'), True, True),
        (server(LEGACY_ONLY), anna(capabilities=FORM), anna(capabilities=SAMPLING), False, False),
        (server(LEGACY_ONLY), anna(capabilities=ROOTS), anna(), False, False),
        (server(LEGACY_ONLY, share="user"), anna(capabilities=ROOTS), anna(), True, True),
        (server(LEGACY_ONLY, share="user"), anna(capabilities=FORM), anna(capabilities=FORM_AND_ROOTS), True, True),
        (server(LEGACY_ONLY, share="user"), anna(capabilities=FORM), anna(), False, False),
        # Modern: each request carries its own.
        (server(MODERN_ONLY), anna("modern", FORM), anna("modern", SAMPLING, 2), True, True),
        (server(MODERN_ONLY), anna("modern", FORM), anna("legacy", SAMPLING, 2), True, True),
        # A legacy server that asks: one for each client that can be asked.
        (server(LEGACY_ONLY, asks=True), anna(capabilities=FORM), anna("legacy", FORM, 2), False, False),
        (server(LEGACY_ONLY, asks=True), anna(capabilities=SAMPLING), anna("legacy", SAMPLING, 2), False, False),
        (server(LEGACY_ONLY, asks=True), anna(capabilities=ROOTS), anna("legacy", ROOTS, 2), True, True),
        (server(LEGACY_ONLY, asks=True), anna("modern", FORM), anna("modern", FORM, 2), False, False),
        (server(MODERN_ONLY, asks=True), anna("modern", FORM), anna("modern", FORM, 2), True, True),
        (server(LEGACY_ONLY, asks=True, ask=False), anna(capabilities=FORM), anna("legacy", FORM, 2), True, True),
        # A server that keeps state: one for each client.
        (server(per_client=True), anna(), anna(client=2), False, False),
        (server(share="session"), anna("modern"), anna("modern", client=2), False, False),
        # A server of both eras: in that of the client; where there are several, for those that cannot be asked in one.
        (server(), anna("legacy"), anna("modern"), False, True),
        (server(), anna("legacy", FORM), anna("modern", FORM), False, False),
        (server(), anna("legacy", FORM), anna("modern"), False, False),
        (server(share="user"), anna("legacy", ROOTS), anna("modern"), False, True),
        (server(per_client=True), anna("legacy"), anna("modern"), False, False),
        (server(ask=False), anna("legacy", FORM), anna("modern", SAMPLING), True, True),
        # A setting decides about the era before anything else.
        (server(protocol="legacy"), anna("legacy"), anna("modern"), True, True),
        (server(protocol="2026-07-28"), anna("legacy", FORM), anna("modern"), True, True),
    ],
)  # fmt: skip
def test_callers_share_a_connection(
    entry: ServerEntry, first: Caller, second: Caller, alone: bool, among_many: bool
) -> None:
    for serves_many, is_shared in ((False, alone), (True, among_many)):
        keys = {connection_key(entry, each, serves_many=serves_many) for each in (first, second)}
        assert (len(keys) == 1) is is_shared, keys


def test_two_servers_are_never_one() -> None:
    assert connection_key(server(), anna()) != connection_key(server(), anna())


@pytest.mark.parametrize(
    ("agreed", "era", "capabilities", "client"), [("legacy", "legacy", FORM, 1), ("modern", "modern", b"", 0)]
)
def test_agreed_revision_decides_instead_of_what_was_expected(
    agreed: Any, era: str, capabilities: bytes, client: int
) -> None:
    for expected in ("legacy", "modern"):
        entry = server(asks=True, protocol=expected)
        key = connection_key(entry, anna(capabilities=b'{"elicitation":{"form":{}}}'), newest(agreed))
        assert (key.entry, key.principal, key.era, key.client) == (entry, "anna", era, client)
        assert bool(key.capabilities) is bool(capabilities)


@pytest.mark.parametrize(
    ("entry", "caller", "serves_many", "era"),
    [
        (server(), anna("legacy"), False, "legacy"),
        (server(), anna("modern", FORM), False, "modern"),
        (server(), anna("legacy"), True, "modern"),
        (server(), anna("legacy", FORM), True, "legacy"),
        (server(), anna("modern", FORM), True, "modern"),
        (server(per_client=True), anna("legacy"), True, "legacy"),
        (server(ask=False), anna("legacy", FORM), False, "modern"),
        (server(share="everyone"), anna("legacy", FORM), False, "modern"),
    ],
)
def test_era_is_that_of_the_client_unless_one_serves_all(
    entry: ServerEntry, caller: Caller, serves_many: bool, era: str
) -> None:
    assert era_for(entry, caller, serves_many=serves_many) == era


@pytest.mark.parametrize(
    ("entry", "declared", "owner"),
    [
        (server(), {b"elicitation", b"roots"}, "anna"),
        (server(share="session"), {b"elicitation", b"roots"}, "anna"),
        (server(share="user"), {b"elicitation"}, "anna"),
        (server(share="everyone"), set(), ""),
        (server(ask=False), set(), "anna"),
    ],
)
def test_a_server_is_told_of_what_it_may_use_and_whose_it_is(
    entry: ServerEntry, declared: set[bytes], owner: str
) -> None:
    said = declared_capabilities(entry, FORM_AND_ROOTS)
    assert {name for name in (b"elicitation", b"roots") if name in said} == declared
    assert owner_of(entry, "anna") == owner
    assert is_everyones(entry.config) is (owner == "")


def test_callers_of_modern_requests_are_made_once() -> None:
    first = modern_caller("anna", FORM, 1)
    assert modern_caller("anna", FORM, 1) is first
    assert (first.principal, first.era, first.capabilities, first.client) == ("anna", "modern", FORM, 1)
