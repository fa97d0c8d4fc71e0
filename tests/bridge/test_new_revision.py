"""A revision that does not exist yet is one new value, and its clients and servers are served like all others."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.protocol.revisions import KNOWN, Revision
from tests.bridge.in_process import META, MODERN_VERSION, in_process_workbench, until
from tests.bridge.modern_to_legacy import DONE

NEXT = "2027-06-30"
VERSION = META + "protocolVersion"


@pytest.fixture(autouse=True)
def _next_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN, NEXT, Revision(NEXT))


@pytest.mark.bridge("version")
@pytest.mark.parametrize("client_version", ["2025-11-25", MODERN_VERSION, NEXT])
@pytest.mark.parametrize("server_versions", [(), (MODERN_VERSION,), (NEXT,), (MODERN_VERSION, NEXT)])
async def test_a_plain_call_goes_through(client_version: str, server_versions: tuple[str, ...]) -> None:
    """Each server refuses requests that are stamped with a revision that it does not speak."""
    async with in_process_workbench("modern" if server_versions else "legacy", versions=server_versions) as workbench:
        client = workbench.client("legacy" if client_version < MODERN_VERSION else "modern")
        client.version = client_version
        server = await workbench.connect(client)
        request = client.call(meta={"kept": 1, "progressToken": "theirs"})
        stamped = server.call["params"].get("_meta", {})
        assert stamped.get(VERSION) == (max(server_versions) if server_versions else None)
        assert stamped["kept"] == 1
        server.reply(server.call, DONE)
        assert request.result["content"] == DONE["content"]
        assert ("resultType" in request.result) == (client.era == "modern")


@pytest.mark.bridge("version")
async def test_it_is_offered_to_clients_and_unknown_ones_are_still_refused() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        client.version = NEXT
        found = client.send_request("server/discover")
        await until(lambda: found.answer is not None)
        assert found.result["supportedVersions"] == [MODERN_VERSION, NEXT]
        # Nobody else uses this one: what a stamp says is remembered.
        client.version = "2039-01-01"
        refused = client.send_request("tools/list").error
        assert refused["code"] == -32022 and refused["data"]["supported"] == [MODERN_VERSION, NEXT]


@pytest.mark.bridge("one-era-only")
async def test_missing_methods_are_answered_by_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference is a field of the value: one that has `ping` again answers it, and the others still do not."""
    # Another name: what a stamp says is remembered.
    later = "2028-06-30"
    monkeypatch.setitem(KNOWN, later, Revision(later, removed_methods=frozenset()))
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        assert client.send_request("ping").error["code"] == -32601
        client.version = later
        assert client.send_request("ping").result["resultType"] == "complete"
