"""The tools of the bad server: each is a way to go wrong, or to tell how things went.

Owns what happens in a call. Refuses to know how messages travel: it is given a function that writes bytes. Calls are
handled one after the other, in the order they came, except those that answer from a thread.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.bad_server import BadServer

Json = dict[str, Any]
Write = Callable[[bytes], None]

PAGE_SIZE = 1000
# Longer than any test waits, shorter than a forgotten process may live.
HANG_SECONDS = 600.0


class Call:
    def __init__(self, server: BadServer, id: Any, params: Json, size: int, write: Write) -> None:
        self.server, self.id, self.size, self.write = server, id, size, write
        self.arguments: Json = params.get("arguments") or {}
        self.meta: Json = params.get("_meta") or {}

    def finish(self, value: Json) -> None:
        from tests.faults.bad_server import encode

        text = {"type": "text", "text": "ok"}
        self.write(encode({"id": self.id, "result": {"content": [text], "structuredContent": value}}))

    def notify(self, method: str, params: Json) -> None:
        from tests.faults.bad_server import encode

        self.write(encode({"method": method, "params": params}))


def echo(call: Call) -> None:
    call.finish(call.arguments)


def note(call: Call) -> None:
    """Write the number of this call down before answering with it: calls that are repeated show."""
    call.server.note(call.arguments["n"])
    call.finish({"n": call.arguments["n"]})


def note_late(call: Call) -> None:
    """The same, answered after so many seconds."""
    call.server.note(call.arguments["n"])
    threading.Timer(call.arguments["seconds"], call.finish, [{"n": call.arguments["n"]}]).start()


def count(call: Call) -> None:
    """How often this very tool was called since the start: calls that are repeated show."""
    call.server.counted += 1
    call.finish({"count": call.server.counted})


def pid(call: Call) -> None:
    call.finish({"pid": os.getpid()})


def crash(call: Call) -> None:
    sys.stderr.write(call.arguments.get("stderr", "crashing as asked\n"))
    sys.stderr.flush()
    os._exit(call.arguments.get("status", 3))


def mute(call: Call) -> None:
    """Close stdout, and stay, whatever one is told."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(1)
    threading.Event().wait()


def hang(call: Call) -> None:
    """Never answered; other calls are."""


def deaf(call: Call) -> None:
    """Nothing is read any more."""
    time.sleep(HANG_SECONDS)


