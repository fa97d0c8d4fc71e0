"""The Unix socket on which `mcp-workbench team approve` decides about calls. Each workbench with waiting calls has one.

Opened with the first such call. It is in a folder that only its user can enter, and it also checks who is at the other
end of each connection: approvals by other users, and by servers, do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import DecodeError, Struct, ValidationError, field
from msgspec.json import Decoder, encode

from mcp_workbench.engine.process_context import make_private, runtime_folder
from mcp_workbench.engine.socket_peers import described_peer, is_posing, may_decide

# Its file name after the process id.
APPROVAL_SUFFIX: Final = "approve.sock"
# Both processes are on the same machine.
LOCAL_ANSWER_TIMEOUT: Final = 2.0
# A request has a few hundred bytes.
MAX_APPROVAL_REQUEST_BYTES: Final = 4096

# A call is kept whole up to 256 KiB, and escaping unprintable characters makes it longer.
MAX_APPROVAL_REPLY_BYTES: Final = 4 * 1024 * 1024


class ApprovalRequest(Struct):
    id: str
    # For how long equal calls are approved too.
    seconds: float | None = None
    only_shows: bool = False
    denies: bool = False


class ApprovalReply(Struct):
    # The call that was approved, denied or shown; None if none waits under this id.
    found: str | None = field(default=None, name="approved")
    # Whether the workbench does not take approvals from this process, whatever it says.
    is_refused: bool = False
    # Of a call that no longer waits: what was decided about it, and by whom.
    decided: str | None = None
    # Of a call that waits at another instance: why it could not be decided.
    problem: str | None = None


# Takes a request and who makes it. Other instances need time to reply.
Decide = Callable[[ApprovalRequest, str], ApprovalReply]
DecideElsewhere = Callable[[ApprovalRequest, str, str], Awaitable[ApprovalReply]]


class ApprovalRefused(Exception):
    """A workbench does not take approvals from this process."""


_decode_request: Final = Decoder(ApprovalRequest).decode
_decode_reply: Final = Decoder(ApprovalReply).decode


class ApprovalSocket:
    def __init__(self, decide: Callable[[ApprovalRequest, str], Awaitable[ApprovalReply]]) -> None:
        self._decide = decide
        self._path = os.path.join(runtime_folder(), f"{os.getpid()}.{APPROVAL_SUFFIX}")
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Begin to accept approvals. If the socket cannot be opened, there are none, and waiting calls expire."""
        with contextlib.suppress(OSError):
            make_private(os.path.dirname(self._path))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._server = await asyncio.start_unix_server(self._answer, self._path, limit=MAX_APPROVAL_REQUEST_BYTES)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, DecodeError, ValidationError):
            async with asyncio.timeout(LOCAL_ANSWER_TIMEOUT):
                # Read in any case: who is refused before it has written finds a broken pipe instead of the answer.
                line = await reader.readline()
                connection = writer.get_extra_info("socket")
                if may_decide(connection):
                    reply = await self._decide(_decode_request(line), described_peer(connection))
                else:
                    reply = ApprovalReply(is_refused=True)
                writer.write(encode(reply) + b"\n")
                await writer.drain()
        writer.close()


async def decide_anywhere(request: ApprovalRequest) -> ApprovalReply:
    """Approve, deny or show a call in whichever of the user's workbenches it waits. Raises `ApprovalRefused`."""
    try:
        names = sorted(os.listdir(runtime_folder()))
    except OSError:
        return ApprovalReply()
    is_refused = False
    decided: str | None = None
    problem: str | None = None
    for name in names:
        if name.partition(".")[2] == APPROVAL_SUFFIX:
            reply = await _ask(os.path.join(runtime_folder(), name), request)
            if reply.found is not None:
                return reply
            is_refused = is_refused or reply.is_refused
            decided = decided or reply.decided
            problem = problem or reply.problem
    if is_refused and decided is None:
        raise ApprovalRefused
    return ApprovalReply(decided=decided, problem=problem)


async def _ask(path: str, request: ApprovalRequest) -> ApprovalReply:
    with contextlib.suppress(OSError, TimeoutError, ValueError, DecodeError, ValidationError):
        async with asyncio.timeout(LOCAL_ANSWER_TIMEOUT):
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_APPROVAL_REPLY_BYTES)
            try:
                if is_posing(writer.get_extra_info("socket")):
                    return ApprovalReply()
                writer.write(encode(request) + b"\n")
                return _decode_reply(await reader.readline())
            finally:
                writer.close()
    return ApprovalReply()
