"""Connections to the running workbenches of this user, to look into them and to act on their servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Final

from msgspec.json import decode, encode

from mcp_workbench.engine.observe.status_socket import WATCH_SUFFIX
from mcp_workbench.engine.process_context import runtime_folder
from mcp_workbench.engine.socket_peers import is_posing

# A workbench on the same machine answers in milliseconds; ending a server takes up to ten seconds.
WATCHED_ANSWER_TIMEOUT: Final = 15.0
# Many times the size of an answer with hundreds of servers, or with all that a hundred of them offer.
MAX_WATCHED_ANSWER_BYTES: Final = 64 * 1024 * 1024


class Workbenches:
    """Connections to all running workbenches, by process id."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def look(self) -> list[dict[str, Any]]:
        """Return the current state of each workbench, including new ones."""
        await self._find()
        looks = []
        for pid in sorted(self._open):
            answer = await self.ask(pid, {"do": "look"})
            if answer is not None:
                looks.append(answer)
        return looks

    async def found(self) -> list[int]:
        """The process ids of those that run."""
        await self._find()
        return sorted(self._open)

    async def offers(self, config: str) -> list[tuple[int, dict[str, Any]]]:
        """Return what the servers of this configuration have listed to running workbenches, each with the process id
        of the workbench."""
        await self._find()
        found = []
        for pid in sorted(self._open):
            answer = await self.ask(pid, {"do": "offers", "config": config})
            # A workbench of an earlier version does not know the question, and closes the connection.
            found += [(pid, each) for each in (answer or {}).get("offers", ())]
        return found

    async def ask(self, pid: int, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer; None if the workbench is gone."""
        if pid not in self._open:
            return None
        reader, writer = self._open[pid]
        try:
            async with asyncio.timeout(WATCHED_ANSWER_TIMEOUT):
                writer.write(encode(request) + b"\n")
                await writer.drain()
                line = await reader.readline()
            if line:
                answer: dict[str, Any] = decode(line)
                return answer
        except (OSError, TimeoutError, ValueError):
            pass
        del self._open[pid]
        writer.close()
        return None

    def close(self) -> None:
        for _, writer in self._open.values():
            writer.close()

    async def _find(self) -> None:
        folder = runtime_folder()
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in names:
            pid, _, suffix = name.partition(".")
            # Killed workbenches leave their sockets behind; connecting to those fails.
            if suffix == WATCH_SUFFIX and pid.isdecimal() and int(pid) not in self._open:
                with contextlib.suppress(OSError):
                    path = os.path.join(folder, name)
                    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_WATCHED_ANSWER_BYTES)
                    if is_posing(writer.get_extra_info("socket")):
                        writer.close()
                    else:
                        self._open[int(pid)] = reader, writer