def stubborn(call: Call) -> None:
    """Nothing is read any more, and no polite signal ends it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(HANG_SECONDS)


def busy(call: Call) -> None:
    """Nothing is read until a file appears."""
    deadline = time.monotonic() + HANG_SECONDS
    while not os.path.exists(call.arguments["until"]) and time.monotonic() < deadline:
        time.sleep(0.02)
    call.finish({"busy": False})


def late(call: Call) -> None:
    """Answered after so many seconds, whether it was cancelled or not."""
    threading.Timer(call.arguments["seconds"], call.finish, [{"late": True}]).start()


def when(call: Call) -> None:
    """Answered when a file appears; other calls are answered meanwhile. `sent`: a file that appears when the answer has
    been written, so that it lies with whoever is to read it."""

    def wait() -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while not os.path.exists(call.arguments["exists"]) and time.monotonic() < deadline:
            time.sleep(0.02)
        call.finish({"exists": True})
        if "sent" in call.arguments:
            open(call.arguments["sent"], "w").close()

    threading.Thread(target=wait, daemon=True).start()


def raw(call: Call) -> None:
    """Exactly these bytes instead of an answer; `$ID` is the id. `end`: exit with this status afterwards."""
    data = call.arguments["latin1"].replace("$ID", json.dumps(call.id)).encode("latin-1")
    for piece in [bytes([each]) for each in data] if call.arguments.get("piecewise") else [data]:
        call.write(piece)
    if "end" in call.arguments:
        os._exit(call.arguments["end"])


def large(call: Call) -> None:
    """An answer whose line has so many bytes, without its newline."""
    head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % call.id
    tail = b'"}]}}'
    call.write(head + b"x" * (call.arguments["bytes"] - len(head) - len(tail)) + tail + b"\n")


def size(call: Call) -> None:
    """How many bytes the request had."""
    call.finish({"bytes": call.size})


def flood_stderr(call: Call) -> None:
    block = (b"x" * 99 + b"\n" if call.arguments["lines"] else b"x" * 100) * 1000
    for _ in range(call.arguments["bytes"] // len(block)):
        os.write(2, block)
    call.finish({"written": True})


def flood(call: Call) -> None:
    """The same notification many times, in few writes, before the answer."""
    from tests.faults.bad_server import encode

    params = call.arguments.get("params", {})
    if call.arguments.get("progress"):
        params = {"progressToken": call.meta.get("progressToken"), "progress": 1}
        params |= {"message": "x" * call.arguments["pad"]} if "pad" in call.arguments else {}
    message = encode({"method": call.arguments["method"], "params": params})
    for _ in range(call.arguments["count"] // 100):
        call.write(message * 100)
    call.finish({"sent": call.arguments["count"]})


def grow(call: Call) -> None:
    """From now on there are so many tools more; told once for each."""
    while call.server.extra_tools < call.arguments["to"]:
        call.server.extra_tools += call.arguments["step"]
        call.notify("notifications/tools/list_changed", {})
    call.finish({"tools": call.server.extra_tools})


def ask(call: Call) -> None:
    """Ask the client something, and never answer the call."""
    from tests.faults.bad_server import encode

    question = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    for number in range(call.arguments.get("times", 1)):
        call.write(encode({"id": f"question-{number}", "method": "elicitation/create", "params": question}))


def cancelled(call: Call) -> None:
    """What was cancelled so far."""
    call.finish({"cancelled": call.server.cancelled})


def family(call: Call) -> None:
    """Children, grandchildren and a daemon that left the group and ignores TERM; answers with all their ids."""
    from tests.faults.families import start_daemon_elsewhere, start_family

    folder = call.arguments["folder"]
    if call.arguments.get("unmarked"):
        # A daemon whose environment says nothing of us; the folder is the file for its id.
        call.finish({"pids": {"daemon": start_daemon_elsewhere(folder)}})
    else:
        call.finish({"pids": start_family(folder)})


def stop(call: Call) -> None:
    """The whole process stops where it is, as if the machine had no time for it."""
    call.finish({"pid": os.getpid()})
    os.kill(os.getpid(), signal.SIGSTOP)


TOOLS: dict[str, Callable[[Call], None]] = {
    function.__name__: function
    for function in (
        *(
            echo,
            note,
            note_late,
            count,
            pid,
            crash,
            mute,
            hang,
            deaf,
            stubborn,
            busy,
            late,
            when,
            raw,
            large,
            size,
            flood_stderr,
            flood,
            grow,
            ask,
            cancelled,
        ),
        *(family, stop),
    )
}


def call(server: BadServer, id: Any, params: Json, size: int, write: Write) -> None:
    """A `tools/call`."""
    from tests.faults.bad_server import encode, error

    tool = TOOLS.get(params["name"], echo if params["name"].startswith("extra_") else None)
    if tool is None:
        write(encode(error(id, -32602, f"Unknown tool: {params['name']}")))
    else:
        tool(Call(server, id, params, size, write))


def page(server: BadServer, cursor: str | None, fault: str | None) -> Json:
    """A page of the tools. `fault`: `endless` (another cursor each time), `cyclic`, `no list`."""
    if fault == "no list":
        return {"tools": 5}
    start = int(cursor or 0)
    names = [*TOOLS, *(f"extra_{number}" for number in range(server.extra_tools))]
    found: Json = {"tools": [definition(name) for name in names[start : start + PAGE_SIZE]]}
    if fault == "endless":
        return {**found, "tools": found["tools"][:1], "nextCursor": str(start + 1)}
    if fault == "cyclic":
        return {**found, "nextCursor": "0" if cursor else "1"}
    return found if start + PAGE_SIZE >= len(names) else {**found, "nextCursor": str(start + PAGE_SIZE)}


def definition(name: str) -> Json:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}}
