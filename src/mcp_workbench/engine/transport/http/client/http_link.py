"""A server with a `url` as a link: every message is a POST, answers come back as JSON or as events.

Owns the requests in progress, the session of a legacy server, and its standalone stream. The era of a server is known
from what is sent to it: a stamped request makes it modern, `initialize` legacy. Knows nothing about what messages mean,
or whether to reconnect to a server that lost our session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any, Final

from msgspec import UNSET

from mcp_workbench.engine.jsonrpc.framing import LongLine
from mcp_workbench.engine.jsonrpc.messages import METHOD_NOT_FOUND, Malformed, Part, error_response, read
from mcp_workbench.engine.transport.backlog import MAX_UNSENT_BYTES, fits, refusal
from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.client.call_head_cache import CallHeadCache
from mcp_workbench.engine.transport.http.client.failures import too_large
from mcp_workbench.engine.transport.http.client.headers import HeaderSource
from mcp_workbench.engine.transport.http.client.http_client import HttpClient, HttpTarget
from mcp_workbench.engine.transport.http.client.http_session import POST_HEADERS, HttpSession, ToolParameters
from mcp_workbench.engine.transport.http.client.post import HttpTransport, Post, header_safe, pause
from mcp_workbench.engine.transport.http.client.response_body import (
    EventReceiver,
    deliver_large_event,
    read_error_text,
    read_events,
    read_large_body,
)
from mcp_workbench.engine.transport.http.client.sse_transport import SseTransport
from mcp_workbench.engine.transport.http.message_summary import (
    MessageSummary,
    is_batch,
    kind_and_id,
    single_line,
    split_batch,
    split_large_batch,
    summarise,
    version_in_answer,
)
from mcp_workbench.engine.transport.http.sse import ServerSentEvent, SseParser
from mcp_workbench.engine.transport.lines import LONG_LINE
from mcp_workbench.engine.transport.link import SESSION_LOST, AnswerReceiver, ExaminingReceiver
from mcp_workbench.errors import DownstreamError

log = logging.getLogger(__name__)
# A server that keeps ending the stream, or is down, is tried less and less often.
MAX_REOPEN_INTERVAL: Final = 60.0
# HTTP/1.1 needs a connection for each request in progress. More than this are queued while their deadlines run.
MAX_CONCURRENT_POSTS: Final = 128
# `DELETE` is a courtesy; servers expire sessions anyway.
SESSION_DELETE_TIMEOUT: Final = 1.0
HTTP_LINK_STOP_TIMEOUT: Final = 5.0
# How long calls wait for the standalone stream of a legacy server: one round trip, unless the server sends the head of
# that response only with its first event.
LISTEN_FIRST_TIMEOUT: Final = 0.5
# How long other requests may continue after a server has lost the session: their answers may be on the way.
SESSION_LOST_GRACE: Final = 1.0
# A request that stays open indefinitely, and so does not count towards the limit.
_ENDLESS: Final = "subscriptions/listen"
# With the context that it was sent in.
HeldMessage = tuple[MessageSummary, bytes, Context]
# Servers accept a notification at once, or not at all.
ONE_WAY_TIMEOUT: Final = 10.0
# Sent to one server at once, and queued.
MAX_ONE_WAY_MESSAGES: Final = 8
MAX_WAITING_ONE_WAY_MESSAGES: Final = 1000
MAX_ONE_WAY_BYTES: Final = 64 * 1024 * 1024


# Messages to a server that are not answered: notifications, and responses to its requests.
# Owns their order, how many are sent at once, and for how long. A server that provokes them and does not read them
# must exhaust neither our descriptors nor our memory.
class OneWaySender:
    """Sends the one-way messages of one link, in order, a few at a time."""

    __slots__ = ("_bytes", "_session", "_session_lost", "_start", "_under_way", "_waiting", "dropped")

    def __init__(
        self,
        session: HttpSession,
        start: Callable[[Coroutine[Any, Any, None]], None],
        session_lost: Callable[[], None],
    ) -> None:
        self._session = session
        # Runs a coroutine as a task of the link.
        self._start = start
        self._session_lost = session_lost
        self._waiting: deque[tuple[MessageSummary, bytes]] = deque()
        self._bytes = 0
        self._under_way = 0
        self.dropped = 0

    def put(self, summary: MessageSummary, body: bytes) -> None:
        """Queue a message, or drop it if too many are waiting."""
        if len(self._waiting) >= MAX_WAITING_ONE_WAY_MESSAGES or self._bytes + len(body) > MAX_ONE_WAY_BYTES:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("%s accepts notifications too slowly; further ones are dropped", self._session.origin)
            return
        self._waiting.append((summary, body))
        self._bytes += len(body)
        if self._under_way < MAX_ONE_WAY_MESSAGES:
            self._under_way += 1
            self._start(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                summary, body = self._waiting.popleft()
                self._bytes -= len(body)
                await self.send(summary, body)
        finally:
            self._under_way -= 1

    async def send(self, summary: MessageSummary, body: bytes) -> None:
        """Send it now, within `ONE_WAY_TIMEOUT`."""
        session = self._session
        origin = session.origin
        try:
            async with asyncio.timeout(ONE_WAY_TIMEOUT):
                response = await session.request("POST", {**POST_HEADERS, **session.headers()}, body)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            why = session.explain(error)
            log.info("%s did not receive `%s`: %s", origin, summary.method or "an answer", why.message)
            return
        try:
            await read_error_text(response)
            if response.status == 404 and session.id is not None:
                self._session_lost()
            elif response.status >= 300:
                log.info("%s rejected `%s`: status %d", origin, summary.method, response.status)
        finally:
            response.release()


class HttpLink:
    """A server at a `url`, as `ServerLink`, `CallLink` and `UrlLink`."""

    def __init__(
        self,
        client: HttpClient,
        url: str,
        source: HeaderSource,
        receiver: AnswerReceiver,
        *,
        limit: int,
        transport: HttpTransport = "auto",
        parameters_of: ToolParameters | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`environ` determines the proxy."""
        self._session = session = HttpSession(client, HttpTarget.of(url, source, environ), limit, parameters_of)
        self.transport: HttpTransport = transport
        self.unsent_bytes = 0
        self._receiver = receiver
        self._examine = receiver.examine if isinstance(receiver, ExaminingReceiver) else None
        self._is_modern = False
        self._posts: dict[bytes, Post] = {}
        self._waiting: deque[Post] = deque()
        self._running = 0
        # While this is not None, messages are queued: the server must have seen an earlier one first.
        self._held: list[HeldMessage] | None = None
        self._heads = CallHeadCache(session)
        self._one_way = OneWaySender(session, self._start, self.session_lost)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sse: SseTransport | None = None
        self._standalone: StandaloneStream | None = None
        self._is_closed = False
        self._is_session_lost = False
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        era = "no era yet" if self._session.version is None else f"MCP {self._session.version}"
        return f"<HttpLink {self._session.origin}, {era}, {len(self._posts)} under way>"

    # ── for those who use it (`ServerLink`) ──

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        if self._is_closed or self._is_session_lost:
            return
        body = b"".join(parts)
        self._dispatch(summarise(body), body)

    def send_call(self, message: bytes, id: int, tool: str, version: str | None) -> None:
        if self._held is not None or self._is_closed or self._is_session_lost or self._sse is not None:
            self.send(message)
            return
        session = self._session
        self._is_modern = is_modern = version is not None
        parameters_of = session.parameters_of
        is_mirrored = is_modern and parameters_of is not None and parameters_of(tool)
        head = None if is_mirrored else self._heads.find(message, tool, version)
        has_session = not is_modern and session.id is not None
        own = self._heads.own
        self._enter(Post(session, self, b"%d" % id, "tools/call", message, is_modern, has_session, own), head)

    @property
    def unread_bytes(self) -> int:
        """Always 0: HTTP does not reveal how much a server has read."""
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        """Always empty: a server at an address has no stderr."""
        return []

    async def stop(self) -> None:
        """End all requests in progress and the session within `HTTP_LINK_STOP_TIMEOUT` and `SESSION_DELETE_TIMEOUT`."""
        self._is_closed = True
        for post in list(self._posts.values()):
            post.cancel()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            # Cancelled tasks end at once; the timeout keeps a bug in one of them from blocking the shutdown.
            await asyncio.wait(tasks, timeout=HTTP_LINK_STOP_TIMEOUT)
        if self._sse is not None:
            await self._sse.stop()
        if self._session.id is not None and not self._is_session_lost:
            await self._end_session()

    # ── for what runs on it ──

    def deliver(self, message: bytes, about: Post | None = None) -> None:
        """Deliver a message from the server; `about` is the request on whose stream it came, if any."""
        message = single_line(message)
        try:
            if is_batch(message):
                for each in split_batch(message):
                    self.deliver(each, about)
                return
            kind, id = kind_and_id(message)
        except Malformed:
            # The receiver reports what is wrong with it.
            self._receiver.on_message(message)
            return
        if kind in ("result", "error"):
            if id is not None:
                self._on_answered(id, message)
        elif about is not None:
            self._receiver.on_related_message(message, about.id)
            return
        self._receiver.on_message(message)

    async def deliver_aside(self, body: LongLine, about: Post | None = None) -> None:
        """Deliver a large message, which is parsed in a thread first."""
        line, message = await asyncio.to_thread(read_large_body, body, self._examine)
        if is_batch(line):
            await self._deliver_large_batch(line, about)
        elif isinstance(message, Malformed) or message.method is not UNSET or message.id is UNSET:
            self._receiver.on_read_message(line, message, None if about is None else about.id)
        else:
            self._on_answered(bytes(message.id), line)
            self._receiver.on_answer(line, message)

    async def _deliver_large_batch(self, line: bytes, about: Post | None) -> None:
        try:
            for some in split_large_batch(line):
                for each in some:
                    if len(each) > LONG_LINE:
                        await self.deliver_aside(LongLine([each]), about)
                    else:
                        self.deliver(each, about)
                await asyncio.sleep(0)
        except Malformed as error:
            self._receiver.on_read_message(line, error)

    def _on_answered(self, id: bytes, message: bytes) -> None:
        post = self._posts.get(id)
        if post is not None:
            post.is_answered = True
            if post.method == "initialize":
                self._session.version = version_in_answer(message)
            if self._sse is not None:
                # Over HTTP+SSE the POST itself ended when it was accepted.
                del self._posts[id]

    def deliver_answer(self, post: Post, body: bytes, done_with: Callable[[bool], None]) -> None:
        """Deliver the complete response to a request. It is parsed once, here, and passed on parsed.

        `done_with` is called once, with whether this was the answer: only then can the connection be reused.
        """
        is_done = False
        try:
            if len(body) > self._session.limit:
                raise too_large(self._session.limit)
            line = single_line(body) if b"\n" in body or b"\r" in body else body
            try:
                message = read(line)
            except Malformed:
                message = None
            if (
                message is None
                or message.method is not UNSET
                or message.id is UNSET
                or bytes(message.id) != post.id
                or (message.result is UNSET and message.error is UNSET)
            ):
                # A batch, or something unexpected.
                self.deliver(body)
            else:
                post.is_answered = is_done = True
                # First: handling the answer may need a connection.
                done_with(True)
                self._receiver.on_answer(line, message)
        except Exception as error:
            if not is_done:
                done_with(False)
            self.broken(post, error)
            return
        if not is_done:
            done_with(post.is_answered)
        if post.is_answered:
            self.over(post)
        else:
            post.task = self.run_to_end(post, post.answered_something_else())

    def session_lost(self) -> None:
        """The server has lost our session. Requests refused for that reason get no answer."""
        if self._is_session_lost or self._is_closed:
            return
        self._is_session_lost = True
        for post in self._waiting:
            self._posts.pop(post.id, None)
            post.sent()
        self._waiting.clear()
        if self._standalone is not None:
            self._standalone.stop()
        self._loop.call_later(SESSION_LOST_GRACE, self._close_lost)

    def close(self, reason: str) -> None:
        """The server is gone as a whole."""
        if not self._is_closed:
            self._is_closed = True
            self._receiver.on_closed(reason)

    async def use_sse_transport(self) -> HttpTarget:
        """Open the event stream of 2024-11-05. From now on messages are POSTed to the address that it names."""
        sse = SseTransport(self._session.client, self._session.target, self._session.limit, self)
        try:
            target = await sse.open()
        except BaseException:
            await sse.stop()
            raise
        self._sse = sse
        self._session.target, self._session.is_sse = target, True
        return target

    @property
    def is_sse(self) -> bool:
        """Whether this is a server of 2024-11-05 (`UrlLink`)."""
        return self._session.is_sse

    # ── what is sent ──

    def _dispatch(self, summary: MessageSummary, body: bytes) -> None:
        if self._held is not None:
            self._hold(self._held, summary, body)
        elif summary.kind == "request":
            self._request(summary, body)
        elif summary.cancels is not None:
            self._cancel(summary.cancels, summary, body)
        elif summary.method == "notifications/initialized":
            self._held = []
            self._start(self._send_initialized(summary, body))
        elif self._is_modern and summary.kind == "notification":
            log.debug("%s: the modern era has no `%s` over HTTP", self._session.origin, summary.method)
        else:
            self._one_way.put(summary, body)

    def _hold(self, held: list[HeldMessage], summary: MessageSummary, body: bytes) -> None:
        cancelled = summary.cancels
        if cancelled is not None:
            # A request that was never sent is dropped, rather than sent after its caller was told that it failed.
            for number, (other, waiting, _) in enumerate(held):
                if other.kind == "request" and other.id == cancelled:
                    self.unsent_bytes -= len(waiting)
                    del held[number]
                    return
        if fits(self.unsent_bytes + len(body), len(body)):
            self.unsent_bytes += len(body)
            held.append((summary, body, copy_context()))
        elif summary.kind == "request" and summary.id is not None:
            why = refusal(self.unsent_bytes, len(body))
            self._loop.call_soon(self._receiver.on_request_failed, summary.id, why)

    def _request(self, summary: MessageSummary, body: bytes) -> None:
        assert summary.id is not None
        if self.transport == "sse" and not self.is_sse:
            if summary.method == "server/discover":
                # A server of 2024-11-05 cannot know this method, and some crash on unknown methods.
                answer = error_response(summary.id, METHOD_NOT_FOUND, "HTTP+SSE servers are of the legacy era")
                self._loop.call_soon(self._receiver.on_message, answer)
                return
            self._held = [(summary, body, copy_context())]
            self.unsent_bytes += len(body)
            self._start(self._open_sse())
            return
        self._is_modern = summary.version is not None
        session, method, is_modern = self._session, summary.method, self._is_modern
        has_session = session.id is not None and not is_modern and method != "initialize"
        self._enter(Post(session, self, summary.id, method, body, is_modern, has_session, {}), None)

    def _enter(self, post: Post, head: bytes | None) -> None:
        self._posts[post.id] = post
        post.context = copy_context()
        size = len(post.body)
        self.unsent_bytes += size
        if self.unsent_bytes > MAX_UNSENT_BYTES and not fits(self.unsent_bytes, size):
            post.sent()
            self._loop.call_soon(self._fail, post, refusal(self.unsent_bytes, size))
        elif self._running >= MAX_CONCURRENT_POSTS and post.method != _ENDLESS:
            self._waiting.append(post)
        else:
            self._run(post, head)

    def _run(self, post: Post, head: bytes | None = None) -> None:
        if post.method != _ENDLESS:
            self._running += 1
        if head is not None:
            post.connection = self._session.client.begin(
                self._session.target, head, post.body, post, soon=self._running > 1
            )
        if post.connection is None:
            post.task = self.run_to_end(post, post.run())

    def run_to_end(self, post: Post, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the remaining work for a request as a task."""

        def done(_: asyncio.Task[None]) -> None:
            # Not in the task itself: a task that is cancelled before its first step never runs.
            work.close()
            self.over(post)

        task = self._task(self._run_to_end(post, work), post.context)
        task.add_done_callback(done)
        return task

    async def _run_to_end(self, post: Post, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fail(post, self._session.explain(error))

    def broken(self, post: Post, error: Exception) -> None:
        """A request without a task has failed."""
        self._fail(post, self._session.explain(error))
        self.over(post)

    def over(self, post: Post) -> None:
        """A request is finished."""
        post.release()
        if self._sse is None and self._posts.get(post.id) is post:
            del self._posts[post.id]
        if post.method != _ENDLESS:
            self._running -= 1
        while self._waiting and self._running < MAX_CONCURRENT_POSTS and not self._is_closed:
            self._run(self._waiting.popleft())
        if self._is_session_lost and not self._running:
            self._close_lost()

    def _cancel(self, id: bytes, summary: MessageSummary, body: bytes) -> None:
        post = self._posts.get(id)
        if post is not None and post in self._waiting:
            self._waiting.remove(post)
            self._posts.pop(id)
            post.sent()
        elif post is not None and post.is_modern:
            # A modern server learns of it by the closed connection.
            post.cancel()
        elif post is not None:
            # The client no longer waits for the answer, and a conforming server sends none. In this era a disconnect
            # does not cancel, so the notification is sent; the slot is free at once, even if it is not read.
            self._posts.pop(post.id, None)
            if not post.cancel():
                self._one_way.put(summary, body)

    async def _send_initialized(self, summary: MessageSummary, body: bytes) -> None:
        try:
            await self._one_way.send(summary, body)
            if not self.is_sse and not self._is_session_lost:
                self._standalone = StandaloneStream(self._session, self)
                self._standalone.task = self._task(self._standalone.run())
                # Requests that a server sends before the stream is open are lost, and their calls hang.
                await self._standalone.wait_open(LISTEN_FIRST_TIMEOUT)
        finally:
            self._release()

    async def _open_sse(self) -> None:
        try:
            await self.use_sse_transport()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            why = self._session.explain(error)
            for summary, _, _ in self._take_held():
                if summary.kind == "request" and summary.id is not None:
                    self._receiver.on_request_failed(summary.id, why)
            return
        self._release()

    def _release(self) -> None:
        for summary, body, context in self._take_held():
            if not self._is_closed:
                context.run(self._dispatch, summary, body)

    def _take_held(self) -> list[HeldMessage]:
        held, self._held = self._held or [], None
        self.unsent_bytes -= sum(len(body) for _, body, _ in held)
        return held

    # ── how things end ──

    def _fail(self, post: Post, error: DownstreamError) -> None:
        if self._posts.pop(post.id, None) is post and not post.is_answered and not self._is_closed:
            post.is_answered = True
            self._receiver.on_request_failed(post.id, error)

    def _close_lost(self) -> None:
        if self._is_closed:
            return
        for post in list(self._posts.values()):
            self._fail(post, DownstreamError("the server lost the session while handling the request"))
            post.cancel()
        self.close(SESSION_LOST)

    async def _end_session(self) -> None:
        try:
            async with asyncio.timeout(SESSION_DELETE_TIMEOUT):
                response = await self._session.request("DELETE", self._session.headers())
                response.release()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.debug("%s: the session was not ended: %s", self._session.origin, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        # `_tasks` keeps it alive until it is done.
        _ = self._task(work)

    def _task(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> asyncio.Task[None]:
        task = self._loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("internal error; please report it", exc_info=error)


class StandaloneStream:
    """The stream of a legacy server for messages that belong to no request of ours: opened by a GET, and again whenever
    it ends, for the lifetime of the link. Servers need not have one, and most do not."""

    def __init__(self, session: HttpSession, receiver: EventReceiver) -> None:
        self.task: asyncio.Task[None] | None = None
        self._session = session
        self._receiver = receiver
        self._has_received = False
        # Set when the server has answered or failed.
        self._is_tried = asyncio.Event()

    async def wait_open(self, seconds: float) -> None:
        """Return when the stream is open or has failed, at the latest after this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_tried.wait()

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Read until the server reports that it has no such stream."""
        parser = SseParser(self._session.limit)
        fruitless = 0
        while True:
            self._has_received = False
            again = SseParser(self._session.limit)
            again.last_id, again.retry, parser = parser.last_id, parser.retry, again
            try:
                if not await self._read(parser):
                    return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.debug("%s: its stream broke: %s", self._session.origin, error)
            self._is_tried.set()
            fruitless = 0 if self._has_received else fruitless + 1
            await asyncio.sleep(max(pause(parser.retry), min(2.0**fruitless / 2, MAX_REOPEN_INTERVAL)))

    async def _read(self, parser: SseParser) -> bool:
        """Read one connection. False if the server has no such stream."""
        session = self._session
        headers = {"accept": names.EVENT_STREAM, **session.headers()}
        if parser.last_id:
            headers[names.LAST_EVENT_ID] = header_safe(parser.last_id)
        response = await session.request("GET", headers)
        self._is_tried.set()
        try:
            if 400 <= response.status < 500 and response.status != 429:
                # 405 means that the server has none. Whether our session is lost is found out by the next POST: some
                # servers answer 404 to any GET.
                return False
            if response.status == 200 and response.content_type == names.EVENT_STREAM:
                await read_events(response, parser, session.limit, self._on_event)
            return True
        finally:
            response.release()

    def _on_event(self, event: ServerSentEvent) -> bool | Awaitable[bool]:
        self._has_received = True
        if event.type == "message" and len(event.data) > LONG_LINE:
            return deliver_large_event(self._receiver, event)
        if event.type == "message" and event.data:
            self._receiver.deliver(event.data)
        return False
