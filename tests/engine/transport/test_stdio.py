"""Our own stdin and stdout: they belong to the protocol, and are given back as they were found."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.transport.rigs import StdioRig

MEBIBYTE = 1024 * 1024

# Echoes what it gets, while a library prints what it should not.
ECHO = """
import asyncio, os, sys
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.engine.transport.stdio import StdioLink

class Echo:
    def on_message(self, line):
        print("a stray print", flush=True)
        os.write(1, b"a stray write\\n")
        link.send(line)
    def on_oversized(self, remains):
        link.send(b"too long")
    def on_closed(self, reason):
        done.set()

async def main():
    global link, done
    done = asyncio.Event()
    link = StdioLink(WriteBatch(), 1000)
    link.start(Echo())
    await done.wait()
    while link.unsent_bytes:
        await asyncio.sleep(0.001)
    link.close()

asyncio.run(main())
print("blocking again:", os.get_blocking(1))
"""


@pytest.mark.requirement("cli.serve")
def test_stdout_carries_messages_only_and_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ECHO], input=b"one\ntwo\n" + b"x" * 2000 + b"\nthree", capture_output=True, check=True
    )
    assert done.stdout == b"one\ntwo\ntoo long\nthree\nblocking again: True\n"
    assert done.stderr == b"a stray print\na stray write\n" * 3


def test_requests_may_come_from_a_file_or_from_nowhere(tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    requests.write_bytes(b"".join(b"line %d\n" % number for number in range(1000)))
    command = [sys.executable, "-c", ECHO]
    with requests.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, check=True, timeout=20)
    assert done.stdout == requests.read_bytes() + b"blocking again: True\n"
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=20)
    assert done.stdout == b"blocking again: True\n"


def test_the_last_message_is_not_lost_when_the_link_closes_at_once() -> None:
    script = ECHO.replace(
        "    await done.wait()\n", "    link.send(b'the last answer')\n    link.close()\n    return\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert done.stdout.startswith(b"the last answer\n")


async def test_a_client_that_does_not_read_is_not_read_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.engine.transport.stdio.PAUSE_ABOVE", MEBIBYTE)
    asked = asyncio.Event()

    class Client(StdioRig):
        """Asks, waits, asks again, and reads only when it is told to."""

        reads = asyncio.Event()

        async def peer(self, read_end: int, write_end: int) -> None:
            await asked.wait()
            os.write(write_end, b"a question\n")
            await self.reads.wait()
            total = 0
            while total < 2 * MEBIBYTE:
                total += len(await asyncio.to_thread(os.read, read_end, MEBIBYTE))
            await asyncio.Event().wait()

    client = Client()
    async with client._connected(client.peer, MEBIBYTE) as (link, recorder):
        link.send(b"x" * 2 * MEBIBYTE)
        await asyncio.sleep(0)
        assert link.unsent_bytes > MEBIBYTE
        asked.set()
        for _ in range(50):
            await asyncio.sleep(0)
        assert recorder.messages == []
        client.reads.set()
        assert await recorder.wait_messages(1) == [b"a question"]
        assert link.unsent_bytes == 0
