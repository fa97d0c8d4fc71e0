"""The workbench as a client sees it: started as a command, with scripted servers behind it.

Owns how these tests start it and what they keep asking for; refuses to know anything of its inside.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.client import LEGACY_VERSION, Json, RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config

RAW_SERVER = str(Path(__file__).with_name("raw_server.py"))
ERAS = ("legacy", "modern")
# Where a downstream JSON-RPC error is kept whole in a result.
ERROR_META = "mcp-workbench/error"


class Workbench:
    """Starts workbenches over one folder: one configuration after the other, one cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @asynccontextmanager
    async def serving(
        self,
        toolboxes: Mapping[str, Mapping[str, Any]],
        *flags: object,
        era: str = "legacy",
        version: str = LEGACY_VERSION,
        capabilities: Json | None = None,
        env: Mapping[str, str] | None = None,
        expect_exit: bool = True,
        **settings: Any,
    ) -> AsyncIterator[RawClient]:
        """A client that has introduced itself. `settings` are keys at the top of the configuration.

        Without a budget, opening a toolbox shows every tool in full: how it is shortened is not the subject here.
        """
        config = write_config(self.folder, toolboxes, **{"budget": None, **settings})
        spawned = RawClient.spawn(workbench_command(config, *flags), env=env, expect_exit=expect_exit)
        async with spawned as client:
            if era == "modern":
                client.stamp(capabilities=capabilities)
            else:
                await client.initialize(version, capabilities)
            yield client

    def path(self, name: str) -> Path:
        """A file for a scripted server to write or to wait for."""
        return self.folder / name

    def starts(self, name: str = "starts") -> list[int]:
        """The process ids that servers with `--starts` wrote down."""
        path = self.path(name)
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def held_back(self, gate: Path, *flags: object, arrived: Path | None = None, **settings: Any) -> Json:
        """A server that starts only when the file `gate` exists, and leaves the file `arrived` before it waits."""
        entry = scripted_entry(*flags, **settings)
        command = shlex.join([entry["command"], *entry["args"]])
        touch = f"touch {shlex.quote(str(arrived))}; " if arrived else ""
        wait = f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.01; done"
        return {**entry, "command": "/bin/sh", "args": ["-c", f"{touch}{wait}; exec {command}"]}


def raw_entry(*flags: str, **settings: Any) -> Json:
    """A server whose answers are the very bytes that a call asks for; see `raw_server`."""
    return {"command": sys.executable, "args": [RAW_SERVER, *flags], "protocol": "legacy", **settings}


def opened(result: Json) -> Json:
    """What `open_toolbox` answered: the same as structured content and as text."""
    content: Json = result["structuredContent"]
    # The structure has signatures in addition.
    tools = [{key: value for key, value in each.items() if key != "signature"} for each in content["tools"]]
    assert json.loads(result["content"][0]["text"]) == {**content, "tools": tools}
    return content


def tool_names(result: Json) -> list[str]:
    """Sorted: in which order a toolbox shows its tools is its own affair."""
    return sorted(tool["name"] for tool in opened(result)["tools"])


def unavailable(result: Json) -> dict[str, Json]:
    return {entry["server"]: entry for entry in opened(result)["unavailable"]}


def error_text(result: Json) -> str:
    """The text of a result that says that something went wrong."""
    assert result.get("isError") is True, result
    text: str = result["content"][0]["text"]
    return text


async def open_toolbox(client: RawClient, name: str) -> Json:
    return await client.call_tool("open_toolbox", {"toolbox_name": name})


def start_use(toolbox: str, server: str, tool: str, arguments: Json | None = None) -> Json:
    """The arguments of `use_tool`."""
    return {"tool": {"toolbox": toolbox, "server": server, "tool": tool}, "arguments": arguments or {}}
