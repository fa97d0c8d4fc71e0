"""The faces as people start them: the command, its flags, real processes behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cli.main import main
from tests.faces.harness import ERAS, EVERY_ABILITY, FACES, PATIENCE, Bench, Seen
from tests.support.client import RawClient, RpcError

pytestmark = pytest.mark.processes


@pytest.mark.requirement("faces.command")
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("era", "server_era"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_whole_conversation(bench: Bench, face: str, era: str, server_era: str) -> None:
    boxes = {"box": {"server": ("--era", server_era, "--offers", "test"), "other": ("--offers", "other")}}
    async with bench.as_command(boxes, face, era, capabilities=EVERY_ABILITY) as seen:
        await seen.open()
        assert (await seen.call("echo", {"a": "ü"}))["structuredContent"] == {"a": "ü"}
        await seen.call("progress", {"n": 2}, _meta={"progressToken": "t"})
        assert len(seen.client.received("notifications/progress")) == 2
        prompts = await seen.names("prompts/list")
        assert {seen.name("greet"), seen.name("greet", "other")} <= set(prompts)
        assert (await seen.get_prompt("greet", {"who": "Ann"}))["description"] == "Greets Ann."
        read = await seen.client.request("resources/read", {"uri": "other:///item/1"})
        assert read["contents"][0]["text"] == "other:///item/1 of other"
        stream = None
        if era == "modern":
            wanted = {"resourceSubscriptions": ["test:///one"], "promptsListChanged": True}
            stream = await seen.client.start("subscriptions/listen", {"notifications": wanted})
            await seen.client.wait_notification("notifications/subscriptions/acknowledged")
        else:
            await seen.client.request("resources/subscribe", {"uri": "test:///one"})
        await seen.call("update_resource", {"uri": "test:///one"})
        await seen.client.wait_notification("notifications/resources/updated")
        await seen.call("change_offers", {"kind": "prompts", "name": "late"})
        await seen.client.wait_notification("notifications/prompts/list_changed")
        hanging = await seen.start("hang")
        await seen.client.cancel(hanging)
        assert (await seen.call("cancelled", {"wait": 1}))["structuredContent"]["cancelled"]
        assert seen.client.garbage == []
        assert isinstance(seen.client, RawClient)
        seen.client.close_stdin()
        if stream is not None:
            ended = await stream.result()
            assert ended["_meta"] == {"io.modelcontextprotocol/subscriptionId": stream.id}


@pytest.mark.requirement("flat.default", "flat.names", "flat.separator")
@pytest.mark.parametrize("era", ERAS)
async def test_the_aggregator_with_a_plain_file(bench: Bench, era: str) -> None:
    boxes = {"any": {"one": ("--tool-names", "echo"), "two": ("--tool-names", "echo,odd__name")}}
    async with bench.as_command(boxes, None, era, "--separator", "__", plain=True) as seen:
        assert await seen.names("tools/list") == ["one__echo", "two__echo", "two__odd__name"]
        assert (await seen.client.call_tool("two__odd__name", {"n": 1}))["structuredContent"] == {"n": 1}
        with pytest.raises(RpcError, match="-32600"):
            await seen.client.call_tool("other")
        with pytest.raises(RpcError, match="-32600"):
            await seen.client.call_tool("echo")
        with pytest.raises(RpcError, match="-32601"):
            await seen.client.call_tool("one__other")


@pytest.mark.requirement("flat.separator")
@pytest.mark.parametrize(("flags", "shown"), [((), "one__echo"), (("--separator", "+"), "one+echo")])
async def test_the_separator_of_the_file_counts_unless_the_command_line_has_one(
    bench: Bench, flags: tuple[str, ...], shown: str
) -> None:
    boxes = {"any": {"one": ("--tool-names", "echo")}}
    async with bench.as_command(boxes, None, "legacy", *flags, plain=True, settings={"separator": "__"}) as seen:
        assert await seen.names("tools/list") == [shown]


async def listed(seen: Seen) -> list[str]:
    """What is there so far; a list that has nothing to show yet is an error."""
    try:
        return await seen.names("tools/list")
    except RpcError:
        return []


@pytest.mark.requirement("flat.no-prefix", "flat.first-list", "flat.dead")
async def test_the_flags_of_the_flat_face(bench: Bench) -> None:
    boxes: dict[str, Any] = {
        "any": {"one": ("--tool-names", "echo"), "slow": ("--start-delay", 600), "dead": ("--exit-at-start", 3)}
    }
    flags = ("--no-prefix", "--list-timeout", "0.5", "--name", "mine", "--version", "7")
    async with bench.as_command(boxes, None, "legacy", *flags, plain=True) as seen:
        async with asyncio.timeout(PATIENCE):
            while await listed(seen) != ["echo"]:
                await asyncio.sleep(0.05)
        await seen.client.wait_for(lambda: "WARNING [default/dead]" in seen.client.stderr, "a word in the log")
        told = await seen.client.initialize()
        assert (told["serverInfo"]["name"], told["serverInfo"]["version"]) == ("mine", "7")
        # Not while it is started once more.
        async with asyncio.timeout(PATIENCE):
            while "- dead (not available: " not in told["instructions"]:
                await asyncio.sleep(0.05)
                told = await seen.client.initialize()
        assert seen.client.stderr.count("some clients refuse") == 0


@pytest.mark.requirement("flat.refused-names")
async def test_names_that_clients_refuse_are_in_the_log_once(bench: Bench) -> None:
    boxes = {"any": {"one": ("--tool-names", "echo")}}
    async with bench.as_command(boxes, None, plain=True) as seen:
        for _ in range(3):
            await seen.names("tools/list")
        await seen.client.wait_for(lambda: "--separator __" in seen.client.stderr, "a word in the log")
        assert seen.client.stderr.count("some clients refuse") == 1


# The separator, in all forms


def config(folder: Path) -> str:
    path = folder / "mcp.json"
    path.write_text('{"mcpServers": {"one": {"command": "true"}}}')
    return str(path)


@pytest.mark.requirement("flat.separator-errors")
@pytest.mark.parametrize("given", [["--separator="], ["--separator", ""]])
def test_an_empty_separator_is_refused(given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", config(tmp_path), *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Separator cannot be empty. Use --separator <chars>" in captured.err


@pytest.mark.requirement("flat.separator-errors")
@pytest.mark.parametrize("value", [" ", "x y", "\t", "a\nb", " :", ": ", "\u00a0", "\u3000", "\ufeff", "a\ufeff", "\r"])
@pytest.mark.parametrize("form", ["--separator={}", "--separator {}"])
def test_a_separator_with_white_space_is_refused(
    value: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"--separator={value}"] if "=" in form else ["--separator", value]
    assert main(["serve", "--config", config(tmp_path), *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Separator cannot contain whitespace. Use non-whitespace characters" in captured.err


@pytest.mark.requirement("flat.separator-errors")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--separator"], "--separator"),
        (["--separator", ":", "--separator", "_"], "twice"),
        (["--face", "round"], "--face is proxy, flat, dynamic or auto"),
        (["--list-timeout", "soon"], "--list-timeout"),
        (["--list-timeout", "-1"], "--list-timeout"),
        (["--no-prefix=1"], "--no-prefix takes no value"),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--config", config(tmp_path), *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


@pytest.mark.requirement("config.names", "errors.config")
@pytest.mark.parametrize("command", ["serve", "list"])
def test_a_name_that_the_chosen_face_cannot_register_prevents_the_start(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"one": {"command": "true"}, "a__b": {"command": "true"}}}')
    assert main([command, "--config", str(path), "--face", "dynamic"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: the server name `a__b` contains `__`, expected a name without `__`")
    assert "hint: rename the server in the file, or choose another face" in captured.err
