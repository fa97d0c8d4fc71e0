"""The tools of the everything-server: the calling and listing of them. What they do is in `plain_tools` and
`asking_tools`.
"""

from __future__ import annotations

from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import PromptsListChanged, SubscriptionBus, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from conformance.everything.asking import Conversation, NeedsInput, Way
from conformance.everything.asking_tools import ASKING_TOOLS
from conformance.everything.plain_tools import PLAIN_TOOLS
from conformance.everything.prompts import Prompts
from conformance.everything.tool import Call, EverythingTool, ToolFailed

Context = ServerRequestContext[Any, Any]


async def _passing(call: Call) -> str:
    return "Still here."


# The tools that only modern clients of the suite call.
MODERN_WAY: Final = ("test_input_required_result_", "test_streaming_elicitation")
PASSING: Final = EverythingTool("test_passing_tool", "A tool that comes and goes.", _passing)


class Tools:
    """What is offered at the moment, and the tools that change it."""

    def __init__(self, prompts: Prompts, bus: SubscriptionBus, *, is_ordinary: bool = False) -> None:
        self._is_ordinary = is_ordinary
        self._prompts = prompts
        self._bus = bus
        changing = (
            EverythingTool("test_trigger_tool_change", "Changes the list of tools.", self._change_tools),
            EverythingTool("test_trigger_prompt_change", "Changes the list of prompts.", self._change_prompts),
        )
        self._tools = {tool.name: tool for tool in (*PLAIN_TOOLS, *ASKING_TOOLS, *changing)}

    async def list(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """`tools/list`."""
        return ListToolsResult(
            tools=[
                Tool(name=tool.name, description=tool.description, input_schema=tool.schema)
                for tool in self._tools.values()
            ]
        )

    async def call(self, context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """`tools/call`."""
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"unknown tool: {params.name}")
        way: Way | None = None
        if self._is_ordinary:
            way = "modern" if tool.name.startswith(MODERN_WAY) else "legacy"
        try:
            result = await tool.run(Call(context, params.arguments or {}, Conversation(context, params, way)))
        except NeedsInput as needed:
            return needed.result
        except ToolFailed as failure:
            return CallToolResult(content=[TextContent(text=str(failure))], is_error=True)
        return CallToolResult(content=[TextContent(text=result)] if isinstance(result, str) else result)

    async def _change_tools(self, call: Call) -> str:
        if self._tools.pop(PASSING.name, None) is None:
            self._tools[PASSING.name] = PASSING
        # A legacy client is told on its connection, modern ones on the streams that they opened for it.
        if call.context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await call.context.session.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())
        return "The list of tools has changed."

    async def _change_prompts(self, call: Call) -> str:
        self._prompts.change()
        if call.context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await call.context.session.send_prompt_list_changed()
        await self._bus.publish(PromptsListChanged())
        return "The list of prompts has changed."
