"""One HTTP response, written from callbacks.

ASGI's `send` is a coroutine, but one that waits only when the client does not read. So it is run to its end right
where an answer arrives, and a task is started only for the rest of a write that has to wait: an answer then costs no
switch to another task.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from typing import Any, Protocol

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Send = Callable[[Message], Coroutine[Any, Any, None]]
Receive = Callable[[], Awaitable[Message]]
StartTask = Callable[[Awaitable[None]], "asyncio.Task[None]"]
Headers = tuple[tuple[bytes, bytes], ...]


class ClientConnection(Protocol):
    """What a response has to know of the connection that it leaves on."""

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""

    def abort(self) -> None:
        """Close at once; what is unsent is dropped."""


class Outlet:
    """The response to one request."""

    __slots__ = (
        "_connection",
        "_extra",
        "_is_waiting",
        "_queue",
        "_queued_bytes",
        "_rest",
        "_send",
        "_start_task",
        "is_over",
    )

    def __init__(self, send: Send, start_task: StartTask, connection: ClientConnection | None) -> None:
        self._send = send
        self._start_task = start_task
        self._connection = connection
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._is_waiting = False
        self._rest: asyncio.Task[None] | None = None
        self._extra: Headers = ()
        # Nothing more will be written: it is whole, or the client is gone.
        self.is_over = False

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        return self._queued_bytes + (0 if self._connection is None else self._connection.unsent_bytes)

    def add_headers(self, headers: Headers) -> None:
        """Headers for this response, whatever it will be."""
        self._extra += headers

    def answer(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """A whole response."""
        # A 204 has no body, and must not say so (RFC 9110, 8.6).
        length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
        self.begin(status, (*headers, *length))
        self.finish(body)

    def begin(self, status: int, headers: Headers) -> None:
        """The head of a response that is written in pieces."""
        self._put({"type": "http.response.start", "status": status, "headers": (*headers, *self._extra)})

    def write(self, data: bytes) -> None:
        """A piece of it."""
        self._put({"type": "http.response.body", "body": data, "more_body": True})

    def finish(self, data: bytes = b"") -> None:
        """The last piece."""
        self._put({"type": "http.response.body", "body": data, "more_body": False})
        self.is_over = True

    def abandon(self) -> None:
        """The client is gone, or is given up; nothing more is written."""
        self.is_over = True
        self._queue.clear()
        self._queued_bytes = 0

    def abort(self) -> None:
        """Give the client up: it does not read."""
        self.abandon()
        if self._connection is not None:
            self._connection.abort()

    def _put(self, message: Message) -> None:
        if self.is_over:
            return
        if self._is_waiting:
            self._queue.append(message)
            self._queued_bytes += len(message.get("body", b""))
            return
        sending = self._send(message)
        try:
            waits_for = sending.send(None)
        except StopIteration:
            return
        self._is_waiting = True
        self._rest = self._start_task(self._send_rest(_Begun(sending, waits_for)))

    async def _send_rest(self, begun: _Begun) -> None:
        await begun
        while self._queue:
            message = self._queue.popleft()
            self._queued_bytes -= len(message.get("body", b""))
            await self._send(message)
        self._is_waiting = False


class _Begun:
    """The rest of a coroutine that was run outside of any task until it came to a wait."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, None, None]:
        waits_for = self._waits_for
        try:
            while True:
                # The same future that the coroutine waits for; the task that awaits us waits for it instead.
                yield waits_for
                try:
                    waits_for = self._coroutine.send(None)
                except StopIteration:
                    return
        finally:
            self._coroutine.close()
