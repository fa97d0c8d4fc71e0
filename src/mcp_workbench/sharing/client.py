"""One client of the shared workbench: from its hello to its end."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.app.serving import LAST_ANSWERS_FLUSH_TIMEOUT, NOT_FINISHED, STDIO_DRAIN_TIMEOUT, wait_until
from mcp_workbench.engine.config.choose import ConfigSource
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.program_paths import ProgramPaths
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.session.resuming import ResumedLink, mark_of, restore, written_down
from mcp_workbench.engine.transport.lines import LineFeed
from mcp_workbench.engine.transport.link import Receiver
from mcp_workbench.engine.transport.pipes import PipeWriter
from mcp_workbench.engine.transport.stdio import PAUSE_ABOVE, DescriptorLink
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import DownstreamError
from mcp_workbench.sharing.budgets import LARGE_MESSAGE, ClientBudgets
from mcp_workbench.sharing.commands import CommandReceiver
from mcp_workbench.sharing.front.line_protocol import (
    BORROW,
    COME_AGAIN,
    CONTROL,
    LASTING,
    OTHERS_FIRST,
    PING_LINE,
    PONG,
    RESUME,
)
from mcp_workbench.sharing.hello import Hello

if TYPE_CHECKING:
    from mcp_workbench.engine.session.session import Session

log = logging.getLogger(__name__)
# For a front end to learn that we are stopping and to stop sending, which takes milliseconds.
LAST_REQUESTS_TIMEOUT: Final = 1.0
# For a client to have no call under way, when another workbench takes it over: as long as a call may take by default.
RESTART_DRAIN_TIMEOUT: Final = 120.0
# A front end that hears nothing for longer (`sharing.front.copying.SILENCE_TIMEOUT`) takes us for dead.
SIGN_OF_LIFE_INTERVAL: Final = 5.0
_NO_LINES: Final[list[bytes]] = []
_PING_REQUEST: Final = PING_LINE.rstrip(b"\n")


# The link to a client behind a front end: as over stdio, with occasional lines for the front end itself.
class AnnouncingWriter(PipeWriter):
    """Sends a front end the state of its client before the message that changes it: the front end must know everything
    that the client knows. Called once for all messages that are sent together."""

    __slots__ = ("_unannounced", "is_stuck")

    def __init__(
        self,
        batch: WriteBatch,
        fd: int,
        failed: Callable[[Exception], None],
        on_drained: Callable[[], object],
        unannounced: Callable[[], list[bytes]],
    ) -> None:
        super().__init__(batch, fd, failed, on_drained)
        self._unannounced = unannounced
        # The waiting data begins in the middle of a message, so nothing can be put in front of it.
        self.is_stuck = False

    def write_line(self, parts: tuple[Part, ...], end: bytes = b"\n") -> None:
        # Nothing is written at once: what the front end has to know goes before it.
        self._batch.is_sole = False
        super().write_line(parts, end)

    def flush(self) -> None:
        if self._queued:
            lines = self._unannounced()
            if lines:
                written = b"".join(CONTROL + line + b"\n" for line in lines)
                self._parts.insert(0, written)
                self.unsent_bytes += len(written)
        super().flush()
        self.is_stuck = self._waiting


class FrontEndLink(DescriptorLink):
    """Messages of one client, through its front end."""

    def __init__(
        self,
        batch: WriteBatch,
        limit: int,
        read_fd: int,
        write_fd: int,
        budgets: ClientBudgets | None = None,
        unannounced: Callable[[], list[bytes]] = list,
    ) -> None:
        """`unannounced`: returns what the front end has to know about the client and has not been sent yet."""
        super().__init__(batch, limit, read_fd, write_fd)
        # The budgets of all clients together; None if there is only one client.
        self._budgets = budgets
        self._is_held = False
        # The beginning of a line that is meant for us.
        self._control = b""
        # Whether a large message from this client is in transit.
        self._is_arriving = False
        self._source = self._target = "the front end"
        self._unannounced = unannounced

    def start(self, receiver: Receiver) -> None:
        super().start(receiver)
        if self._budgets is not None:
            self._budgets.add(self)

    def _make_writer(self) -> PipeWriter:
        self._announcer = AnnouncingWriter(
            self._batch, self._write_fd, self._write_failed, self._on_drained, self._unannounced
        )
        return self._announcer

    def close(self) -> None:
        if self._budgets is not None:
            self._budgets.discard(self)
        super().close()

    def hold(self) -> None:
        """Stop reading for now: others have large messages in transit."""
        self._is_held = True
        self._reader.pause()

    def release(self) -> None:
        self._is_held = False
        self._on_drained()

    def report_held(self) -> None:
        """Report that we are alive: a front end whose data is not read considers us dead after a while."""
        self.send_control(OTHERS_FIRST)

    def _on_drained(self) -> None:
        if not self._is_held and self._writer.unsent_bytes <= PAUSE_ABOVE:
            self._reader.resume()

    def _most_unsent(self) -> int:
        return super()._most_unsent() if self._budgets is None else self._budgets.most_unread(self, self._limit)

    def _feeder(self, lines: LineFeed) -> Callable[[bytes], asyncio.Future[None] | None]:
        budgets = self._budgets

        def feed(data: bytes) -> asyncio.Future[None] | None:
            if self._control or CONTROL in data:
                data = self._take_control_lines(data, is_line_begun=lines.unfinished_bytes > 0)
            reading = lines.feed(data)
            if budgets is not None and (self._is_arriving or data[-1:] != b"\n"):
                unfinished, was_arriving = lines.unfinished_bytes, self._is_arriving
                self._is_arriving = unfinished > LARGE_MESSAGE
                if self._is_arriving or was_arriving:
                    budgets.on_arriving(self, unfinished)
            return reading

        return feed

    def _take_control_lines(self, data: bytes, *, is_line_begun: bool) -> bytes:
        """Handle the lines that are meant for us. Returns the data without them."""
        *lines, unfinished = (self._control + data).split(b"\n")
        self._control = b""
        kept = []
        for line in lines:
            if line == _PING_REQUEST and not is_line_begun:
                self.send_control(PONG)
            else:
                kept.append(line + b"\n")
            is_line_begun = False
        if unfinished and not is_line_begun and _PING_REQUEST.startswith(unfinished):
            # The rest will follow.
            self._control = unfinished
        else:
            kept.append(unfinished)
        return b"".join(kept)

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        writer = self._announcer
        if writer.is_stuck:
            for line in self._unannounced():
                self.send_control(line)
        # As in `DescriptorLink`, inlined because it is on the path of every call.
        writer.write_line(parts)
        if writer.unsent_bytes > PAUSE_ABOVE:
            self._on_unread(parts)

    def send_control(self, line: bytes) -> None:
        """Send a line to the front end."""
        self._writer.write(CONTROL, line, b"\n")


class ClientContext(Struct, frozen=True, kw_only=True):
    """What a client is served with: everything that it would have if served alone."""

    config: WorkbenchConfig
    # To follow changes.
    source: ConfigSource
    options: Options
    folder: str
    environ: dict[str, str]
    programs: ProgramPaths | None = None
    # Messages for its user, written to the stderr of the front end.
    notes: tuple[str, ...] = ()


class SharedClient:
    """A client that was accepted. Owns both copies of its descriptor."""

    def __init__(
        self, hello: Hello, context: ClientContext, gateway: Gateway, descriptor: int, budgets: ClientBudgets
    ) -> None:
        self.hello = hello
        self.context = context
        self.gateway = gateway
        self.session: Session | None = None
        # The state of the client that the front end has, and the streams that it knows as long-lasting.
        self._mark: tuple[object, ...] = ()
        self._lasting: set[bytes] = set()
        self.joined_at = asyncio.get_running_loop().time()
        self._link: FrontEndLink | None = None
        self._descriptor = descriptor
        self._budgets = budgets
        self._ended = asyncio.Event()
        # Whether it sends no more.
        self._is_silent = False
        self._reason = ""
        # What the front end gets at the end; empty if it is the client that disconnects.
        self.goodbye = b""
        # Whether its calls may go on for long before that, or, if they came at the last moment, after it.
        self._is_patient = False

    async def serve(self, first: bytes, is_urgent: asyncio.Event) -> None:
        """Serve it until it disconnects or we end. `first` is what came after its hello."""
        gateway = self.gateway
        assert gateway.runtime.batch is not None
        limit, descriptor = gateway.config.max_message_bytes, self._descriptor
        try:
            copy = os.dup(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        link = FrontEndLink(gateway.runtime.batch, limit, descriptor, copy, self._budgets, self._unannounced)
        link.peer = f"process {self.hello.pid}"
        resume = bytes(self.hello.resume)
        is_resumed = resume != b"null"
        session_link = ResumedLink(link) if is_resumed else link
        try:
            session = gateway.make_session(session_link, OWN_USER, self._on_closed, lasts=True)
        except BaseException:
            link.close()
            raise
        self.session = session
        self._link = link
        try:
            link.start(CommandReceiver(gateway, session, link) if self.hello.command == BORROW else session)
            if is_resumed:
                self._restore(session, resume)
            link.feed(first)
            await self._ended.wait()
            said = b""
            if self.goodbye:
                # It is served as before until then: its calls may be cancelled, and may ask.
                await wait_until(
                    lambda: not (session.calls and self._is_patient) or self._is_silent or is_urgent.is_set(),
                    RESTART_DRAIN_TIMEOUT,
                )
                if session.calls:
                    # They have had their time, and from now on its front end reads nothing more from it.
                    self._is_patient = False
                said = self.goodbye
                link.send_control(said)
                # What it sent before it got the goodbye is still served.
                await wait_until(lambda: self._is_silent or is_urgent.is_set(), LAST_REQUESTS_TIMEOUT)
            log.info("client of process %d leaves: %s", self.hello.pid, self._reason)
            session.is_draining = True
            link.stop_reading()
            await self._finish_calls(session, link, is_urgent)
            if said and self.goodbye != said:
                link.send_control(self.goodbye)
            for call in list(session.calls.values()):
                # Servers keep running for other clients, so they are notified of the cancellation.
                call.cancel({"reason": Raw(b'"the client is gone"')})
            session.end(DownstreamError(NOT_FINISHED), keeps_streams=self.goodbye == COME_AGAIN)
            await wait_until(lambda: not link.unsent_bytes or is_urgent.is_set(), LAST_ANSWERS_FLUSH_TIMEOUT)
        finally:
            session.leave()
            link.close()

    async def _finish_calls(self, session: Session, link: FrontEndLink, is_urgent: asyncio.Event) -> None:
        """Wait for the calls that arrived last."""
        now = asyncio.get_running_loop().time
        began = now()

        def is_over() -> bool:
            patience = RESTART_DRAIN_TIMEOUT if self._is_patient else STDIO_DRAIN_TIMEOUT
            return not session.calls or is_urgent.is_set() or now() - began >= patience

        while not is_over():
            await wait_until(is_over, SIGN_OF_LIFE_INTERVAL)
            link.send_control(PONG)

    def _restore(self, session: Session, resume: bytes) -> None:
        """Take the client over from a workbench that is gone."""
        try:
            restore(session, resume)
        except ValueError as error:
            log.warning("client of process %d: %s", self.hello.pid, error)

    def _unannounced(self) -> list[bytes]:
        """Return what the front end must know before the client gets the next message."""
        assert self.session is not None
        mark = mark_of(self.session)
        if mark == self._mark:
            return _NO_LINES
        self._mark = mark
        streams = set(self.session.streams)
        begun, self._lasting = streams - self._lasting, streams
        return [RESUME + b" " + written_down(self.session), *(LASTING + b" " + id for id in begun)]

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._link is None else self._link.unsent_bytes

    def end(self, reason: str, goodbye: bytes, *, between_calls: bool = False) -> None:
        """End the connection; the front end gets its instructions, with `between_calls` once no call is under way. A
        second time, to end sooner or with another goodbye."""
        self.goodbye = goodbye
        self._is_patient = between_calls
        self._reason = self._reason or reason
        self._ended.set()

    def _on_closed(self, reason: str) -> None:
        self._is_silent = True
        self._reason = self._reason or reason
        self._ended.set()
