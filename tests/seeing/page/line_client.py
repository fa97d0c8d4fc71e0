"""A client of a workbench over stdio that does not need an event loop, since Playwright brings one of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.client import LEGACY_VERSION
from tests.support.workbench import workbench_command

EXIT_TIMEOUT = 30


class LineClient:
    """Asks in turn; the workbench ends with it. `asks`: it says that it can put questions to its user."""

    def __init__(self, config: Path, name: str = "agent", *, asks: bool = False) -> None:
        self.process = subprocess.Popen(
            workbench_command(config), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._last = 0
        capabilities: dict[str, Any] = {"elicitation": {}} if asks else {}
        info = {"name": name, "version": "1.0"}
        self.request(
            "initialize", {"protocolVersion": LEGACY_VERSION, "capabilities": capabilities, "clientInfo": info}
        )
        self._send({"method": "notifications/initialized"})

    def use(self, server: str, tool: str, **arguments: Any) -> int:
        """Call a tool of the toolbox `box`; `answer` waits for what comes of it."""
        path = {"toolbox": "box", "server": server, "tool": tool}
        return self.begin("tools/call", {"name": "use_tool", "arguments": {"tool": path, "arguments": arguments}})

    def begin(self, method: str, params: dict[str, Any]) -> int:
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        return self._last

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return self.answer(self.begin(method, params))

    def answer(self, id: int) -> dict[str, Any]:
        """Requests of the workbench are left without an answer."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == id and "method" not in message:
                return message
        raise AssertionError("the workbench has ended")

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(EXIT_TIMEOUT)
        self.process.stdout.close()
