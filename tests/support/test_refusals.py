"""What is asserted of refusals, tried with one beside which something else happens."""

from __future__ import annotations

import pytest

from tests.bridge.in_process import META, Request, in_process_workbench
from tests.support.refusals import refused

LOUD = {META + "logLevel": "loud"}


@pytest.mark.parametrize("beside", ["a call", "a subscription of another client", "nothing"])
async def test_side_effects_of_a_refusal_are_noticed(beside: str) -> None:
    async with in_process_workbench("modern") as workbench:
        client, other = workbench.client("modern"), workbench.client("legacy")
        await workbench.connect(client)

        def send() -> Request:
            if beside == "a call":
                client.call()
            elif beside != "nothing":
                other.session.subscriptions["test:///one"] = None  # type: ignore[assignment]
            return client.call(meta=LOUD)

        if beside == "nothing":
            await refused(workbench, send, -32602)
            return
        with pytest.raises(AssertionError):
            await refused(workbench, send, -32602)
        other.session.subscriptions.clear()
