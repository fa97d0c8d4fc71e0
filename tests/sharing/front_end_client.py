"""A client behind a front end within the test: two pipes, the copying loop on a thread, a socket, the workbench's end.

Owns what lies between a test and a gateway in memory. What the front end and the shared workbench do with messages is
what is served to clients; only the process around each of them is missing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.engine.session.session import Session
from mcp_workbench.sharing.budgets import ClientBudgets
from mcp_workbench.sharing.client import ClientContext, SharedClient
from mcp_workbench.sharing.front.copying import Copying
from mcp_workbench.sharing.hello import Hello
from tests.faces.memory import MemoryClient
from tests.support.client import Conversation

# The copying ends when the client does; only a defect can hold it up.
THREAD_END = 10.0


class FrontEndClient(MemoryClient):
    """Use as `async with FrontEndClient.of(gateway) as client`."""

    session: Session

    def __init__(self, gateway: Gateway, principal: str) -> None:
        Conversation.__init__(self)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        # Nothing of the context is looked at: the gateway is there.
        context = cast(ClientContext, None)
        self._shared = SharedClient(Hello(1), context, gateway, ours.detach(), ClientBudgets())
        client_in, self._to_client = os.pipe()
        self._from_client, client_out = os.pipe()
        os.set_blocking(self._from_client, False)
        self._ends = client_in, client_out
        self.copying = Copying(client_in, client_out)
        self._thread = threading.Thread(target=self.copying.run, args=(theirs.detach(),), daemon=True)

    @classmethod
    @asynccontextmanager
    async def of(cls, gateway: Gateway, principal: str = "") -> AsyncIterator[FrontEndClient]:
        client = cls(gateway, principal)
        is_urgent = asyncio.Event()
        serving = asyncio.create_task(client._shared.serve(b"", is_urgent))
        # It begins with its first step.
        await asyncio.sleep(0)
        assert client._shared.session is not None
        client.session = client._shared.session
        client._thread.start()
        reading = asyncio.create_task(client._read())
        try:
            yield client
        finally:
            os.close(client._to_client)
            is_urgent.set()
            await serving
            await asyncio.to_thread(client._thread.join, THREAD_END)
            assert not client._thread.is_alive()
            for end in client._ends:
                os.close(end)
            await reading
            os.close(client._from_client)

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.to_thread(_write_all, self._to_client, data)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._from_client, readable.set)
        unfinished = b""
        try:
            while True:
                await readable.wait()
                readable.clear()
                try:
                    data = os.read(self._from_client, 1 << 20)
                except BlockingIOError:
                    continue
                if not data:
                    return
                *lines, unfinished = (unfinished + data).split(b"\n")
                for line in lines:
                    await self.take_line(line)
        finally:
            loop.remove_reader(self._from_client)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
