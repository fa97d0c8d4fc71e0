"""Large arguments on their way to a server: given to its link in parts, so that nothing joins them."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import ERAS, in_process_workbench

SMALL, LARGE = "x" * 1000, "x" * (JOIN_BELOW + 1)


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
async def test_a_large_call_is_sent_in_parts_and_arrives_whole(
    client_era: str, server_era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[int]] = []
    original = FakeServer.send

    def send(self: FakeServer, *parts: Part, about: bytes | None = None) -> None:
        sent.append([len(part) for part in parts])
        original(self, *parts, about=about)

    monkeypatch.setattr(FakeServer, "send", send)
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        server.received.clear()
        for number, text in enumerate([SMALL, LARGE]):
            sent.clear()
            client.call(arguments={"a": text})
            received = server.requests("tools/call")[number]
            assert received["params"]["arguments"] == {"a": text}
            assert ("_meta" in received["params"]) == (server_era == "modern")
            ((*before, _),) = sent
            # The arguments are a part, and what stands before and after them others.
            assert len(before) == (0 if text is SMALL else 3)
        (connection,) = workbench.gateway.runtime.pool.connections()
        assert connection.traffic.bytes_sent > len(SMALL) + len(LARGE)
