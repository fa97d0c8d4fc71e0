"""Everything that the official SDK lets a server do, beyond what the conformance suite looks for.

The server of the conformance runs with more in it: titles, icons, annotations, output schemas, structured results,
links, pages to visit, resources that change, lists in pages, calls that can be cancelled. Each thing it says has
something in it that a middleman might lose. `python -m tests.support.everything_server [--era legacy|modern|both]`
serves it over stdio; tests also serve it within their process.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    ElicitRequest,
    EmbeddedResource,
    EmptyResult,
    Icon,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    UnsubscribeRequestParams,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from conformance.everything import resources as plain_resources
from conformance.everything.asking import Conversation, NeedsInput
from conformance.everything.media import PNG, WAV
from conformance.everything.prompts import Prompts
from conformance.everything.tools import Tools
from conformance.everything_server import EverythingServer, serve_stdio

Context = ServerRequestContext[Any, Any]
Run = Callable[[Context, CallToolRequestParams], Awaitable[CallToolResult]]

NAME: Final = "everything"
PAGE: Final = 7
ICONS: Final = [Icon(src=f"data:image/png;base64,{PNG}", mime_type="image/png", sizes=["1x1"])]
SEEN: Final = Annotations(audience=["user", "assistant"], priority=0.25, last_modified="2025-01-01T00:00:00Z")
META: Final = {"example.test/kept": {"nested": [1, None, "ü"]}}
OUTPUT: Final = {
    "type": "object",
    "$defs": {"degrees": {"$anchor": "degrees", "type": "number"}},
    "properties": {"city": {"type": "string"}, "temperature": {"$ref": "#/$defs/degrees"}},
    "required": ["city", "temperature"],
}
CITY: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}}
RICH_RESOURCE: Final = "rich://weather/now"
RICH_TEMPLATE: Final = "rich://weather/{city}{?unit}"


class Rich:
    """The tools and resources that are here alone, and what they change."""

    def __init__(self, bus: InMemorySubscriptionBus) -> None:
        self._bus = bus
        self._readings = 0
        self._subscribed: set[str] = set()
        self._roots_changed = 0
        self._cancelled = 0
        self._has_second = False
        self._tools: dict[str, tuple[Tool, Run]] = {
            tool.name: (tool, run)
            for tool, run in (
                (_tool("rich_weather", CITY, output_schema=OUTPUT), self._weather),
                (_tool("rich_content", NOTHING), self._content),
                (_tool("rich_error", NOTHING), self._error),
                (_tool("rich_page", NOTHING), self._page),
                (_tool("rich_sampling", NOTHING), self._sampling),
                (_tool("rich_update", NOTHING), self._update),
                (_tool("rich_resources", NOTHING), self._change_resources),
                (_tool("rich_wait", NOTHING), self._wait),
                (_tool("rich_counts", NOTHING), self._counts),
            )
        }

    # Tools

    def tools(self) -> list[Tool]:
        return [tool for tool, _ in self._tools.values()]

    def find(self, name: str) -> Run | None:
        found = self._tools.get(name)
        return None if found is None else found[1]

    async def _weather(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        value = {"city": (params.arguments or {})["city"], "temperature": 21.5}
        text = TextContent(text=f"{value}", annotations=SEEN, _meta=META)
        return CallToolResult(content=[text], structured_content=value, _meta={**META, "meta": _foreign(context)})

    async def _content(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        link = ResourceLink(
            uri=RICH_RESOURCE, name="now", title="Now", description="The weather now.", mime_type="text/plain", size=3
        )
        text = TextResourceContents(uri="rich://text", mime_type="text/plain", text="text", _meta=META)
        blob = BlobResourceContents(uri="rich://blob", mime_type="image/png", blob=PNG)
        return CallToolResult(
            content=[
                TextContent(text="Line one\nLine two ü 事 😀", annotations=SEEN, _meta=META),
                ImageContent(data=PNG, mime_type="image/png", annotations=SEEN),
                AudioContent(data=WAV, mime_type="audio/wav", _meta=META),
                link,
                EmbeddedResource(resource=text, annotations=SEEN),
                EmbeddedResource(resource=blob, _meta=META),
            ]
        )

    async def _error(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        raise MCPError(-32050, "failed as asked", {"why": [1, None, "ü"]})

    async def _page(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        page = {"mode": "url", "message": "Sign in.", "url": "https://example.test/in?a=1", "elicitationId": "page-1"}
        request = ElicitRequest.model_validate({"params": page})
        answers = await Conversation(context, params).ask({"page": request})
        return _text(answers["page"])

    async def _sampling(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        asked = {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}],
            "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 0.5},
            "systemPrompt": "Be brief.",
            "temperature": 0.1,
            "maxTokens": 5,
            "stopSequences": ["."],
            "metadata": {"a": [1]},
        }
        request = CreateMessageRequest.model_validate({"params": asked})
        answers = await Conversation(context, params).ask({"words": request})
        return _text(answers["words"])

    async def _update(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        self._readings += 1
        if RICH_RESOURCE in self._subscribed and not _is_modern(context):
            await context.session.send_resource_updated(RICH_RESOURCE)
        await self._bus.publish(ResourceUpdated(uri=RICH_RESOURCE))
        return _text("updated")

    async def _change_resources(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        self._has_second = not self._has_second
        if not _is_modern(context):
            await context.session.send_resource_list_changed()
        await self._bus.publish(ResourcesListChanged())
        return _text("changed")

    async def _wait(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        try:
            await anyio.sleep_forever()
        finally:
            self._cancelled += 1
        raise AssertionError("nobody waits that long")

    async def _counts(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        return _text({"rootsChanged": self._roots_changed, "cancelled": self._cancelled})

    # Resources

    async def list_resources(self, context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        names = ["now", *(["then"] if self._has_second else [])]
        own = [
            Resource(
                uri=f"rich://weather/{name}",
                name=name,
                title=name.title(),
                description="The weather.",
                mime_type="text/plain",
                size=3,
                icons=ICONS,
                annotations=SEEN,
                _meta=META,
            )
            for name in names
        ]
        return ListResourcesResult(resources=[*(await plain_resources.list_resources(context, params)).resources, *own])

    async def list_templates(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        own = ResourceTemplate(
            uri_template=RICH_TEMPLATE, name="weather", title="Weather", icons=ICONS, annotations=SEEN, _meta=META
        )
        plain = await plain_resources.list_templates(context, params)
        return ListResourceTemplatesResult(resource_templates=[*plain.resource_templates, own])

    async def read(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        if not params.uri.startswith("rich://weather/"):
            return await plain_resources.read_resource(context, params)
        text = f"{params.uri}: {self._readings}"
        contents = TextResourceContents(uri=params.uri, mime_type="text/plain", text=text, _meta=META)
        return ReadResourceResult(contents=[contents], _meta={**META, "meta": _foreign(context)})

    async def subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        self._subscribed.add(params.uri)
        return EmptyResult()

    async def unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._subscribed.discard(params.uri)
        return EmptyResult()

    async def roots_changed(self, context: Context, params: NotificationParams | None) -> None:
        self._roots_changed += 1


def build() -> EverythingServer:
    """The whole of it."""
    bus = InMemorySubscriptionBus()
    rich, prompts = Rich(bus), Prompts()
    plain = Tools(prompts, bus)

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        every = [*rich.tools(), *(await plain.list(context, None)).tools]
        start = int((params.cursor if params is not None else None) or 0)
        more = str(start + PAGE) if start + PAGE < len(every) else None
        return ListToolsResult(tools=every[start : start + PAGE], next_cursor=more)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        run = rich.find(params.name)
        if run is None:
            return await plain.call(context, params)
        try:
            return await run(context, params)
        except NeedsInput as needed:
            return needed.result

    async def list_prompts(context: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        city = PromptArgument(name="city", title="City", description="Where.", required=True)
        own = Prompt(name="rich_prompt", title="Rich", icons=ICONS, arguments=[city], _meta=META)
        return ListPromptsResult(prompts=[*(await prompts.list(context, params)).prompts, own])

    with warnings.catch_warnings():
        # Deprecated since the modern era, and still sent by legacy clients.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        server = EverythingServer(
            NAME,
            version="2.0",
            title="Everything",
            website_url="https://example.test",
            icons=ICONS,
            instructions="Everything that a server can do.",
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_prompts=list_prompts,
            on_get_prompt=prompts.get,
            on_list_resources=rich.list_resources,
            on_list_resource_templates=rich.list_templates,
            on_read_resource=rich.read,
            on_subscribe_resource=rich.subscribe,
            on_unsubscribe_resource=rich.unsubscribe,
            on_subscriptions_listen=ListenHandler(bus),
            on_completion=plain_resources.complete,
            on_set_logging_level=_set_level,
            on_roots_list_changed=rich.roots_changed,
        )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


async def _set_level(context: Context, params: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


def _tool(name: str, schema: dict[str, Any], **more: Any) -> Tool:
    return Tool(
        name=name,
        title=name.replace("_", " ").title(),
        description=f"What {name} does.",
        input_schema=schema,
        icons=ICONS,
        annotations=ToolAnnotations(title="Hint", read_only_hint=True, open_world_hint=False),
        _meta=META,
        **more,
    )


def _text(value: object) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=str(value))])


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _foreign(context: Context) -> dict[str, Any]:
    """What the client put into `_meta` itself."""
    meta: dict[str, Any] = dict(context.meta or {})
    return {key: value for key, value in meta.items() if not key.startswith("io.modelcontextprotocol/")}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="everything_server")
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="both", help="which clients are served")
    parsed = parser.parse_args(arguments)
    anyio.run(serve_stdio, build(), parsed.era)


if __name__ == "__main__":
    main(sys.argv[1:])
