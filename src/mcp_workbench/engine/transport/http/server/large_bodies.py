"""Large POST bodies: read in a thread, piece by piece, while other clients are served.

The thread rests as long as it works, because each time that the event loop lets go of the interpreter, to read or to
write, it would have to wait for it.

Owns their order: later POSTs of the same session, on other connections, wait for them, because a cancellation must not
overtake the request that it cancels. Of each principal one body is read at a time, however many connections it has:
threads share one interpreter with everybody else. Knows nothing about what is done with a message.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.large_messages import read_large
from mcp_workbench.engine.jsonrpc.messages import Malformed
from mcp_workbench.engine.slices import sliced
from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.message_summary import MessageSummary, is_batch, single_line, summarise
from mcp_workbench.engine.transport.http.server.limits import MAX_BATCH_MESSAGES
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from mcp_workbench.engine.transport.pieces import Pieces

# How long a thread works before it rests: a few pieces. Shorter rests would be as long, and cost a switch each.
WORK_INTERVAL: Final = 0.0005

_decode_list: Final = Decoder(list[Raw]).decode
# A few milliseconds of work: as long as a request of another principal waits.
MAX_IN_A_TURN: Final = 32


# Whose requests are handled next, while several principals send them.
# The event loop serves connections one after another, so a principal with a thousand of them would get a thousand
# times the time of one with a single connection. Here each has a number of requests in one iteration of the loop,
# whatever its connections; those beyond it wait for the next iterations. While only one principal sends, nothing is
# counted.
# Owns the counts and what waits. Knows nothing about what the requests are.
class PrincipalTurns:
    __slots__ = ("_counts", "_waiting", "sole")

    def __init__(self) -> None:
        # Who has sent all requests of late: need not ask. None while several send, and before anybody has.
        self.sole: str | None = None
        # How many requests of each have been handled in this iteration; None while only one principal sends.
        self._counts: dict[str, int] | None = None
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def __repr__(self) -> str:
        return f"<PrincipalTurns, {sum(map(len, self._waiting.values()))} of {len(self._waiting)} principals waiting>"

    def admits(self, principal: str) -> bool:
        """Whether a request may be handled now. If so, it counts; if not, it has to `wait`."""
        if self._counts is None:
            if principal == self.sole:
                return True
            self.sole = None
            self._counts = {}
            asyncio.get_running_loop().call_soon(self._next_turn)
        count = self._counts.get(principal, 0)
        if count >= MAX_IN_A_TURN or principal in self._waiting:
            return False
        self._counts[principal] = count + 1
        return True

    def wait(self, principal: str, handle: Callable[[], None]) -> None:
        """Call `handle` when it is this principal's turn, in the order of arrival."""
        self._waiting.setdefault(principal, deque()).append(handle)

    def _next_turn(self) -> None:
        assert self._counts is not None
        if len(self._counts) <= 1 and not self._waiting:
            self.sole = next(iter(self._counts), None)
            self._counts = None
            return
        self._counts = {}
        asyncio.get_running_loop().call_soon(self._next_turn)
        for principal in list(self._waiting):
            waiting = self._waiting.pop(principal)
            self._counts[principal] = served = min(len(waiting), MAX_IN_A_TURN)
            for _ in range(served):
                waiting.popleft()()
            if waiting:
                self._waiting[principal] = waiting


class ReadBody(Struct):
    """The result of reading a body: its messages, or why there are none."""

    posted: list[tuple[bytes, MessageSummary]]
    is_batch: bool = False
    malformed: Malformed | None = None
    # An internal error.
    error: Exception | None = None

    def messages(self) -> list[tuple[bytes, MessageSummary]]:
        """Raises `Malformed`."""
        if self.malformed is not None:
            raise self.malformed
        return self.posted


class _Post(Struct):
    """A POST that has not been served yet."""

    head: RequestHead
    body: bytes | Pieces
    writer: ResponseWriter
    served: asyncio.Future[None]


