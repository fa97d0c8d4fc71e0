"""The test support itself: a scripted server that does not misbehave as told makes other tests pass for nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.client import Json, RawClient, RpcError
from tests.support.processes import alive, descendants, eventually, open_descriptors
from tests.support.workbench import logged, scripted_command

CAPABILITIES: Json = {"elicitation": {}, "sampling": {}, "roots": {}}
ANSWERS: dict[str, Json] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "none"},
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}


async def test_a_legacy_client_shakes_hands_and_lists_every_page() -> None:
    async with RawClient.spawn(scripted_command("--era", "legacy", "--tools", 5, "--page-size", 2)) as client:
        result = await client.initialize("2025-06-18")
        assert result["protocolVersion"] == "2025-06-18"
        names: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await client.request("tools/list", cursor)
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert names == [f"tool_{number}" for number in range(1, 6)]


async def test_a_legacy_server_rejects_discovery() -> None:
    async with RawClient.spawn(scripted_command("--era", "legacy"), modern=True) as client:
        with pytest.raises(RpcError) as caught:
            await client.discover()
        assert caught.value.code == -32601


async def test_a_silent_server_answers_the_handshake_but_not_the_probe(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with RawClient.spawn(scripted_command("--era", "silent", "--log", log)) as client:
        probe = await client.start("server/discover", {})
        await client.initialize()
        assert not probe.answered
        assert [message["method"] for message in logged(log)][:2] == ["server/discover", "initialize"]


async def test_a_modern_server_checks_the_stamp_and_rejects_the_handshake() -> None:
    async with RawClient.spawn(scripted_command("--era", "modern")) as client:
        with pytest.raises(RpcError, match="-32601"):
            await client.initialize()
        with pytest.raises(RpcError, match="-32602"):
            await client.request("tools/list")
        client.stamp("2099-01-01")
        with pytest.raises(RpcError) as caught:
            await client.discover()
        assert (caught.value.code, caught.value.data["supported"]) == (-32022, ["2026-07-28"])
        client.stamp()
        assert (await client.discover())["resultType"] == "complete"
        assert (await client.call_tool("echo", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_a_server_told_to_dies_on_discovery() -> None:
    async with RawClient.spawn(scripted_command("--die-on-discover"), modern=True) as client:
        with pytest.raises(EOFError):
            await client.discover()
        assert await client.wait_exit() == 9


@pytest.mark.parametrize(("tool", "method"), list(zip(["ask", "sample", "roots"], ANSWERS, strict=True)))
async def test_a_tool_asks_the_client_in_the_way_of_its_era(tool: str, method: str) -> None:
    async with RawClient.spawn(scripted_command()) as client:
        client.handlers[method] = lambda params: ANSWERS[method]
        await client.initialize(capabilities=CAPABILITIES)
        assert (await client.call_tool(tool))["structuredContent"] == {"result": ANSWERS[method]}
        assert [request["method"] for request in client.server_requests] == [method]

        client.stamp(capabilities=CAPABILITIES)
        needed = await client.call_tool(tool)
        assert needed["resultType"] == "input_required"
        assert needed["inputRequests"]["question"]["method"] == method
        responses = {"question": ANSWERS[method]}
        answered = await client.call_tool(tool, inputResponses=responses, requestState=needed["requestState"])
        assert answered["structuredContent"] == {"result": ANSWERS[method]}
        with pytest.raises(RpcError, match="-32602"):
            await client.call_tool(tool, inputResponses=responses, requestState="forged")
        client.stamp(capabilities={})
        with pytest.raises(RpcError, match="-32021"):
            await client.call_tool(tool)
        assert len(client.server_requests) == 1


async def test_a_hanging_call_blocks_nothing_and_is_not_answered_when_cancelled() -> None:
    async with RawClient.spawn(scripted_command()) as client:
        await client.initialize()
        hanging = await client.start_tool("hang")
        assert (await client.call_tool("count"))["structuredContent"] == {"count": 1}
        await client.cancel(hanging, "enough")
        cancelled = await client.call_tool("cancelled", {"wait": 1})
        assert cancelled["structuredContent"] == {"cancelled": [{"requestId": hanging.id, "reason": "enough"}]}
        assert not hanging.answered


async def test_progress_is_sent_only_with_a_token() -> None:
    async with RawClient.spawn(scripted_command()) as client:
        await client.initialize()
        await client.call_tool("progress", {"n": 2})
        assert client.notifications == []
        await client.call_tool("slow", {"seconds": 0.2}, _meta={"progressToken": "t"})
        sent = client.received("notifications/progress")
        assert [(params["progressToken"], params["progress"]) for params in sent] == [("t", 1), ("t", 2)]


async def test_errors_keep_their_code_message_and_data() -> None:
    async with RawClient.spawn(scripted_command()) as client:
        await client.initialize()
        with pytest.raises(RpcError) as caught:
            await client.call_tool("fail", {"code": -32042, "message": "no", "data": {"url": "x"}})
        assert caught.value.error == {"code": -32042, "message": "no", "data": {"url": "x"}}
        assert (await client.call_tool("tool_error"))["isError"] is True
        with pytest.raises(RpcError, match="Unknown tool"):
            await client.call_tool("no_such_tool")


async def test_a_changed_list_is_reported_in_both_eras() -> None:
    async with RawClient.spawn(scripted_command()) as client:
        await client.initialize()
        client.stamp()
        listening = await client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.wait_notification("notifications/subscriptions/acknowledged")
        await client.call_tool("change_tools", {"name": "fresh"})
        told = await client.wait_notification("notifications/tools/list_changed", 2)
        assert told == [{}, {"_meta": {"io.modelcontextprotocol/subscriptionId": listening.id}}]
        assert "fresh" in [tool["name"] for tool in (await client.request("tools/list"))["tools"]]


async def test_noise_surrounds_the_messages_and_the_client_keeps_it() -> None:
    async with RawClient.spawn(scripted_command("--noise")) as client:
        await client.initialize()
        assert (await client.call_tool("echo", {"x": "y"}))["structuredContent"] == {"x": "y"}
        assert b"Starting up...\n" in client.garbage


async def test_a_crash_shows_its_status_and_its_stderr() -> None:
    async with RawClient.spawn(scripted_command("--stderr", "hello from the server")) as client:
        await client.initialize()
        call = await client.start_tool("crash", {"code": 7, "stderr": "last words\n"})
        with pytest.raises(EOFError):
            await call.result()
        assert await client.wait_exit() == 7
        await client.wait_for(lambda: "last words" in client.stderr, "last words on stderr")
        assert client.stderr.startswith("hello from the server\n")


@pytest.mark.parametrize("flag", ["--error-on", "--crash-on", "--hang-on"])
async def test_one_method_can_be_made_to_misbehave(flag: str) -> None:
    async with RawClient.spawn(scripted_command(flag, "tools/list")) as client:
        await client.initialize()
        listing = await client.start("tools/list")
        if flag == "--error-on":
            with pytest.raises(RpcError, match="fails as asked"):
                await listing.result()
        elif flag == "--crash-on":
            with pytest.raises(EOFError):
                await listing.result()
        else:
            assert (await client.call_tool("count"))["structuredContent"] == {"count": 1}
            assert not listing.answered


async def test_declared_capabilities_are_logged(tmp_path: Path) -> None:
    declared = tmp_path / "declared"
    async with RawClient.spawn(scripted_command("--capabilities-log", declared)) as client:
        await client.initialize("2024-11-05", {"roots": {"listChanged": True}})
        client.stamp(capabilities={"sampling": {}})
        await client.discover()
    first, second = [json.loads(line) for line in declared.read_text().splitlines()]
    assert (first["era"], first["version"]) == ("legacy", "2024-11-05")
    assert first["capabilities"] == {"roots": {"listChanged": True}}
    assert (second["era"], second["capabilities"]) == ("modern", {"sampling": {}})


async def test_start_conditions_decide_how_the_server_ends(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    for flags, status in ((("--exit-at-start", 5), 5), (("--require-file", tmp_path / "absent"), 1)):
        async with RawClient.spawn(scripted_command("--starts", starts, *flags)) as client:
            assert await client.wait_exit() == status
    assert len(starts.read_text().splitlines()) == 2


@pytest.mark.parametrize("kind", ["group", "daemon"])
async def test_a_grandchild_outlives_its_server_until_somebody_ends_it(tmp_path: Path, kind: str) -> None:
    written = tmp_path / "grandchild"
    command = scripted_command("--spawn-grandchild", written, "--grandchild-kind", kind)
    async with RawClient.spawn(command) as client:
        await client.initialize()
        await eventually(written.exists, what="the grandchild's process id")
        grandchild = int(written.read_text())
        assert grandchild in descendants(os.getpid())
        if kind == "daemon":
            assert os.getpgid(grandchild) != os.getpgid(client.pid)
            os.kill(grandchild, signal.SIGTERM)
    assert alive(grandchild)
    os.kill(grandchild, signal.SIGKILL)
    await eventually(lambda: not alive(grandchild), what="the end of the grandchild")


async def test_a_stubborn_server_ignores_eof_and_term() -> None:
    command = scripted_command("--ignore-eof", "--ignore-term")
    async with RawClient.spawn(command, expect_exit=False) as client:
        await client.initialize()
        client.process.terminate()
        assert (await client.call_tool("count"))["structuredContent"] == {"count": 1}
        client.close_stdin()
        with pytest.raises(AssertionError, match="still running"):
            await client.wait_exit(timeout=0.3)


async def test_large_messages_pass_and_no_descriptor_is_left_open() -> None:
    before = set(open_descriptors().values())
    async with RawClient.spawn(scripted_command()) as client:
        await client.initialize()
        result = await client.call_tool("big", {"bytes": 8 * 1024 * 1024})
        assert len(result["content"][0]["text"]) == 8 * 1024 * 1024
    left = {target for target in open_descriptors().values() if target.startswith("pipe:")} - before
    assert left == set()
