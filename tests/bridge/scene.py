"""A modern client in front of a legacy server: the scene of every parked call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp_workbench.config.model import FaceName
from tests.bridge.conversation import FORM
from tests.bridge.played_server import PlayedServer
from tests.bridge.stage import Client, Json, Request, Stage, staged, until

YES: Json = {"action": "accept", "content": {"name": "Ada"}}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}


class Scene:
    """A modern client, a legacy server, and what is between them."""

    def __init__(self, stage: Stage, client: Client, server: PlayedServer) -> None:
        self.stage = stage
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
async def scene(face: FaceName = "flat") -> AsyncIterator[Scene]:
    async with staged("legacy", face=face) as stage:
        client = stage.client("modern")
        yield Scene(stage, client, await stage.connect(client))


def keys(request: Request) -> list[str]:
    return list(request.result["inputRequests"])


def answered(request: Request, answer: Json = YES) -> dict[str, Json]:
    return dict.fromkeys(keys(request), answer)
