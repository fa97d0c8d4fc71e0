"""A server that refuses the revision of `server/discover` and names one that we speak is asked once more."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol.constants import UNSUPPORTED_PROTOCOL_VERSION
from tests.engine.protocol.test_handshake import DISCOVERED, INITIALIZED, Server
from tests.engine.protocol.test_handshake import refusal as refused


def refusal(*supported: str) -> RemoteError:
    return refused(UNSUPPORTED_PROTOCOL_VERSION, {"supported": supported, "requested": "2026-07-28"})


def after(first: object) -> Any:
    answers = iter((first, DISCOVERED))
    return lambda: next(answers)


@pytest.mark.parametrize("choice", ["auto", "modern"])
async def test_it_is_connected_in_the_revision_that_it_named(choice: str) -> None:
    server = Server(discover=after(refusal("2024-01-01", "2026-07-28")))
    profile = await server.handshake(choice)
    assert profile.era == "modern"
    assert server.methods == ["server/discover", "server/discover"]


async def test_one_that_names_only_legacy_revisions_is_shaken_hands_with() -> None:
    server = Server(discover=after(refusal("2025-11-25")), initialize=INITIALIZED)
    profile = await server.handshake()
    assert profile.era == "legacy"
    assert server.methods == ["server/discover", "initialize"]


async def test_one_that_refuses_again_is_not_asked_a_third_time() -> None:
    server = Server(discover=refusal("2026-07-28"), initialize=INITIALIZED)
    profile = await server.handshake()
    assert profile.era == "legacy"
    assert server.methods == ["server/discover", "server/discover", "initialize"]
