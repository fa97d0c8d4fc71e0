"""What clients of both eras do with a cluster, each in two halves: between them, their instance may be killed.

Every row is one user with the official client, behind HAProxy, in two halves. A row raises if what it found is not what
the guide promises (docs/guides/scaling.md).
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import ElicitResult, Implementation, ResourceUpdatedNotification

from mcp_workbench.engine.lasting_state import OPENED, RESULT, SESSION, TASK
from tests.engine.transport.http.server.raw_client import STAMP, modern, modern_headers, raw_client
from tests.support.cluster_machines import PATIENCE, Machines
from tests.support.workbench import scripted_entry

Json = dict[str, Any]
ERAS = {"legacy": "legacy", "modern": "auto"}
MAY_HAVE_BEEN = "may have been accepted"
URI = "test:///one"
LIMIT = 10
SETTINGS: Json = {
    "policy": [{"tools": ["asked"], "then": "ask"}, {"then": "allow"}],
    "limits": [{"who": ["*"], "servers": ["limited"], "callsPerMinute": LIMIT}],
}


def boxes(shared: str) -> Json:
    """`shared`: the address of a workbench whose servers exist once for all instances."""
    entries: Json = {
        "plain": scripted_entry("--offers", "test"),
        "legacy": scripted_entry("--era", "legacy", "--tool-names", "ask"),
        "modern": scripted_entry("--era", "modern", "--tool-names", "ask"),
        "large": scripted_entry("--tool-names", "big", resultBudget=200),
        "asked": scripted_entry("--tool-names", "echo"),
        "limited": scripted_entry("--tool-names", "echo"),
        "other": scripted_entry("--tool-names", "echo"),
        "once": {"url": shared, "headers": {"Authorization": "Bearer operator"}},
    }
    # A toolbox for each, so that opening one starts no others.
    return {name: {"server": entry} for name, entry in entries.items()}


def existing_once() -> Json:
    """What the shared workbench has: a server for everyone, and one whose tasks outlive the instances."""
    counting = scripted_entry("--tool-names", "count,pid", share="everyone")
    return {"shared": {"counting": counting, "tasks": scripted_entry("--tasks", "--tool-names", "start_task")}}


Row = Callable[["Player"], Awaitable[None]]


class Player:
    """One user with one client, in one row."""

    def __init__(self, rig: Machines, url: str, name: str, token: str, era: str, face: str, row: Row) -> None:
        self.rig = rig
        self._row = row
        self.url = url
        self.name = name
        self.token = token
        self.era = era
        self.face = face
        # Whether the instance is killed between the halves.
        self.is_killed = False
        self.is_half = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.questions: list[str] = []
        self.notified: list[str] = []
        self.answer: Json = {}
        self.asks_at_half = False
        self._opened: set[str] = set()
        self.client: Client

    async def half_time(self) -> None:
        self.is_half.set()
        await self.goes_on.wait()

    async def _elicit(self, context: Any, params: Any) -> ElicitResult:
        self.questions.append(params.message)
        if self.asks_at_half:
            await self.half_time()
        return ElicitResult(action="accept", content=self.answer)

    async def _hear(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.notified.append(str(message.params.uri))

    async def play(self) -> None:
        options: Json = {"elicitation_callback": self._elicit, "message_handler": self._hear, "cache": None}
        options["read_timeout_seconds"] = 2 * PATIENCE
        options["client_info"] = Implementation(name="player", version="1")
        async with self.rig.client(self.url, self.token, ERAS[self.era], **options) as client:
            self.client = client
            await self._row(self)

    async def open(self, box: str) -> None:
        await self.client.call_tool("open_toolbox", {"toolbox_name": box})
        self._opened.add(box)

    async def call(self, tool: str, box: str = "plain", /, **arguments: Any) -> Any:
        if self.face == "dynamic":
            if box not in self._opened:
                await self.open(box)
            return await self.client.call_tool(f"{box}__server_{tool}", arguments)
        path = {"toolbox": box, "server": "server", "tool": tool}
        return await self.client.call_tool("use_tool", {"tool": path, "arguments": arguments})

    async def found(self, tool: str, box: str = "plain", /, **arguments: Any) -> Json:
        result = await self.call(tool, box, **arguments)
        assert not result.is_error, result
        found: Json = result.structured_content
        return found

    async def until_left(self) -> None:
        """Until another instance would know us: it is written a moment after the answer."""
        if self.era == "legacy":
            await self.rig.until_left(SESSION, self.name, self.session_id)
        elif self.face == "dynamic":
            await self.rig.until_left(OPENED, self.name, "")

    @property
    def session_id(self) -> str:
        return self.rig.session_ids[self.token]


async def plain_calls(player: Player) -> None:
    for number in range(3):
        assert (await player.found("echo", number=number)) == {"number": number}
    await player.until_left()
    await player.half_time()
    for number in range(3):
        assert (await player.found("echo", number=number)) == {"number": number}


async def one_process(player: Player) -> None:
    pid = (await player.found("pid"))["pid"]
    assert [(await player.found("count"))["count"] for _ in range(2)] == [1, 2]
    await player.until_left()
    await player.half_time()
    is_same = (await player.found("pid"))["pid"] == pid
    counts = [(await player.found("count"))["count"] for _ in range(2)]
    # Its process ended with the instance; at the other one there is one again.
    assert (is_same, counts) == ((False, [1, 2]) if player.is_killed else (True, [3, 4]))


def _elicitation(server: str) -> Row:
    async def elicitation(player: Player) -> None:
        player.answer, player.asks_at_half = {"name": "Ada"}, True
        answered: Json = {}
        try:
            result = await player.call("ask", server)
        except MCPError as error:
            reason = error.error.message
        else:
            reason = str(result.content) if result.is_error else ""
            answered = result.structured_content
        assert player.questions
        # A modern server's question is answered with a new request, which any process of it can take.
        if player.is_killed and (player.era, server) != ("modern", "modern"):
            assert MAY_HAVE_BEEN in reason, reason
        else:
            assert not reason, reason
            assert answered["result"]["content"] == {"name": "Ada"}

    return elicitation


async def kept_result(player: Player) -> None:
    shown = await player.call("big", "large", bytes=50_000)
    uri = next(str(each.uri) for each in shown.content if each.type == "resource_link")
    await player.rig.until_left(RESULT, player.name, uri.rpartition("/")[2])
    await player.until_left()
    await player.half_time()
    whole = await player.client.read_resource(uri)
    assert len(whole.contents[0].model_dump()["text"]) > 50_000


async def subscription(player: Player) -> None:
    await player.open("plain")
    if player.era == "legacy":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await player.client.subscribe_resource(URI)
        await player.found("update_resource", uri=URI)
        await _until(lambda: player.notified)
        await player.until_left()
        await player.half_time()
        player.notified.clear()
        async with asyncio.timeout(PATIENCE):
            # The stream of notifications is opened again by the client, a moment later.
            while not player.notified:
                await player.found("update_resource", uri=URI)
                await asyncio.sleep(0.1)
        return
    async with AsyncExitStack() as stack:
        listening = await stack.enter_async_context(player.client.listen(resource_subscriptions=[URI]))
        await player.found("update_resource", uri=URI)
        async with asyncio.timeout(PATIENCE):
            await anext(aiter(listening))
        await player.half_time()
        if player.is_killed:
            # The client learns that it hears nothing more.
            async with asyncio.timeout(PATIENCE):
                with suppress(SubscriptionLost):
                    async for _ in listening:
                        pass
            await follow_calls(player, stack)
            return
        await player.found("update_resource", uri=URI)
        async with asyncio.timeout(PATIENCE):
            await anext(aiter(listening))


async def follow_calls(player: Player, stack: AsyncExitStack) -> None:
    """Listen again until the effect of our own call is heard. Until the balancer has noticed that the instance is gone,
    the stream may get to another one than calls do; then it ends once more."""
    async with asyncio.timeout(PATIENCE):
        while True:
            listening = await stack.enter_async_context(player.client.listen(resource_subscriptions=[URI]))
            assert listening.honored.resource_subscriptions, "it was told which toolboxes are open"
            await player.found("update_resource", uri=URI)
            with suppress(SubscriptionLost):
                async for _ in listening:
                    return


async def opened_toolboxes(player: Player) -> None:
    await player.open("plain")
    await player.open("other")
    if player.era == "legacy":
        await player.rig.until_left(SESSION, player.name, player.session_id, b'"other"')
    else:
        await player.rig.until_left(OPENED, player.name, "", b'"other"')
    await player.half_time()
    names = {tool.name for tool in (await player.client.list_tools()).tools}
    assert {"other__server_echo", "plain__server_echo"} <= names


async def tasks(player: Player) -> None:
    """The client has no tasks of its own in either era: this one writes what it sends itself."""
    port = int(player.url.split(":")[2].split("/")[0])
    capabilities: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {**STAMP, "io.modelcontextprotocol/clientCapabilities": capabilities}

    async def ask(method: str, name: str, params: Json) -> Json:
        message = modern(method, params)
        message["params"]["_meta"] = meta
        async with raw_client(port) as client:
            headers = modern_headers(method, name)
            answer = await client.request(body=message, authorization=f"Bearer {player.token}", **headers)
            found: Json = await answer.message() if answer.is_stream else answer.json
            return found

    path = {"toolbox": "once", "server": "server", "tool": "start_task"}
    use = {"name": "use_tool", "arguments": {"tool": path, "arguments": {}}}
    if player.face == "dynamic":
        await player.open("once")
        use = {"name": "once__server_start_task", "arguments": {}}
    begun = await ask("tools/call", str(use["name"]), use)
    assert "taskId" in begun["result"], begun
    handle = begun["result"]["taskId"]
    await player.rig.until_left(TASK, player.name, f"1{handle}")
    await player.half_time()
    for _ in range(2):
        seen = await ask("tasks/get", handle, {"taskId": handle})
        assert seen["result"]["status"] == "working", seen


async def server_that_exists_once(player: Player) -> None:
    first = (await player.found("count", "once"))["count"]
    pid = (await player.found("pid", "once"))["pid"]
    await player.until_left()
    await player.half_time()
    assert (await player.found("count", "once"))["count"] > first
    assert (await player.found("pid", "once"))["pid"] == pid


async def approvals(player: Player) -> None:
    player.answer = {"allow": "hour"}
    assert (await player.found("echo", "asked", number=1)) == {"number": 1}
    assert len(player.questions) == 1
    await player.until_left()
    async with asyncio.timeout(PATIENCE):
        while not await player.rig.state.command("KEYS", "*:approval:*"):
            await asyncio.sleep(0.05)
    await player.half_time()
    assert (await player.found("echo", "asked", number=1)) == {"number": 1}
    assert len(player.questions) == 1, "it was approved for an hour"


async def limits(player: Player) -> None:
    assert all([not (await player.call("echo", "limited")).is_error for _ in range(LIMIT - 4)])
    await player.until_left()
    # What was counted is told to the others right after the call, and once a second.
    await asyncio.sleep(1.2)
    await player.half_time()
    passed = sum([not (await player.call("echo", "limited")).is_error for _ in range(LIMIT)])
    assert 4 <= passed <= 6, passed


ROWS: dict[str, Row] = {
    "plain calls": plain_calls,
    "one server process": one_process,
    "elicitation, legacy server": _elicitation("legacy"),
    "elicitation, modern server": _elicitation("modern"),
    "kept result": kept_result,
    "subscription": subscription,
    "opened toolboxes": opened_toolboxes,
    "tasks": tasks,
    "server that exists once": server_that_exists_once,
    "approvals": approvals,
    "limits": limits,
}


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)
