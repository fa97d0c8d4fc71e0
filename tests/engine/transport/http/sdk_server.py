"""A server made with the official SDK, for both eras and every HTTP transport it has."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


class Colour(BaseModel):
    """What the tool `ask` wants to know."""

    colour: str


def make_server(cancelled: asyncio.Event | None = None) -> MCPServer[Any]:
    """Tools for everything that travels in its own way. `cancelled` is set when `wait` is."""
    server: MCPServer[Any] = MCPServer("sdk-server")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def count(ctx: Context[Any, Any], to: int) -> str:
        for number in range(to):
            await ctx.report_progress(number + 1, to)
        return "done"

    @server.tool()
    async def ask(ctx: Context[Any, Any]) -> str:
        answer = await ctx.elicit("Which colour?", Colour)
        return answer.model_dump_json()

    @server.tool()
    async def wait() -> str:
        try:
            await asyncio.sleep(60)
        except BaseException:
            if cancelled is not None:
                cancelled.set()
            raise
        return "never"

    return server
