"""A server written with the official SDK that asks its client for everything there is, in either era.

Run as a script: `sdk_server.py`. Its first request decides the era, as the SDK has it.
"""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

MODERN = "2026-07-28"
PAGE = "https://example.test/sign-in"
server = MCPServer("sdk-server")


class Name(BaseModel):
    name: str


async def ask_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


async def ask_model() -> Sample:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="Say hello."))
    return Sample([question], max_tokens=16)


async def ask_roots() -> ListRoots:
    return ListRoots()


def _asks(question: ElicitRequest) -> InputRequiredResult:
    return InputRequiredResult(input_requests={"q": question}, request_state="asked")


def _answer(ctx: Context) -> ElicitResult | None:
    given = (ctx.input_responses or {}).get("q")
    return given if isinstance(given, ElicitResult) else None


async def _name(ctx: Context) -> str | InputRequiredResult:
    """The user's name, asked for by hand in the way of the era."""
    if ctx.protocol_version != MODERN:
        result = await ctx.elicit("Who are you?", Name)
        return result.data.name if result.action == "accept" else result.action
    answer = _answer(ctx)
    if answer is None:
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=Name.model_json_schema())
        return _asks(ElicitRequest(params=params))
    return str(answer.content["name"]) if answer.content else answer.action


@server.tool()
async def interview(
    name: Annotated[Name, Resolve(ask_name)],
    said: Annotated[CreateMessageResult, Resolve(ask_model)],
    roots: Annotated[ListRootsResult, Resolve(ask_roots)],
) -> str:
    assert isinstance(said.content, TextContent)
    return f"{name.name}; {said.content.text}; {[str(root.uri) for root in roots.roots]}"


@server.tool()
async def visit(ctx: Context) -> str | InputRequiredResult:
    if ctx.protocol_version != MODERN:
        return (await ctx.elicit_url("Please sign in.", PAGE, "e-1")).action
    answer = _answer(ctx)
    if answer is None:
        return _asks(ElicitRequest(params=ElicitRequestURLParams(message="Please sign in.", url=PAGE)))
    return answer.action


@server.tool()
async def ask_in_the_middle(ctx: Context) -> str:
    """Written as most servers are: for the legacy era, without a thought of the other."""
    result = await ctx.elicit("Who are you?", Name)
    return result.data.name if result.action == "accept" else result.action


@server.tool()
async def ask_and_return(ctx: Context) -> str | InputRequiredResult:
    """Written for the modern era alone."""
    answer = _answer(ctx)
    if answer is None:
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=Name.model_json_schema())
        return _asks(ElicitRequest(params=params))
    return str(answer.content["name"]) if answer.content else answer.action


@server.tool()
async def report(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


@server.prompt()
async def greet(ctx: Context) -> str | InputRequiredResult:
    return await _name(ctx)


@server.resource("greeting://{kind}")
async def greeting(kind: str, ctx: Context) -> str | InputRequiredResult:
    return await _name(ctx)


if __name__ == "__main__":
    server.run("stdio")
