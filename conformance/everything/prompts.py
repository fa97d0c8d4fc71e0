"""The prompts of the everything-server. One of them comes and goes, so that clients can be told of it."""

from __future__ import annotations

from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    ContentBlock,
    EmbeddedResource,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
    TextResourceContents,
)

from conformance.everything.asking import Conversation, NeedsInput, Way, elicitation
from conformance.everything.media import PNG

Context = ServerRequestContext[Any, Any]


def _prompt(name: str, description: str, **arguments: str) -> Prompt:
    taken = [PromptArgument(name=key, description=text, required=True) for key, text in arguments.items()]
    return Prompt(name=name, description=description, arguments=taken or None)


PROMPTS: Final = (
    _prompt("test_simple_prompt", "A simple prompt without arguments."),
    _prompt("test_prompt_with_arguments", "A prompt with two arguments.", arg1="The first.", arg2="The second."),
    _prompt("test_prompt_with_embedded_resource", "A prompt with a resource.", resourceUri="Which resource to embed."),
    _prompt("test_prompt_with_image", "A prompt with a picture."),
    _prompt("test_input_required_result_prompt", "A prompt that asks for its context."),
)
PASSING: Final = _prompt("test_passing_prompt", "A prompt that comes and goes.")


class Prompts:
    """What is offered at the moment."""

    def __init__(self, *, is_ordinary: bool = False) -> None:
        self._way: Way | None = "modern" if is_ordinary else None
        self._has_passing = False

    def change(self) -> None:
        """One more prompt, or one fewer."""
        self._has_passing = not self._has_passing

    async def list(self, context: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        """`prompts/list`."""
        return ListPromptsResult(prompts=[*PROMPTS, *([PASSING] if self._has_passing else [])])

    async def get(self, context: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
        """`prompts/get`."""
        try:
            blocks = await _blocks(params.name, params.arguments or {}, Conversation(context, params, self._way))
        except NeedsInput as needed:
            return needed.result
        return GetPromptResult(messages=[PromptMessage(role="user", content=block) for block in blocks])


async def _blocks(name: str, arguments: dict[str, str], conversation: Conversation) -> list[ContentBlock]:
    match name:
        case "test_simple_prompt" | PASSING.name:
            return [TextContent(text="This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            return [TextContent(text="Prompt with arguments: arg1='{arg1}', arg2='{arg2}'".format_map(arguments))]
        case "test_prompt_with_embedded_resource":
            resource = TextResourceContents(
                uri=arguments["resourceUri"], mime_type="text/plain", text="Embedded resource content for testing."
            )
            text = "Please process the embedded resource above."
            return [EmbeddedResource(resource=resource), TextContent(text=text)]
        case "test_prompt_with_image":
            text = "Please analyze the image above."
            return [ImageContent(data=PNG, mime_type="image/png"), TextContent(text=text)]
        case "test_input_required_result_prompt":
            wanted = elicitation("What context should the prompt use?", {"context": {"type": "string"}})
            answers = await conversation.ask({"user_context": wanted})
            return [TextContent(text=f"Use this context: {answers['user_context'].get('content')}")]
    raise MCPError(INVALID_PARAMS, f"unknown prompt: {name}")
