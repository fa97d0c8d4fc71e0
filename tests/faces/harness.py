"""The same questions to every face: how a tool or prompt of a server is called there, and what comes back.

Owns how these tests start a workbench, within the test (`Bench.within`) or as a command (`Bench.as_command`), and the
names under which each face shows things. Refuses to know what any face does inside.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_workbench.app.gateway import Options
from mcp_workbench.engine.config.load import load
from tests.faces.memory import MemoryClient, MemoryGateway
from tests.support.client import Call, Conversation, Json, RawClient
from tests.support.workbench import scripted_command, workbench_command

FACES = ("proxy", "flat", "dynamic")
ERAS = ("legacy", "modern")
EVERY_ABILITY: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}

PATIENCE = 60
# `{toolbox: {server: flags}}`; a server may also be written out as an entry of `mcpServers`.
Boxes = Mapping[str, Mapping[str, Any]]


class Seen:
    """One client in front of one face."""

    def __init__(
        self,
        client: Conversation,
        face: str,
        era: str,
        separator: str = ":",
        gateway: MemoryGateway | None = None,
    ) -> None:
        self.client = client
        self.face = face
        self.era = era
        self._separator = separator
        self._gateway = gateway

    @property
    def gateway(self) -> MemoryGateway:
        """The workbench itself, where it runs within the test."""
        assert self._gateway is not None
        return self._gateway

    def name(self, own: str, server: str = "server", toolbox: str = "box") -> str:
        """What a tool or prompt is called here; tools of the `proxy` face are not called by name."""
        if self.face == "flat":
            return self._separator.join((toolbox, server, own))
        return f"{toolbox}__{server}_{own}" if self.face == "dynamic" else f"{toolbox}/{server}/{own}"

    async def open(self, toolbox: str = "box") -> Json:
        """Have the servers of a toolbox started and known, in the way of the face."""
        if self.face == "flat":
            return await self.client.request("tools/list")
        return await self.client.call_tool("open_toolbox", {"toolbox_name": toolbox})

    async def start(
        self, tool: str, arguments: Json | None = None, server: str = "server", toolbox: str = "box", **fields: Any
    ) -> Call:
        """Send a call of a tool; `fields` go beside `name` and `arguments`."""
        if self.face == "proxy":
            path = {"toolbox": toolbox, "server": server, "tool": tool}
            return await self.client.start_tool("use_tool", {"tool": path, "arguments": arguments or {}}, **fields)
        return await self.client.start_tool(self.name(tool, server, toolbox), arguments, **fields)

    async def call(
        self, tool: str, arguments: Json | None = None, server: str = "server", toolbox: str = "box", **fields: Any
    ) -> Json:
        return await (await self.start(tool, arguments, server, toolbox, **fields)).result()

    async def names(self, method: str) -> list[str]:
        """Names or URIs that a list shows."""
        result = await self.client.request(method)
        items = next(value for value in result.values() if isinstance(value, list))
        return [item.get("uri") or item.get("uriTemplate") or item["name"] for item in items]

    async def get_prompt(self, own: str, arguments: Json, **fields: Any) -> Json:
        return await self.client.request("prompts/get", {"name": self.name(own), "arguments": arguments, **fields})


class Bench:
    """Starts workbenches over one folder: one configuration after the other, one cache."""

    # How clients reach a workbench within the test.
    client_type: type[MemoryClient] = MemoryClient

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0

    def path(self, name: str) -> Path:
        """A file for a server to write."""
        return self.folder / name

    def write(self, boxes: Boxes, *, plain: bool = False, process: bool = False, settings: Json | None = None) -> Path:
        """A configuration; `plain` takes the servers of the only toolbox as a plain file, `settings` go to its top."""

        def entry(written: Any) -> Any:
            if isinstance(written, Mapping) and "command" in written:
                return written
            extra = dict(written[-1]) if written and isinstance(written[-1], Mapping) else {}
            flags = [flag for flag in written if not isinstance(flag, Mapping)]
            command, *arguments = scripted_command(*flags)
            return {"command": command, "args": arguments if process else list(map(str, flags)), **extra}

        servers = {box: {name: entry(each) for name, each in inside.items()} for box, inside in boxes.items()}
        if plain:
            (only,) = servers.values()
            written: Json = {"mcpServers": only}
        else:
            written = {"toolboxes": {b: {"description": f"Toolbox {b}.", "mcpServers": s} for b, s in servers.items()}}
        self._written += 1
        path = self.folder / f"config-{self._written}.json"
        path.write_text(json.dumps({**written, **(settings or {})}))
        return path

    @asynccontextmanager
    async def gateway(
        self, boxes: Boxes, *, options: Mapping[str, Any] | None = None, **written: Any
    ) -> AsyncIterator[MemoryGateway]:
        """A workbench without clients; `written` as for `write`."""
        config = load(str(self.write(boxes, **written)), os.environ)
        gateway = MemoryGateway(config, Options(**(options or {})))
        async with gateway.running():
            yield gateway

    @asynccontextmanager
    async def within(
        self,
        boxes: Boxes,
        face: str | None = "proxy",
        era: str = "legacy",
        *,
        capabilities: Json | None = None,
        options: Mapping[str, Any] | None = None,
        **written: Any,
    ) -> AsyncIterator[Seen]:
        """A client that has introduced itself to a workbench within the test; without `face` the file decides."""
        async with AsyncExitStack() as stack:
            given: Json = {**({} if face is None else {"face": face}), "list_timeout": PATIENCE, **(options or {})}
            gateway = await stack.enter_async_context(self.gateway(boxes, options=given, **written))
            client = await stack.enter_async_context(self.client_type.of(gateway))
            await introduce(client, era, capabilities)
            yield Seen(client, gateway.face.name, era, given.get("separator", ":"), gateway)

    @asynccontextmanager
    async def as_command(
        self,
        boxes: Boxes,
        face: str | None,
        era: str = "legacy",
        *flags: object,
        capabilities: Json | None = None,
        expect_exit: bool = True,
        **written: Any,
    ) -> AsyncIterator[Seen]:
        """A client that has introduced itself to the command; without `face` the file decides."""
        chosen: tuple[object, ...] = () if face is None else ("--face", face)
        if "--list-timeout" not in flags:
            # On a busy machine a process takes its time; what the bound does is tested where it is the subject.
            chosen += ("--list-timeout", PATIENCE)
        command = workbench_command(self.write(boxes, process=True, **written), *chosen, *flags)
        async with RawClient.spawn(command, expect_exit=expect_exit) as client:
            await introduce(client, era, capabilities)
            yield Seen(client, face or "flat", era)


async def introduce(client: Conversation, era: str, capabilities: Json | None = None) -> None:
    if era == "modern":
        client.stamp(capabilities=capabilities)
    else:
        await client.initialize(capabilities=capabilities)


def without_stamp(result: Json) -> Json:
    """A result without what the modern era adds to every result on its way."""
    result = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    meta = {key: value for key, value in result.pop("_meta", {}).items() if "modelcontextprotocol" not in key}
    return {**result, "_meta": meta} if meta else result


def error_text(result: Json) -> str:
    """The text of a result that says that something went wrong."""
    assert result.get("isError") is True, result
    text: str = result["content"][0]["text"]
    return text
