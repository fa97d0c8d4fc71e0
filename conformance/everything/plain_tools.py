"""The tools that answer without asking anything: content of all kinds, errors, progress, log messages, schemas."""

from __future__ import annotations

import warnings
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.types import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    LoggingLevel,
    TextContent,
    TextResourceContents,
)

from conformance.everything.asking import sampling
from conformance.everything.media import PNG, WAV
from conformance.everything.tool import Call, EverythingTool, ToolFailed

# Between two notifications, so that they are seen to come while the tool runs.
STEP_SECONDS: Final = 0.05

SCHEMA_2020_12: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
SCHEMA_WITH_HEADERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "description": "Where to look.", "x-mcp-header": "Region"},
        "query": {"type": "string", "description": "What to look for."},
    },
    "required": ["region"],
}


async def _simple_text(call: Call) -> str:
    return "This is a simple text response for testing."


async def _image(call: Call) -> list[ContentBlock]:
    return [ImageContent(data=PNG, mime_type="image/png")]


async def _audio(call: Call) -> list[ContentBlock]:
    return [AudioContent(data=WAV, mime_type="audio/wav")]


async def _embedded_resource(call: Call) -> list[ContentBlock]:
    return [_resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


async def _mixed(call: Call) -> list[ContentBlock]:
    return [
        TextContent(text="Multiple content types test:"),
        ImageContent(data=PNG, mime_type="image/png"),
        _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]


def _resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


async def _error(call: Call) -> str:
    raise ToolFailed("This tool intentionally returns an error for testing")


async def _logging(call: Call) -> str:
    await _log(call, "info", "Tool execution started")
    await anyio.sleep(STEP_SECONDS)
    await _log(call, "info", "Tool processing data")
    await anyio.sleep(STEP_SECONDS)
    await _log(call, "info", "Tool execution completed")
    return "The tool has logged three times."


async def _logs_at_every_level(call: Call) -> str:
    await _log(call, "debug", "A message for those who asked for it")
    await _log(call, "error", "A graver message for those who asked for it")
    return "The tool has logged."


async def _log(call: Call, level: LoggingLevel, text: str) -> None:
    with warnings.catch_warnings():
        # Deprecated with revision 2026-07-28, and still part of it.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        await call.context.session.send_log_message(
            level, text, logger="everything", related_request_id=call.context.request_id
        )


async def _progress(call: Call) -> str:
    for done in (0, 50, 100):
        await call.context.session.report_progress(done, 100, f"{done} of 100")
        await anyio.sleep(STEP_SECONDS)
    return "The tool has reported progress three times."


async def _needs_sampling(call: Call) -> str:
    call.conversation.require(sampling("anything"))
    return "The client can sample."


async def _tells_arguments(call: Call) -> str:
    return f"Called with {dict(call.arguments)}"


PLAIN_TOOLS: Final = (
    EverythingTool("test_simple_text", "Answers with a text.", _simple_text),
    EverythingTool("test_image_content", "Answers with a picture.", _image),
    EverythingTool("test_audio_content", "Answers with a sound.", _audio),
    EverythingTool("test_embedded_resource", "Answers with a resource.", _embedded_resource),
    EverythingTool("test_multiple_content_types", "Answers with a text, a picture and a resource.", _mixed),
    EverythingTool("test_error_handling", "Always fails.", _error),
    EverythingTool("test_tool_with_logging", "Logs three times while it runs.", _logging),
    EverythingTool("test_logging_tool", "Logs at several levels.", _logs_at_every_level),
    EverythingTool("test_tool_with_progress", "Reports progress three times.", _progress),
    EverythingTool("test_missing_capability", "Works only for clients that can sample.", _needs_sampling),
    EverythingTool(
        "json_schema_2020_12_tool", "Has a schema of many kinds of words.", _tells_arguments, SCHEMA_2020_12
    ),
    EverythingTool(
        "test_header_parameter", "Has an argument that is a header too.", _tells_arguments, SCHEMA_WITH_HEADERS
    ),
)
