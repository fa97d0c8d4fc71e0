"""Sends spans to a collector over HTTP, in a thread of its own: no call waits for it, whatever the collector does.

Owns what waits to be sent, all of it bounded, and what was lost. What cannot be sent is tried again, later and later;
meanwhile the oldest is dropped for the newest.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection  # noqa: TID253
from typing import Final
from urllib.parse import urlsplit

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.version import full_version
from mcp_workbench.seeing.otlp_settings import OtlpSettings
from mcp_workbench.seeing.spans import TracedCall, encode_spans

log = logging.getLogger(__name__)

# Calls that wait to be sent: some minutes of a busy workbench, and a few MiB.
MAX_QUEUED: Final = 8192
# Calls in one request, each of them two spans: about 1 MiB before compression.
BATCH_SIZE: Final = 512
SEND_INTERVAL: Final = 5.0
# How long to wait after a failure, doubled with each further one; and the most that a collector's `Retry-After` delays.
FIRST_BACKOFF: Final = 1.0
MAX_BACKOFF: Final = 60.0
# At the end, for what is left.
FLUSH_TIMEOUT: Final = 2.0
# For the thread to notice that its connection was closed.
END_TIMEOUT: Final = 1.0
# An answer is a few bytes.
MAX_ANSWER: Final = 64 * 1024
# *OTLP/HTTP Response*: the same request may succeed later.
RETRYABLE: Final = frozenset({429, 502, 503, 504})
_LEVEL: Final = 1


class _Retry(Exception):
    """The collector may accept it later; it said when, if not 0."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class _PartialSuccess(Struct, frozen=True, rename="camel"):
    rejected_spans: int | str = 0
    error_message: str = ""


class _CollectorAnswer(Struct, frozen=True, rename="camel"):
    partial_success: _PartialSuccess = _PartialSuccess()


_read_answer: Final = Decoder(_CollectorAnswer).decode


class SpanSender:
    """The thread that sends begins with the first call."""

    def __init__(self, settings: OtlpSettings, conceal: Callable[[str], str] = str) -> None:
        self.settings = settings
        self._conceal = conceal
        parts = urlsplit(settings.url)
        self._where = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._queue: deque[TracedCall] = deque()
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: HTTPConnection | None = None
        # Calls whose spans were never accepted: for want of room, and by the thread.
        self._crowded_out = 0
        self._not_accepted = 0
        self._is_failing = False

    @property
    def dropped(self) -> int:
        """Calls whose spans are lost."""
        return self._crowded_out + self._not_accepted

    def put(self, call: TracedCall) -> None:
        """Called on the event loop; never waits."""
        queue = self._queue
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
            self._thread.start()
        if len(queue) >= MAX_QUEUED:
            with contextlib.suppress(IndexError):
                queue.popleft()
                self._crowded_out += 1
        queue.append(call)
        if len(queue) == BATCH_SIZE:
            self._wanted.set()

    def close(self) -> None:
        """Send what is left, for a short time. May block, so it is called in a thread."""
        self._closing.set()
        self._wanted.set()
        if self._thread is None:
            return
        self._thread.join(FLUSH_TIMEOUT)
        if self._thread.is_alive():
            connection = self._connection
            if connection is not None and connection.sock is not None:
                # The collector hangs; this wakes the thread.
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            self._thread.join(END_TIMEOUT)

    # ── the thread ──

    def _run(self) -> None:
        try:
            while not (self._closing.is_set() and not self._queue):
                self._wanted.wait(SEND_INTERVAL)
                self._wanted.clear()
                while self._queue:
                    self._deliver(self._take())
                    if len(self._queue) < BATCH_SIZE and not self._closing.is_set():
                        break
        except Exception:
            log.exception("traces are no longer sent; please report this")
        finally:
            if self._connection is not None:
                self._connection.close()

    def _take(self) -> list[TracedCall]:
        batch: list[TracedCall] = []
        take, add = self._queue.popleft, batch.append
        with contextlib.suppress(IndexError):
            for _ in range(BATCH_SIZE):
                add(take())
        return batch

    def _deliver(self, batch: list[TracedCall]) -> None:
        """Send a batch until it is accepted or refused, or we end."""
        try:
            body = encode_spans(batch, self.settings.resource, full_version())
        except Exception:
            # One bad call must not end all traces.
            log.exception("traces of %d calls could not be encoded; please report this", len(batch))
            self._not_accepted += len(batch)
            return
        if self.settings.is_compressed:
            body = gzip.compress(body, _LEVEL)
        backoff = FIRST_BACKOFF
        while True:
            try:
                self._not_accepted += self._post(body, len(batch))
                return
            except (_Retry, OSError, HTTPException) as error:
                self._disconnect()
                after = min(error.after, MAX_BACKOFF) if isinstance(error, _Retry) else 0.0
                self._tell_failure(str(error) or type(error).__name__)
                if self._closing.wait(max(after, backoff)):
                    # There is no time for another attempt.
                    self._not_accepted += len(batch) + len(self._queue)
                    self._queue.clear()
                    return
                backoff = min(backoff * 2, MAX_BACKOFF)

    def _post(self, body: bytes, calls: int) -> int:
        """Returns how many of the calls were refused. Raises if it makes sense to try again."""
        connection = self._connection or self._connect()
        headers = {"content-type": "application/json", "user-agent": f"mcp-workbench/{full_version()}"}
        if self.settings.is_compressed:
            headers["content-encoding"] = "gzip"
        connection.request("POST", self._path, body, {**headers, **self.settings.headers})
        response = connection.getresponse()
        answer = response.read(MAX_ANSWER)
        if response.will_close or not response.isclosed():
            self._disconnect()
        if response.status in RETRYABLE:
            raise _Retry(f"it answered {response.status}", _retry_after(response))
        if not 200 <= response.status < 300:
            log.warning("%s refused traces of %d calls with %d", self._where, calls, response.status)
            return calls
        if self._is_failing:
            self._is_failing = False
            log.info("traces are sent to %s again", self._where)
        return self._refused_in(answer, calls)

    def _refused_in(self, answer: bytes, calls: int) -> int:
        if b"artialSuccess" not in answer and b"artial_success" not in answer:
            return 0
        try:
            partial = _read_answer(answer).partial_success
            refused = int(partial.rejected_spans)
        except (DecodeError, ValidationError, ValueError):
            return 0
        if refused:
            log.warning("%s refused %d spans: %s", self._where, refused, self._conceal(partial.error_message[:200]))
        # Two spans a call.
        return min(calls, -(-refused // 2))

    def _connect(self) -> HTTPConnection:
        parts, timeout = urlsplit(self.settings.url), self.settings.timeout
        assert parts.hostname is not None
        if parts.scheme == "https":
            import ssl

            context = ssl.create_default_context(cafile=self.settings.certificate)
            self._connection = HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
        else:
            self._connection = HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tell_failure(self, why: str) -> None:
        # Once, until it works again.
        if not self._is_failing and not self._closing.is_set():
            self._is_failing = True
            log.warning(
                "traces cannot be sent to %s (%s); calls go on, and it is tried again", self._where, self._conceal(why)
            )


def _retry_after(response: HTTPResponse) -> float:
    """The seconds that the collector asks for: a number, or a date. 0 if it says nothing that can be read."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:10])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
