"""A result that is too large for the event loop is searched and rewritten in a thread, and says the same."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.session import client_call
from tests.bridge.in_process import in_process_workbench, until

LARGE = 1000


@pytest.mark.parametrize("size", [LARGE // 2, 2 * LARGE])
@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("is_error", [False, True])
async def test_a_failure_names_its_tool_whatever_its_size(
    size: int, is_changed: bool, is_error: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_call, "LARGE_RESULT", LARGE)
    async with in_process_workbench("legacy", face="proxy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        for _ in range(2):
            if is_changed:
                client.session.view.changed["box"] = "changed"
            request = client.call()
            server.reply(server.call, {"content": [{"type": "text", "text": "x" * size}], "isError": is_error})
            await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
            first, *notes = [block["text"] for block in request.result["content"]]
            assert (first[:-size], first[-size:]) == ("[box/server/work] " if is_error else "", "x" * size)
            assert len(notes) == is_changed
