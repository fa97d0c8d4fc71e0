"""An MCP server that says whom it has served: plain Python, no SDK, over stdio, legacy.

Every request carries a mark, `WHO NUMBER`. The answer repeats it and names everybody of whom this process has seen a
mark: two names are two principals in one process. Run as a script: `marking_server.py SCHEME`, of the addresses of
its resources.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Json = dict[str, Any]
TEXTS = 300


class MarkingServer:
    def __init__(self, scheme: str) -> None:
        self.prefix = f"{scheme}:///"
        self.heard: set[str] = set()

    def result(self, method: str, params: Json) -> Json | None:
        if method == "initialize":
            capabilities: Json = {"tools": {}, "prompts": {}, "resources": {}, "logging": {}}
            info = {"name": "marking", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        if method == "tools/list":
            return {
                "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "secret", "large")]
            }
        if method == "prompts/list":
            return {"prompts": [{"name": "write", "arguments": [{"name": "mark"}]}]}
        if method == "resources/list":
            return {"resources": []}
        if method == "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": self.prefix + "{mark}", "name": "mark"}]}
        if method in ("tools/call", "prompts/get"):
            return self._marked(method, params.get("name", ""), params.get("arguments", {}).get("mark", ""))
        if method == "resources/read":
            return self._marked(method, "", params["uri"].removeprefix(self.prefix).replace("-", " "), params["uri"])
        return {} if method in ("ping", "logging/setLevel") else None

    def _marked(self, method: str, name: str, mark: str, uri: str = "") -> Json:
        self.heard.add(mark.partition(" ")[0])
        said = f"<{mark}> heard {','.join(sorted(self.heard))} in process {os.getpid()}. "
        if method == "resources/read":
            return {"contents": [{"uri": uri, "text": said}]}
        content = {"type": "text", "text": said * (TEXTS if name == "large" else 1)}
        if method == "prompts/get":
            return {"messages": [{"role": "user", "content": content}]}
        return {"content": [content]}


def write(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    server = MarkingServer(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        id, params = message["id"], message.get("params") or {}
        token, mark = params.get("_meta", {}).get("progressToken"), params.get("arguments", {}).get("mark")
        if mark is not None:
            write({"method": "notifications/message", "params": {"level": "info", "data": f"<{mark}>"}})
        if token is not None:
            progress = {"progressToken": token, "progress": 1, "message": f"<{mark}>"}
            write({"method": "notifications/progress", "params": progress})
        result = server.result(message["method"], params)
        error = {"code": -32601, "message": message["method"]}
        write({"id": id, "error": error} if result is None else {"id": id, "result": result})


if __name__ == "__main__":
    main()
