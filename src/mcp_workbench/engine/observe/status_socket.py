"""The status of every running workbench of this user, over a Unix socket for each of them.

A workbench over stdio has no address, so it listens on a Unix socket in a folder that only its user can enter. It opens
the socket shortly after its start, or when its first server starts. It sends its status and never reads what is sent to
it. A second socket is for `mcp-workbench top`, which asks repeatedly; `watching` owns that protocol. Neither answers
servers: the status has the ids of calls that wait for the user's approval, and `top` stops servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp_workbench.engine.process_context import make_private, runtime_folder
from mcp_workbench.engine.socket_peers import is_posing, may_ask

# The status of a hundred servers has about 50 KB.
READ_BYTES: Final = 4 * 1024 * 1024
# The file name of the socket for `top`, after the process id.
WATCH_SUFFIX: Final = "watch.sock"
# Both processes are on the same machine.
LOCAL_ANSWER_TIMEOUT: Final = 2.0


# The time to read from the disk before the answer: a disk that hangs must not keep users from seeing the status.
STATUS_LOOK_UP_TIMEOUT: Final = 1.0

# What every report has.
STATUS_MEMBERS: Final = frozenset(("pid", "config", "face", "uptimeSeconds", "servers"))

Watcher = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class StatusSocket:
    def __init__(self, status: Callable[[], bytes], watch: Watcher, look_up: Callable[[], Awaitable[None]]) -> None:
        """`look_up` is awaited before `status` is called, for a limited time."""
        self._status = status
        self._look_up = look_up
        self._watch = watch
        folder = runtime_folder()
        self._path = os.path.join(folder, f"{os.getpid()}.sock")
        self._watch_path = os.path.join(folder, f"{os.getpid()}.{WATCH_SUFFIX}")
        self._servers: list[asyncio.AbstractServer] = []

    async def open(self) -> None:
        """Open the sockets. If that fails, `status` does not list us, and nothing else is affected."""
        with contextlib.suppress(OSError):
            make_private(os.path.dirname(self._path))
            for path in (self._path, self._watch_path):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            self._servers.append(await asyncio.start_unix_server(self._answer, self._path))
            self._servers.append(await asyncio.start_unix_server(self._serve_watcher, self._watch_path))

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        # Even if opening was interrupted, because a socket may exist already.
        for path in (self._path, self._watch_path):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _serve_watcher(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if may_ask(writer.get_extra_info("socket")):
            self._watch(reader, writer)
        else:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not may_ask(writer.get_extra_info("socket")):
            writer.close()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STATUS_LOOK_UP_TIMEOUT):
                await self._look_up()
        with contextlib.suppress(OSError, TimeoutError):
            writer.write(self._status())
            async with asyncio.timeout(LOCAL_ANSWER_TIMEOUT):
                await writer.drain()
        writer.close()


async def query_all() -> dict[int, bytes]:
    """The status of every running workbench of this user, by process id; empty for one that hangs."""
    answers: dict[int, bytes] = {}
    try:
        make_private(runtime_folder())
        names = sorted(os.listdir(runtime_folder()))
    except OSError:
        return {}
    for name in names:
        pid, _, suffix = name.partition(".")
        if suffix == "sock" and pid.isdecimal():
            answer = await _query(os.path.join(runtime_folder(), name))
            if answer is not None:
                answers[int(pid)] = answer
    return answers


async def _query(path: str) -> bytes | None:
    try:
        async with asyncio.timeout(LOCAL_ANSWER_TIMEOUT):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                if is_posing(writer.get_extra_info("socket")):
                    return None
                answer = b""
                while chunk := await reader.read(READ_BYTES):
                    answer += chunk
            finally:
                writer.close()
            return answer or None
    except ConnectionRefusedError:
        # Its workbench was killed.
        for left in (path, *(path.removesuffix("sock") + suffix for suffix in (WATCH_SUFFIX, "approve.sock"))):
            with contextlib.suppress(OSError):
                os.unlink(left)
    except TimeoutError:
        return b""
    except OSError:
        return None
    return None


def reports(answers: Mapping[int, bytes]) -> list[dict[str, Any]]:
    """The answers that can be read: another version, or another program, may report different keys."""
    # Only commands read them.
    from msgspec import DecodeError
    from msgspec.json import decode

    found = []
    for answer in answers.values():
        with contextlib.suppress(DecodeError):
            status = decode(answer)
            if isinstance(status, dict) and status.keys() >= STATUS_MEMBERS:
                found.append(status)
    return found


async def running_workbenches() -> list[dict[str, Any]]:
    """The status reports of the user's running workbenches."""
    return reports(await query_all())
