"""Clients that misbehave: one over stdio that reads only when it is told to, and raw HTTP connections.

Owns what goes over the wire, byte by byte. Refuses to know what should happen: every wait is bounded, and what came
back is kept as it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

Json = dict[str, Any]

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
STAMP = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
# Generous, because the machine may be busy: nothing that works comes near it.
PATIENCE = 30.0


def line(id: object, method: str, params: Json | None = None) -> bytes:
    """A request, as a line."""
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
    return json.dumps(message).encode() + b"\n"


def initialize(id: object = 0) -> bytes:
    shake = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bad", "version": "1"}}
    return line(id, "initialize", shake)


class MuteClient:
    """A client over stdio that writes without waiting, and reads nothing unless it is told to."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self.pid = process.pid
        self._input = process.stdin.fileno()
        self._output = process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._rest = b""

    @classmethod
    @asynccontextmanager
    async def spawn(cls, command: Sequence[str], env: Mapping[str, str], stderr: str) -> AsyncIterator[MuteClient]:
        with open(stderr, "wb") as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env)
        client = cls(process)
        try:
            yield client
        finally:
            client.close()
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, PATIENCE)
            if process.poll() is None:
                process.kill()
                process.wait()

    def write(self, data: bytes) -> int:
        """As much as the pipe takes now; how much that was."""
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0

    async def write_all(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            while data:
                data = data[self.write(data) :]
                await asyncio.sleep(0.001 if data else 0)

    async def read_answers(self, count: int) -> list[Json]:
        """Read until there are so many messages."""
        found: list[Json] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                try:
                    data = os.read(self._output, 1 << 20)
                except BlockingIOError:
                    await asyncio.sleep(0.002)
                    continue
                assert data, f"the end after {len(found)} of {count} answers"
                *lines, self._rest = (self._rest + data).split(b"\n")
                found += map(json.loads, lines)
                await asyncio.sleep(0)
        return found

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
