"""A modern client in front of a legacy server: where calls are parked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp_workbench.engine.config.model import FaceName
from tests.bridge.conversation import FORM
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import Client, InProcessWorkbench, Json, Request, in_process_workbench, until

YES: Json = {"action": "accept", "content": {"name": "Ada"}}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}


class ModernToLegacy:
    """A modern client, a legacy server, and what is between them."""

    def __init__(self, workbench: InProcessWorkbench, client: Client, server: FakeServer) -> None:
        self.workbench = workbench
        self.client = client
        self.server = server

    async def ask(self, *questions: tuple[str, Json], request: Request | None = None) -> tuple[Request, list[str]]:
        """A call that is parked with these questions; returns it and the server's ids of the questions."""
        request = request or self.client.call()
        ids = [self.server.ask(*question) for question in questions or [("elicitation/create", FORM)]]
        await until(lambda: request.answer is not None)
        assert request.result["resultType"] == "input_required"
        return request, ids


@asynccontextmanager
async def modern_to_legacy(face: FaceName = "flat") -> AsyncIterator[ModernToLegacy]:
    async with in_process_workbench("legacy", face=face) as workbench:
        client = workbench.client("modern")
        yield ModernToLegacy(workbench, client, await workbench.connect(client))


def keys(request: Request) -> list[str]:
    return list(request.result["inputRequests"])


def answered(request: Request, answer: Json = YES) -> dict[str, Json]:
    return dict.fromkeys(keys(request), answer)
