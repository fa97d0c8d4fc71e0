"""A small server as people write them with the official SDK's decorators: typed arguments, typed results, an image.

Run as a script: `sdk_servers.py`. Its first request decides the era, as the SDK has it.
"""

from __future__ import annotations

import asyncio

import mcp_types as types
from mcp.server.mcpserver import Context, Image, MCPServer
from opentelemetry import trace
from pydantic import BaseModel, Field

server = MCPServer("sdk-weather", instructions="Ask about the weather.")


class Weather(BaseModel):
    """What the weather is like."""

    city: str
    degrees: float = Field(description="In Celsius.")
    gusts: list[float] = []
    comment: str | None = None


@server.tool(title="Add two numbers", annotations=types.ToolAnnotations(read_only_hint=True))
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def weather(city: str) -> Weather:
    """The weather in a city."""
    return Weather(city=city, degrees=21.5, gusts=[1.5, 2.25])


@server.tool()
def picture() -> Image:
    """A very small picture."""
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Reports its progress."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@server.tool()
def span() -> str:
    """The span that the SDK takes for the parent of this call."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x} {context.span_id:016x}"


@server.tool()
async def wait() -> str:
    """Waits for its cancellation."""
    await asyncio.sleep(600)
    return "never"


@server.tool()
def everything() -> types.CallToolResult:
    """Content of every kind, with everything around it."""
    meta = {"example.test/kept": {"nested": [1, None, "ü"]}}
    seen = types.Annotations(audience=["user"], priority=0.25)
    text = types.TextResourceContents(uri="test://text", mime_type="text/plain", text="é 事 😀")
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="Line one\nLine two", annotations=seen, _meta=meta),
            types.AudioContent(type="audio", data="YXVkaW8=", mime_type="audio/wav"),
            types.ResourceLink(type="resource_link", uri="test://link", name="link", size=3),
            types.EmbeddedResource(type="resource", resource=text),
        ],
        structured_content={"big": 2**60, "float": 1e-7, "null": None},
        _meta=meta,
    )


if __name__ == "__main__":
    server.run("stdio")
