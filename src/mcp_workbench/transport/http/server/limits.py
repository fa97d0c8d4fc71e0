"""What one client may cost us, each bound with its reason. Tests make them small."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# Names, tokens, cookies of a proxy in front of us: servers in the field allow 8 to 64 KiB.
MOST_HEAD_BYTES: Final = 64 * 1024
# Of the soft limit on open files this share may be connections; the rest is for servers, logs and ourselves.
SHARE_OF_FILES: Final = 0.75
# Of the connections that we hold, those from one peer that have not authenticated may be this share; in all, twice it.
UNAUTHENTICATED_SHARE: Final = 0.25
# No connection is closed for their number before this: a burst of clients needs a moment to be served.
UNAUTHENTICATED_SECONDS: Final = 2.0
# Waiting in the kernel until we accept them; a burst of a thousand clients should not see refusals.
BACKLOG: Final = 2048
# From this many connections on, what they took (see `Limits.connections`) is worth giving back when most are gone.
CROWD: Final = 1000
# Beyond this many messages in one batch somebody is not batching but flooding.
MOST_IN_BATCH: Final = 100
# A refused upload is read on for a moment, so that the client gets to see why; a closed socket would hide it.
LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 8 * 1024 * 1024
# Requests that a client sends ahead before it has its answers. Nobody who does means more than a few.
MOST_PIPELINED: Final = 16
# A body up to this size is in the kernel's buffer already; reading it past a refusal keeps the connection usable. Such
# bodies come in however much is under way.
SMALL_BODY: Final = 64 * 1024
# A longer body is joined and read in a thread, where a hundred megabytes take a second or two and nobody else waits. Up
# to this it is done at once, in some ten milliseconds, and costs less.
LARGE_BODY: Final = 8 * 1024 * 1024
# Some clients send an empty object where no body is asked for. Nothing of it is kept.
MOST_UNUSED_BODY: Final = 4 * 1024
# What a client whose large body found no room is told to wait: most uploads are over by then.
ROOM_RETRY_SECONDS: Final = 5
# What a client is told to wait whose credentials cannot be looked at because the identity provider does not answer.
AUTHENTICATION_RETRY_SECONDS: Final = 5


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds that a test, or one day a setting, may want to change."""

    # The largest message, as everywhere.
    message_bytes: int = 128 * 1024 * 1024
    # Agents open a handful of connections each; this is a thousand of them. Measured on 2,000: 2.8 KB for a connection
    # that waits, 6 KB with a legacy session that has called; so that all of them are some 30 to 60 MB.
    connections: int = 10_000
    # Connections that have not authenticated: from one peer, and in all. Every client begins as one, for a moment.
    unauthenticated_per_peer: int = 1000
    unauthenticated: int = 2000
    # From the first byte of a request to the end of its headers. Clients on the worst of networks need two or three.
    head_seconds: float = 10.0
    # In each stretch of this many seconds a body brings at least so many bytes for each of them, or it ends.
    body_seconds: float = 20.0
    body_rate: int = 8 * 1024
    # The bodies of all requests that are arriving: two of the largest messages.
    body_bytes_in_all: int = 256 * 1024 * 1024
    # How long a connection may wait for its next request: longer than the pause between two steps of an agent.
    keep_alive_seconds: float = 75.0
    # Proxies cut connections that are silent for 30 to 60 seconds.
    comment_seconds: float = 15.0
    # A request of a client that can resume gets an event stream after this long without an answer, so that a broken
    # connection does not lose it. Until then an answer is plain JSON, which is cheaper for both sides.
    prime_seconds: float = 1.0
    # What we tell a client to wait before it resumes.
    retry_milliseconds: int = 1000
    # How long after its end a stream can be resumed; a laptop that wakes up is back within this.
    resume_seconds: float = 120.0
    # Events kept for resuming: for one session, and for all of them together.
    replay_bytes: int = 16 * 1024 * 1024
    replay_bytes_in_all: int = 128 * 1024 * 1024
    # Streams of one session that are at their end and can be resumed. The oldest goes first.
    kept_streams: int = 1000
    # Messages that belong to no request wait for a client that has no stream open.
    waiting_messages: int = 1000
    sessions: int = 10_000
    # Half an hour of silence; a client that comes back later gets 404 and shakes hands again, as it must be able to.
    session_idle_seconds: float = 1800.0
    # A full table makes room by evicting the session that was not used for longest, if it was quiet for this long.
    evict_after_seconds: float = 60.0
    # What a connection leaves unread until it is not read from either: who does not read should not ask.
    pause_bytes: int = 1024 * 1024
    # Such a connection is dropped when nothing more of it is read for this long; nobody is that slow and still there.
    unread_seconds: float = 60.0
    # What all such connections may hold together: two of the largest messages. Whoever has not read for longest goes.
    unread_bytes_in_all: int = 256 * 1024 * 1024
    # What a client that does not read may make pile up on a stream, beyond one message of the largest size.
    unread_bytes: int = 16 * 1024 * 1024
