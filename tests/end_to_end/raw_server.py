"""A legacy stdio server whose every answer to a call is exactly the bytes that the call asks for.

The tool `raw` takes `latin1` (each character is a byte; `$ID` becomes the id of the request), `piecewise` (one byte per
write), `end` (exit status after the bytes are out). `count` counts its calls, `large` answers with so many `bytes`,
`deaf` never reads again. Run as a script.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("raw", "count", "deaf", "large")]


def answer(id: Any, result: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def raw(id: Any, arguments: dict[str, Any]) -> None:
    data = arguments["latin1"].replace("$ID", json.dumps(id)).encode("latin1")
    for piece in [data[index : index + 1] for index in range(len(data))] if arguments.get("piecewise") else [data]:
        write(piece)
    if "end" in arguments:
        os._exit(arguments["end"])


def main() -> None:
    count = 0
    if "--mark" in sys.argv:
        write(b"\xef\xbb\xbf")
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except RecursionError:
            # A call that is nested more deeply than this server can read is answered all the same.
            message = {"id": int(line.partition(b'"id":')[2].split(b",")[0]), "method": "tools/call"}
            message["params"] = {"name": "count"}
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            answer(id, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "raw"}})
        elif method == "tools/list":
            answer(id, {"tools": TOOLS})
        elif method == "tools/call":
            name, arguments = message["params"]["name"], message["params"].get("arguments", {})
            if name == "count":
                count += 1
                answer(id, {"content": [], "structuredContent": {"count": count}})
            elif name == "large":
                text = b"x" * arguments["bytes"]
                write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%b"}]}}\n' % (id, text))
            elif name == "deaf":
                signal.pause()
            else:
                raw(id, arguments)


if __name__ == "__main__":
    main()
