"""Everything that the official SDK's client can do with a server, written down.

Owns the script and what is recorded of it. The same script runs against the server itself and through each face; names
and the places where faces differ on purpose are `Address`'s business.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import anyio
from mcp import Client
from mcp.client._transport import Transport
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.types import (
    CallToolResult,
    ContentBlock,
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    Root,
    TextContent,
)
from pydantic import BaseModel, FileUrl

from tests.support.everything_server import RICH_RESOURCE, RICH_TEMPLATE

Json = dict[str, Any]
STAMPS = ("resultType", "ttlMs", "cacheScope")
# Tools without arguments that answer at once.
PLAIN_CALLS = (
    "rich_content",
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
)
URIS = (
    "test://static-text",
    "test://static-binary",
    "test://template/7/data",
    RICH_RESOURCE,
    "rich://weather/Rome?unit=c",
)
PATIENCE = 30.0
# Of `open_toolbox`: everything that the server wrote, however long.
WHOLE: Json = {"detail": "full", "budget": None}


class Address:
    """What things are called in front of a face; without a face, what their server calls them."""

    def __init__(self, face: str | None) -> None:
        self.face = face
        self._prefix = {"flat": "box:server:", "dynamic": "box__server_", "proxy": "box/server/", None: ""}[face]

    def shown(self, own: str) -> str:
        return self._prefix + own

    def own(self, shown: str) -> str:
        assert shown.startswith(self._prefix)
        return shown.removeprefix(self._prefix)

    def call(self, tool: str, arguments: Json) -> tuple[str, Json]:
        if self.face == "proxy":
            path = {"toolbox": "box", "server": "server", "tool": tool}
            return "use_tool", {"tool": path, "arguments": arguments}
        return self.shown(tool), arguments


class Transcript:
    """One run of the script."""

    def __init__(self, transport: Transport, era: str, face: str | None) -> None:
        self.address = Address(face)
        self.steps: dict[str, Any] = {}
        self._era = era
        self._told: list[Json] = []
        self._asked: list[Json] = []
        self._client = Client(
            transport,
            mode="legacy" if era == "legacy" else "2026-07-28",
            cache=None,
            read_timeout_seconds=PATIENCE,
            sampling_callback=self._on_sampling,
            elicitation_callback=self._on_elicitation,
            list_roots_callback=self._on_roots,
            message_handler=self._on_message,
            log_level="info" if era == "modern" else None,
        )

    async def run(self) -> dict[str, Any]:
        with warnings.catch_warnings():
            # Half of what is tested here is deprecated, and in use.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            async with self._client:
                await self._open()
                await self._lists()
                await self._tools()
                await self._prompts_and_resources()
                await self._questions()
                await self._changes()
                await self._utilities()
        return self.steps

    # What the client is asked and told

    async def _on_sampling(self, context: Any, params: Any) -> CreateMessageResult:
        self._asked.append(_dumped(params))
        return CreateMessageResult(
            role="assistant", content=TextContent(text="Hi ü"), model="m", stop_reason="endTurn", _meta={"a": [None]}
        )

    async def _on_elicitation(self, context: Any, params: Any) -> ElicitResult:
        self._asked.append(_dumped(params))
        content: Json = {
            "name": "Ann",
            "username": "ann",
            "email": "a@example.test",
            "ok": True,
            "color": "ü",
            "context": "x",
        }
        return ElicitResult(action="accept", content=None if getattr(params, "mode", "") == "url" else content)

    async def _on_roots(self, context: Any) -> ListRootsResult:
        self._asked.append({"roots": True})
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///work"), name="work", _meta={"x": 1})])

    async def _on_message(self, message: Any) -> None:
        assert not isinstance(message, Exception), message
        self._told.append(_dumped(message))

    def _told_since(self, start: int, method: str) -> list[Json]:
        return [each for each in self._told[start:] if each["method"] == method]

    async def _wait_told(self, start: int, method: str, count: int = 1) -> list[Json]:
        with anyio.fail_after(PATIENCE):
            while len(self._told_since(start, method)) < count:
                await anyio.sleep(0.01)
        return self._told_since(start, method)

    # The script

    async def _record(self, step: str, work: Awaitable[Any]) -> None:
        try:
            self.steps[step] = _dumped(await work)
        except MCPError as error:
            self.steps[step] = {"error": error.error.model_dump(exclude_none=True)}

    async def _call(self, tool: str, arguments: Json | None = None, **more: Any) -> CallToolResult:
        name, addressed = self.address.call(tool, arguments or {})
        return await self._client.call_tool(name, addressed, **more)

    async def _open(self) -> None:
        if self.address.face in ("proxy", "dynamic"):
            await self._client.call_tool("open_toolbox", {"toolbox_name": "box"})

    async def _lists(self) -> None:
        self.steps["tools"] = await self._tool_definitions()
        prompts = [_dumped(each) for each in (await self._client.list_prompts()).prompts]
        self.steps["prompts"] = [{**each, "name": self.address.own(each["name"])} for each in prompts]
        await self._record("resources", self._client.list_resources())
        await self._record("templates", self._client.list_resource_templates())

    async def _tool_definitions(self) -> dict[str, Json]:
        """Every tool, by its own name, all pages."""
        tools: list[Json] = []
        if self.address.face == "proxy":
            opened = await self._client.call_tool("open_toolbox", {"toolbox_name": "box", **WHOLE})
            assert opened.structured_content is not None
            paths = [self.address.shown(tool["name"]) for tool in opened.structured_content["tools"]]
            named = await self._client.call_tool("open_toolbox", {"tools": paths, **WHOLE})
            assert named.structured_content is not None
            where = ("toolbox_name", "source_server", "signature")
            tools = [{k: v for k, v in tool.items() if k not in where} for tool in named.structured_content["tools"]]
            return {tool["name"]: tool for tool in tools}
        cursor = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            tools += [_dumped(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        tools = [tool for tool in tools if tool["name"] != "open_toolbox"]
        for tool in tools:
            tool["name"] = self.address.own(tool["name"])
            if self.address.face == "dynamic":
                tool["description"] = tool["description"].removeprefix("[box/server] ")
                meta = tool["_meta"]
                del meta["mcp-workbench/tool"]
                if not meta:
                    del tool["_meta"]
        return {tool["name"]: tool for tool in tools}

    async def _tools(self) -> None:
        for tool in PLAIN_CALLS:
            await self._record(f"call {tool}", self._call(tool))
        meta: Any = {"example.test/mine": {"a": [1, None]}}
        await self._record("call rich_weather", self._call("rich_weather", {"city": "Röm"}, meta=meta))
        await self._record("call rich_error", self._call("rich_error"))
        await self._record("call unknown", self._call("no_such_tool"))
        progress: list[Any] = []

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            progress.append((done, total, message))

        await self._record("progress", self._call("test_tool_with_progress", progress_callback=on_progress))
        self.steps["progress told"] = progress

    async def _prompts_and_resources(self) -> None:
        client = self._client
        for name, arguments in (
            ("test_simple_prompt", {}),
            ("test_prompt_with_arguments", {"arg1": "hellö", "arg2": "world"}),
            ("test_prompt_with_embedded_resource", {"resourceUri": "test://x"}),
            ("test_prompt_with_image", {}),
        ):
            await self._record(f"prompt {name}", client.get_prompt(self.address.shown(name), arguments))
        for uri in URIS:
            await self._record(f"read {uri}", client.read_resource(uri))
        await self._record("read missing", client.read_resource("test://nowhere"))
        argument = {"name": "arg1", "value": "par"}
        prompt = PromptReference(name=self.address.shown("test_prompt_with_arguments"))
        await self._record("complete prompt", client.complete(prompt, argument, {"arg2": "x"}))
        await self._record("complete template", client.complete(ResourceTemplateReference(uri=RICH_TEMPLATE), argument))

    async def _questions(self) -> None:
        for tool, arguments in (
            ("test_sampling", {"prompt": "Hellö"}),
            ("rich_sampling", {}),
            ("test_elicitation", {"message": "Whö?"}),
            ("test_elicitation_sep1034_defaults", {}),
            ("test_elicitation_sep1330_enums", {}),
            ("rich_page", {}),
            ("test_input_required_result_list_roots", {}),
            ("test_input_required_result_request_state", {}),
            ("test_input_required_result_multiple_inputs", {}),
            ("test_input_required_result_multi_round", {}),
        ):
            before = len(self._asked)
            await self._record(f"asking {tool}", self._call(tool, arguments))
            self.steps[f"asked by {tool}"] = sorted(map(_without_key, self._asked[before:]), key=str)
        prompt = self.address.shown("test_input_required_result_prompt")
        await self._record("asking prompt", self._client.get_prompt(prompt))

    async def _changes(self) -> None:
        async with self._listening():
            for tool, method in (
                ("test_trigger_prompt_change", "notifications/prompts/list_changed"),
                ("rich_resources", "notifications/resources/list_changed"),
                ("test_trigger_tool_change", "notifications/tools/list_changed"),
            ):
                start = len(self._told)
                await self._call(tool)
                if self.address.face != "proxy" or "tools" not in method:
                    await self._wait_told(start, method)
                else:
                    await self._until_known("test_passing_tool")
            start = len(self._told)
            await self._call("rich_update")
            self.steps["updated"] = unstamped((await self._wait_told(start, "notifications/resources/updated"))[0])
        await self._lists_again()
        await self._record("read after update", self._client.read_resource(RICH_RESOURCE))

    async def _until_known(self, tool: str) -> None:
        """The proxy face does not announce changes of tools; it finds new ones all the same."""
        with anyio.fail_after(PATIENCE):
            while (await self._call(tool)).is_error:
                await anyio.sleep(0.01)

    def _listening(self) -> Any:
        if self._era == "modern":
            return self._client.listen(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=[RICH_RESOURCE],
            )
        return _Subscribed(self._client)

    async def _lists_again(self) -> None:
        tools = await self._tool_definitions()
        self.steps["tools after a change"] = sorted(tools)
        prompts = (await self._client.list_prompts()).prompts
        self.steps["prompts after a change"] = [self.address.own(each.name) for each in prompts]
        resources = (await self._client.list_resources()).resources
        self.steps["resources after a change"] = [each.uri for each in resources]

    async def _utilities(self) -> None:
        client = self._client
        for level in ("warning", "info") if self._era == "legacy" else ("info",):
            if self._era == "legacy":
                await client.set_logging_level(level)
            start = len(self._told)
            await self._call("test_tool_with_logging")
            await self._call("test_logging_tool")
            if level == "info":
                await self._wait_told(start, "notifications/message", 4)
            # What the legacy server sends in spite of a level is its own business; a face filters.
            if self.address.face is not None or level == "info":
                told = [each["params"] for each in self._told_since(start, "notifications/message")]
                wanted = [each for each in told if level != "info" or each["level"] != "debug"]
                self.steps[f"log from {level}"] = wanted
        if self._era == "legacy":
            await self._record("ping", client.send_ping())
            await client.send_roots_list_changed()
        # A call that takes too long is cancelled at the server.
        with suppress(MCPError):
            await self._call("rich_wait", read_timeout_seconds=0.2)
        with anyio.fail_after(PATIENCE):
            while "'cancelled': 1" not in _first_text(await self._call("rich_counts")):
                await anyio.sleep(0.01)
        self.steps["counts"] = _first_text(await self._call("rich_counts"))


class _Subscribed:
    """The legacy way of listening."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __aenter__(self) -> None:
        await self._client.subscribe_resource(RICH_RESOURCE)

    async def __aexit__(self, *_: object) -> None:
        await self._client.unsubscribe_resource(RICH_RESOURCE)


def _first_text(result: CallToolResult) -> str:
    block: ContentBlock = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


def _dumped(value: Any) -> Any:
    """As it was on the wire, without what the modern era stamps on everything."""
    if not isinstance(value, BaseModel):
        return value
    return unstamped(value.model_dump(by_alias=True, mode="json", exclude_none=True))


def unstamped(value: Json) -> Json:
    plain = {key: each for key, each in value.items() if key not in STAMPS}
    for holder in (plain, plain.get("params", {})):
        if isinstance(holder.get("_meta"), dict):
            meta = {key: each for key, each in holder["_meta"].items() if "io.modelcontextprotocol/" not in key}
            holder["_meta"] = meta
            if not meta:
                del holder["_meta"]
    return plain


def _without_key(asked: Json) -> Json:
    """A question without its names: the one that only the legacy era has, and the one given for modern clients."""
    meta = {key: each for key, each in asked.get("_meta", {}).items() if key != "mcp-workbench/inputKey"}
    rest = {key: each for key, each in asked.items() if key not in ("_meta", "elicitationId")}
    return {**rest, "_meta": meta} if meta else rest
