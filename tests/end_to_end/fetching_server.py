"""A server whose tool fetches an address as most programs do: with what its environment says about proxies. Or, with
`direct`, connects by itself. Imports nothing of ours, because its sandbox may not let it read that."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from urllib.parse import urlsplit


def fetched(address: str, direct: bool) -> str:
    try:
        if direct:
            parts = urlsplit(address)
            socket.create_connection((parts.hostname or "", parts.port or 80), timeout=5).close()
            return "connected"
        with urllib.request.urlopen(address, timeout=10) as response:
            return str(response.read().decode())
    except OSError as error:
        reason = getattr(error, "read", None)
        return f"failed: {error} {reason().decode() if reason else ''}"


TOOL = {"name": "fetch", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params") or {}
    if message["method"] == "initialize":
        about = {"name": "fetching", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    elif message["method"] == "tools/call":
        given = params["arguments"]
        text = fetched(given["address"], given.get("direct", False))
        answer["result"] = {"content": [{"type": "text", "text": text}]}
    else:
        answer["error"] = {"code": -32601, "message": "unknown"}
    print(json.dumps(answer), flush=True)
