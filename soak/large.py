"""Messages of 1, 16 and 64 MiB, as results and as requests, one at a time; told on stdout, a line of JSON for each.

Run as a process of its own, `python -m soak.large PORT PAUSE`, until its stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading

from tests.faults.http_wire import HttpConversation
from tests.faults.running_workbench import use
from tests.support.client import RpcError

MIB = 1024 * 1024
SIZES = (1, 16, 64)
PATIENCE = 120.0


async def _send(client: HttpConversation, direction: str, size: int) -> None:
    arguments = {"bytes": size} if direction == "result" else {"text": "x" * size}
    tool = "large" if direction == "result" else "size"
    params = {"name": "use_tool", "arguments": use("good", tool, arguments)}
    result = await client.request("tools/call", params, timeout=PATIENCE)
    found = len(result["content"][0]["text"]) + 1000 if direction == "result" else result["structuredContent"]["bytes"]
    if found < size:
        raise ValueError(f"only {found} bytes came through")


async def main(port: int, pause: float) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=watch, daemon=True).start()
    # What is bought once for large messages belongs to the beginning.
    wait = 0.1
    while True:
        for size in SIZES:
            for direction in ("result", "request"):
                try:
                    async with asyncio.timeout(wait):
                        await over.wait()
                    return
                except TimeoutError:
                    pass
                # A new client each time: a connection that waits longer than the server keeps it is no subject here.
                client = HttpConversation(port)
                client.stamp()
                error = None
                try:
                    await _send(client, direction, size * MIB)
                except (OSError, EOFError, TimeoutError, ValueError, KeyError, RpcError) as failure:
                    error = repr(failure)[:300]
                finally:
                    await client.close()
                print(json.dumps({"mebibytes": size, "direction": direction, "error": error}), flush=True)
        wait = pause


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
