"""The demo server `notes`, through the official SDK's client in both eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning

from tests.cli.demo.sdk import ERAS, VERSION_OF, command, connect
from tests.support.client import RawClient

both_eras = pytest.mark.parametrize("era", ERAS)


def _titles(result: types.CallToolResult) -> list[str]:
    assert result.structured_content is not None
    return [note["title"] for note in result.structured_content["notes"]]


@both_eras
async def test_notes_are_added_listed_found_and_deleted(era: str) -> None:
    async with connect("notes", era=era) as client:
        assert client.protocol_version == VERSION_OF[era]
        assert client.server_info is not None and client.server_info.name == "demo-notes"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"add_note", "list_notes", "search_notes", "delete_note"}
        assert all(tool.output_schema for tool in tools.values())

        first = await client.call_tool("add_note", {"title": "Tea", "text": "Darjeeling", "tags": ["home"]})
        await client.call_tool("add_note", {"title": "Übung", "text": "Skalen"})
        assert first.structured_content is not None and first.structured_content["id"] == 1
        assert _titles(await client.call_tool("list_notes", {})) == ["Tea", "Übung"]
        assert _titles(await client.call_tool("list_notes", {"tag": "home"})) == ["Tea"]
        assert _titles(await client.call_tool("search_notes", {"query": "skalen ÜBUNG"})) == ["Übung"]
        await client.call_tool("delete_note", {"id": 1})
        assert _titles(await client.call_tool("list_notes", {})) == ["Übung"]


@both_eras
@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("add_note", {"text": "x"}, "`title` is missing"),
        ("add_note", {"title": "", "text": "x"}, "`title` must not be empty"),
        ("add_note", {"title": "x", "text": "x", "tags": ["a", 1]}, "`tags`[1] must be of type string"),
        ("list_notes", {"tags": "x"}, "`tags` is unknown; the arguments are `tag`"),
        ("delete_note", {"id": True}, "`id` must be of type integer"),
        ("delete_note", {"id": 0}, "`id` must be at least 1"),
        ("delete_note", {"id": 7}, "there is no note 7; the notes are none"),
    ],
)
async def test_invalid_arguments_are_reported_to_the_model(
    era: str, tool: str, arguments: dict[str, Any], complaint: str
) -> None:
    async with connect("notes", era=era) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert isinstance(result.content[0], types.TextContent) and result.content[0].text == complaint


@both_eras
async def test_notes_are_resources(era: str) -> None:
    async with connect("notes", "--with-samples", era=era) as client:
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        assert listed == ["notes:///index", "notes:///1", "notes:///2", "notes:///3"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["notes:///{id}"]
        contents = (await client.read_resource("notes:///1")).contents
        assert isinstance(contents[0], types.TextResourceContents)
        assert contents[0].text == "# Groceries\n\nOat milk, lentils, two lemons.\n"
        with pytest.raises(MCPError) as caught:
            await client.read_resource("notes:///99")
        assert caught.value.code == (-32002 if era == "legacy" else -32602)


async def test_a_modern_client_hears_of_changes_on_its_subscription() -> None:
    async with connect("notes", era="auto") as client:
        uris = ["notes:///1"]
        async with client.listen(resources_list_changed=True, resource_subscriptions=uris) as subscription:
            await client.call_tool("add_note", {"title": "a", "text": "b"})
            await client.call_tool("add_note", {"title": "c", "text": "d"})
            await client.call_tool("delete_note", {"id": 1})
            events = set()
            with anyio.fail_after(10):
                async for event in subscription:
                    events.add(event)
                    if len(events) == 2:
                        break
        assert events == {ResourcesListChanged(), ResourceUpdated(uri="notes:///1")}
        # The subscription is cancelled by now: the server goes on, and sends nothing for it.
        assert _titles(await client.call_tool("list_notes", {})) == ["c"]


async def test_legacy_client_is_notified_of_subscribed_changes() -> None:
    received: list[Any] = []

    async def remember(message: Any) -> None:
        received.append(message)

    async with connect("notes", era="legacy", message_handler=remember) as client:
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource("notes:///1")
        await client.call_tool("add_note", {"title": "a", "text": "b"})
        await client.call_tool("add_note", {"title": "c", "text": "d"})
        with pytest.warns(MCPDeprecationWarning):
            await client.unsubscribe_resource("notes:///1")
        await client.call_tool("delete_note", {"id": 1})
    updated = [message.params.uri for message in received if isinstance(message, types.ResourceUpdatedNotification)]
    changed = [message for message in received if isinstance(message, types.ResourceListChangedNotification)]
    assert updated == ["notes:///1"]
    assert len(changed) == 3


@both_eras
async def test_a_prompt_quotes_the_notes_and_its_argument_is_completed(era: str) -> None:
    async with connect("notes", "--with-samples", era=era) as client:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["summarize_notes"]
        reference = types.PromptReference(type="ref/prompt", name="summarize_notes")
        completed = await client.complete(reference, {"name": "tag", "value": "RE"})
        assert completed.completion.values == ["release"]
        prompt = await client.get_prompt("summarize_notes", {"tag": "release"})
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert "Release checklist" in prompt.messages[0].content.text
        assert "Groceries" not in prompt.messages[0].content.text
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("nothing")


@both_eras
async def test_log_messages_are_sent_from_the_level_the_client_asked_for(era: str) -> None:
    received: list[tuple[str, Any]] = []

    async def remember(params: types.LoggingMessageNotificationParams) -> None:
        received.append((params.level, params.data))

    level = "notice" if era == "auto" else None
    async with connect("notes", era=era, logging_callback=remember, log_level=level) as client:
        if era == "legacy":
            await client.call_tool("add_note", {"title": "before", "text": "any level was set"})
            await client.call_tool("delete_note", {"id": 1})
            with pytest.warns(MCPDeprecationWarning):
                await client.set_logging_level("notice")
        added = await client.call_tool("add_note", {"title": "a", "text": "b"})
        assert added.structured_content is not None
        number = added.structured_content["id"]
        await client.call_tool("delete_note", {"id": number})
    assert received == [("notice", f"note {number} deleted")]


async def test_notes_in_a_file_are_there_again_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    async with connect("notes", path, era="auto") as client:
        await client.call_tool("add_note", {"title": "a", "text": "ü", "tags": ["t"]})
        await client.call_tool("add_note", {"title": "b", "text": ""})
        await client.call_tool("delete_note", {"id": 1})
    async with connect("notes", path, era="legacy") as client:
        assert _titles(await client.call_tool("list_notes", {})) == ["b"]
        added = await client.call_tool("add_note", {"title": "c", "text": ""})
        assert added.structured_content is not None and added.structured_content["id"] == 3
    assert [note["title"] for note in json.loads(path.read_text())] == ["b", "c"]
    assert [file.name for file in tmp_path.iterdir()] == ["notes.json"]


async def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("not notes at all")
    async with RawClient.spawn(command("notes", path)) as client:
        assert await client.wait_exit() == 2
        await client.wait_for(lambda: "cannot read notes" in client.stderr, "reason on stderr")
    assert path.read_text() == "not notes at all"
