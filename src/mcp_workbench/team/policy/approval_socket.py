"""The Unix socket on which `mcp-workbench approve` approves a call. Each workbench with waiting calls has one.

Opened with the first such call. It is in a folder that only its user can enter, and it also checks who is at the other
end of each connection: approvals by other users, and by servers, do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode

from mcp_workbench.engine.process_context import make_private, runtime_folder
from mcp_workbench.engine.socket_peers import described_peer, is_posing, may_decide

# Its file name after the process id.
APPROVAL_SUFFIX: Final = "approve.sock"
# Both processes are on the same machine.
ANSWER_SECONDS: Final = 2.0
# A request has a few hundred bytes.
LARGEST_REQUEST: Final = 4096

# A call is kept whole up to 256 KiB, and escaping unprintable characters makes it longer.
LARGEST_REPLY: Final = 4 * 1024 * 1024

# Takes an id, the seconds for which equal calls are approved too, whether the call is only shown, and who does it.
# Returns a description of the call, the whole call if it is shown; None if no call with this id is waiting.
Approve = Callable[[str, float | None, bool, str], str | None]


class ApprovalRequest(Struct):
    id: str
    seconds: float | None = None
    only_shows: bool = False


class ApprovalReply(Struct):
    approved: str | None = None
    # Whether the workbench does not take approvals from this process, whatever it says.
    is_refused: bool = False


class ApprovalRefused(Exception):
    """A workbench does not take approvals from this process."""


_decode_request: Final = Decoder(ApprovalRequest).decode
_decode_reply: Final = Decoder(ApprovalReply).decode


class ApprovalSocket:
    def __init__(self, approve: Approve) -> None:
        self._approve = approve
        self._path = os.path.join(runtime_folder(), f"{os.getpid()}.{APPROVAL_SUFFIX}")
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Begin to accept approvals. If the socket cannot be opened, there are none, and waiting calls expire."""
        with contextlib.suppress(OSError):
            make_private(os.path.dirname(self._path))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._server = await asyncio.start_unix_server(self._answer, self._path, limit=LARGEST_REQUEST)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, DecodeError, ValidationError):
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = writer.get_extra_info("socket")
                if may_decide(connection):
                    who = described_peer(connection)
                    wanted = _decode_request(await reader.readline())
                    reply = ApprovalReply(self._approve(wanted.id, wanted.seconds, wanted.only_shows, who))
                else:
                    reply = ApprovalReply(is_refused=True)
                writer.write(encode(reply) + b"\n")
                await writer.drain()
        writer.close()


async def approve_anywhere(id: str, seconds: float | None, *, only_shows: bool = False) -> str | None:
    """Approve or show the call with this id, in whichever of the user's workbenches it waits. Returns its
    description. Raises `ApprovalRefused`."""
    try:
        names = sorted(os.listdir(runtime_folder()))
    except OSError:
        return None
    request = ApprovalRequest(id, seconds, only_shows)
    is_refused = False
    for name in names:
        if name.partition(".")[2] == APPROVAL_SUFFIX:
            reply = await _approve(os.path.join(runtime_folder(), name), request)
            if reply.approved is not None:
                return reply.approved
            is_refused = is_refused or reply.is_refused
    if is_refused:
        raise ApprovalRefused
    return None


async def _approve(path: str, request: ApprovalRequest) -> ApprovalReply:
    with contextlib.suppress(OSError, TimeoutError, ValueError, DecodeError, ValidationError):
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path, limit=LARGEST_REPLY)
            try:
                if is_posing(writer.get_extra_info("socket")):
                    return ApprovalReply()
                writer.write(encode(request) + b"\n")
                return _decode_reply(await reader.readline())
            finally:
                writer.close()
    return ApprovalReply()