class LargeBodies:
    """The bodies being read, and the POSTs queued behind them."""

    def __init__(self, serve: Callable[[RequestHead, bytes | ReadBody, ResponseWriter], None]) -> None:
        self._serve = serve
        # By session, while one of its POSTs waits or is being read: its later POSTs. At most one for each connection.
        self.behind: dict[tuple[str, str], deque[_Post]] = {}
        self.turns = PrincipalTurns()
        # By principal, while one of its bodies is being read: those that are read next.
        self.unread: dict[str, deque[tuple[tuple[str, str] | None, _Post]]] = {}

    def __repr__(self) -> str:
        return f"<LargeBodies of {len(self.behind)} sessions, {sum(map(len, self.behind.values()))} requests behind>"

    def take(self, head: RequestHead, body: bytes | Pieces, writer: ResponseWriter) -> asyncio.Future[None] | None:
        """Serve a POST: at once if it is small, none is ahead of it and it is its principal's turn, else when the
        returned future is done."""
        session = head.get(names.SESSION_ID)
        # Messages of one session are served in order. The same session id from another principal is another key.
        key = None if session is None else (head.principal, session)
        queue = None if key is None else self.behind.get(key)
        if queue is None and isinstance(body, bytes) and self.turns.admits(head.principal):
            self._serve(head, body, writer)
            return None
        post = _Post(head, body, writer, asyncio.get_running_loop().create_future())
        if queue is not None:
            queue.append(post)
            return post.served
        if key is not None:
            self.behind[key] = deque()
        if isinstance(body, bytes):
            self.turns.wait(head.principal, partial(self._serve_in_turn, key, post))
        else:
            self._read(key, post)
        return post.served

    def _serve_in_turn(self, key: tuple[str, str] | None, post: _Post) -> None:
        assert isinstance(post.body, bytes)
        self._finish(post, post.body)
        if key is not None:
            self._serve_behind(key)

    def _read(self, key: tuple[str, str] | None, post: _Post) -> None:
        """Read a body when those of its principal that came before have been read."""
        if (unread := self.unread.get(post.head.principal)) is not None:
            unread.append((key, post))
            return
        self.unread[post.head.principal] = deque()
        self._begin_reading(key, post)

    def _begin_reading(self, key: tuple[str, str] | None, post: _Post) -> None:
        assert isinstance(post.body, Pieces)
        reading = asyncio.get_running_loop().run_in_executor(None, read_body, post.body)
        reading.add_done_callback(partial(self._on_read, key, post))

    def _on_read(self, key: tuple[str, str] | None, post: _Post, reading: asyncio.Future[ReadBody]) -> None:
        error = reading.exception()
        self._finish(post, reading.result() if error is None else ReadBody([], error=_as_ours(error)))
        if key is not None:
            self._serve_behind(key)
        unread = self.unread[post.head.principal]
        if unread:
            self._begin_reading(*unread.popleft())
        else:
            del self.unread[post.head.principal]

    def _serve_behind(self, key: tuple[str, str]) -> None:
        queue = self.behind[key]
        while queue:
            waiting = queue.popleft()
            if isinstance(waiting.body, Pieces):
                self._read(key, waiting)
                return
            if not self.turns.admits(key[0]):
                self.turns.wait(key[0], partial(self._serve_in_turn, key, waiting))
                return
            self._finish(waiting, waiting.body)
        del self.behind[key]

    def _finish(self, post: _Post, body: bytes | ReadBody) -> None:
        was_gone = post.writer.is_over
        self._serve(post.head, body, post.writer)
        if was_gone:
            # The client disconnected before the request was served, when no callback was set yet.
            post.writer.disconnected()
        post.served.set_result(None)


def _as_ours(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


class Rests:
    """Makes a thread rest for as long as it has worked."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._since = clock()

    def __call__(self) -> None:
        worked = self._clock() - self._since
        if worked >= WORK_INTERVAL:
            # It may have waited for the interpreter itself; the loop needs no more than one interval.
            self._sleep(WORK_INTERVAL)
            self._since = self._clock()


def read_body(pieces: Pieces) -> ReadBody:
    """Join a body and read its messages. Takes a few seconds for the largest, while other threads run."""
    body = single_line(pieces.take())
    batch = is_batch(body)
    pause = Rests()
    try:
        found = _split(body) if batch else [body]
        return ReadBody([(each, summarise(each, read_large(each, pause=pause))) for each in found], batch)
    except Malformed as error:
        return ReadBody([], batch, error.by_client(body))


def _split(batch: bytes) -> list[bytes]:
    """The messages of a batch, at most one more than allowed. Raises `Malformed`."""
    found: list[bytes] = []
    try:
        for some in sliced(batch, _decode_list):
            # One too many is enough to refuse it; do not split a batch of a million for that.
            found += map(bytes, some[: MAX_BATCH_MESSAGES + 1 - len(found)])
            if len(found) > MAX_BATCH_MESSAGES:
                break
    except (DecodeError, ValidationError, RecursionError) as error:
        raise Malformed(str(error)) from None
    return found
