"""What one client may cost us, each limit with its reason. Tests use smaller ones."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# Names, tokens, cookies of a proxy in front of us: servers in the field allow 8 to 64 KiB.
MAX_REQUEST_HEAD_BYTES: Final = 64 * 1024
# The share of the soft limit on open files for connections; the rest is for servers, logs and ourselves.
SHARE_OF_FILES: Final = 0.75
# The share of connections that one unauthenticated peer may hold; all unauthenticated peers together may hold twice it.
UNAUTHENTICATED_SHARE: Final = 0.25
# No connection is closed because of their number before this: a burst of clients needs a moment to be served.
UNAUTHENTICATED_GRACE: Final = 2.0
# Connections waiting in the kernel to be accepted; a burst of a thousand clients should not be refused.
LISTEN_BACKLOG: Final = 2048
# After at least this many connections, their memory (see `Limits.connections`) is worth returning to the system.
CROWD: Final = 1000
# A larger batch is not batching but flooding.
MAX_BATCH_MESSAGES: Final = 100
# Keep reading a refused upload for a moment, so that the client sees the response; closing early would destroy it.
REFUSED_UPLOAD_LINGER_TIMEOUT: Final = 1.0
LINGER_BYTES: Final = 8 * 1024 * 1024
# `Limits.retry_milliseconds` where another instance answers for one that has ended: its calls are to fail within a
# second, but clients try twice only to open their stream of notifications again.
RETRY_ELSEWHERE_MILLISECONDS: Final = 400
# Requests that a client sends before it has its answers. Clients that pipeline send a few.
MAX_PIPELINED_REQUESTS: Final = 16
# A body up to this size is in the kernel's buffer already; reading it after a refusal keeps the connection usable. Such
# bodies are accepted whatever else is in progress.
SMALL_BODY: Final = 64 * 1024
# A larger body is joined and read in a thread, where a hundred megabytes take a second or two and block no other
# client. A smaller one is read at once, in a millisecond or two, which costs less.
LARGE_BODY: Final = 1024 * 1024
# Some clients send an empty object where no body is expected. It is discarded.
MAX_UNUSED_BODY_BYTES: Final = 4 * 1024
# `Retry-After` for a large body when the budget is used up: most uploads have finished by then.
BUDGET_RETRY_AFTER: Final = 5
# `Retry-After` when credentials cannot be checked because the identity provider does not answer.
AUTHENTICATION_RETRY_AFTER: Final = 5

# `Retry-After` when it cannot be found out whether another instance has a session. The state is probed more often.
SESSION_RETRY_AFTER: Final = 1


class Limits(Struct, frozen=True, kw_only=True):
    """Limits that settings and tests can change."""

    # The largest message, the same on all transports.
    message_bytes: int = 128 * 1024 * 1024
    # Agents open a handful of connections each, so this allows for a thousand agents. Measured on 2,000: 2.8 KB for an
    # idle connection, 6 KB with a legacy session that has made calls; the maximum is some 30 to 60 MB.
    connections: int = 10_000
    # Unauthenticated connections: from one peer, and in total. Every client begins as one, for a moment.
    unauthenticated_per_peer: int = 1000
    unauthenticated: int = 2000
    # From the first byte of a request to the end of its headers. Clients on very poor networks need two or three.
    head_seconds: float = 10.0
    # In each window of this many seconds a body must average this many bytes per second, or the request ends.
    body_seconds: float = 20.0
    body_rate: int = 8 * 1024
    # The bodies of all requests that are arriving: two of the largest messages.
    body_bytes_in_all: int = 256 * 1024 * 1024
    # How long a connection may idle between requests: longer than the pause between two steps of an agent.
    keep_alive_seconds: float = 75.0
    # Proxies cut connections that are silent for 30 to 60 seconds.
    comment_seconds: float = 15.0
    # If the client can resume, its request gets an event stream after this long without an answer, so that a broken
    # connection does not lose it. Until then an answer is plain JSON, which is cheaper for both sides.
    prime_seconds: float = 1.0
    # The `retry` value sent to clients: how long to wait before resuming.
    retry_milliseconds: int = 1000
    # How long after its end a stream can be resumed; a laptop that wakes up is back within this.
    resume_seconds: float = 120.0
    # Events kept for resuming: for one session, and for all sessions.
    replay_bytes: int = 16 * 1024 * 1024
    replay_bytes_in_all: int = 128 * 1024 * 1024
    # Ended streams of one session that can still be resumed. The oldest is dropped first.
    kept_streams: int = 1000
    # Messages that belong to no request, kept for a client without an open stream.
    waiting_messages: int = 1000
    sessions: int = 10_000
    # A client that is idle for longer gets 404 and has to send `initialize` again, as the specification requires it to.
    session_idle_seconds: float = 1800.0
    # A full table evicts the least recently used session if it has been idle for this long.
    evict_after_seconds: float = 60.0
    # Above this many unread bytes we stop reading from a connection: a client that does not read should not send more.
    pause_bytes: int = 1024 * 1024
    # Such a connection is dropped when nothing more is read for this long; a client that slow is gone.
    unread_seconds: float = 60.0
    # What all such connections may hold: two of the largest messages. The longest stalled is dropped first.
    unread_bytes_in_all: int = 256 * 1024 * 1024
    # Unread bytes that may accumulate on one stream, beyond one message of the largest size.
    unread_bytes: int = 16 * 1024 * 1024
