"""The connection to the state server: commands in one round trip, bounded, and whether it is there.

Owns the health of the state. While the server is away, `run` fails at once for all but patient callers, and probes find
out when it is back. Knows nothing about what the commands mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urlsplit, urlunsplit

from mcp_workbench.engine.lasting_state import StateUnavailable
from mcp_workbench.errors import ConfigError, package_hint

if TYPE_CHECKING:
    from valkey.asyncio import Valkey

log = logging.getLogger(__name__)

# For a whole round trip, connecting included. Calls never wait for it, and whoever does wait is a user who has just
# arrived from another instance.
STATE_TIMEOUT: Final = 0.2
# The same for what a client cannot be served without, whose alternative is an error: a machine that is too busy to get
# its answer within 200 ms gets it a little later, while another attempt would only begin anew.
PATIENT_TIMEOUT: Final = 2.0
MAX_CONNECTIONS_TO_STATE: Final = 8
# What goes into one round trip, if many users arrive at once.
MAX_JOINED: Final = 200
# A round trip that ends later than its timeout by this much was not timed by the server, but by a busy event loop.
LOOP_LAG: Final = 0.1
# A subscription without any message for this long is made again: our own heartbeat would have come back.
SILENCE_LIMIT: Final = 5.0
# Of what a server says of itself and of errors.
MAX_SHOWN: Final = 200
SENTINEL_SUFFIX: Final = "+sentinel"
SENTINEL_PORT: Final = 26379
# Nodes of a Valkey or Redis Cluster.
CLUSTER_SUFFIX: Final = "+cluster"
NODE_PORT: Final = 6379
NONSENSE: Final = "it answers with something else than it was asked for"
_LEFT: Final = "this instance has left the cluster"
Argument = str | bytes | int


class StateAway(StateUnavailable):
    """The state server cannot be used now; the message says why."""


class OtherType(StateAway):
    """Something else lies under the names of values. The server itself can be used."""

    def __init__(self, commands: Sequence[tuple[Argument, ...]]) -> None:
        """`commands`: those that found it. All others have been carried out."""
        super().__init__("something else lies under the name of a value")
        self.commands = commands


class _Node(NamedTuple):
    host: str
    port: int


class _Lane:
    """Callers who share round trips: a few at a time, each bounded."""

    def __init__(self, connections: int, timeout: float) -> None:
        self.turns = asyncio.Semaphore(connections)
        self.asked: deque[_Asked] = deque()
        self.timeout = timeout


class _Asked:
    """Commands of one caller, and their replies once they are there."""

    __slots__ = ("commands", "done", "failure", "replies")

    def __init__(self, commands: Sequence[tuple[Argument, ...]]) -> None:
        self.commands = commands
        self.done = asyncio.Event()
        self.replies: list[Any] = []
        self.failure: Exception | None = None


class ValkeyLink:
    def __init__(self, url: str, password: str | None = None) -> None:
        """Raises `ConfigError`."""
        try:
            from valkey.asyncio.retry import Retry
            from valkey.backoff import NoBackoff
        except ImportError:
            raise ConfigError(
                "`cluster` needs the Python package `valkey`, which is not installed", hint=package_hint("valkey")
            ) from None
        self.address = without_password(url)
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "protocol": 2}
        # Round trips have timeouts of their own. These are for what the library does when it has lost a cancellation.
        options["socket_connect_timeout"] = max(STATE_TIMEOUT, PATIENT_TIMEOUT)
        if password is not None:
            options["password"] = password
        if _is_encrypted(url):
            # The library would send the password to whoever has a certificate for any host.
            options["ssl_check_hostname"] = True
        self._options = options
        self._url = url
        # Of a Valkey Cluster: the nodes that we were told of, and the one that is asked now. All keys lie on one node.
        self._nodes: deque[_Node] = deque()
        self._node: _Node | None = None
        try:
            if urlsplit(url).scheme.endswith(CLUSTER_SUFFIX):
                self._nodes.extend(nodes_of(url))
                self._node = self._nodes[0]
            self._client, self._listening = self._connect()
        except ValueError as error:
            raise ConfigError(f"the address of the cluster's state cannot be used: {error}") from None
        # Connections to nodes that are no longer asked are closed by these.
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        # Many users may arrive at once: they share a few connections, and the round trips on them.
        self._lane = _Lane(MAX_CONNECTIONS_TO_STATE, STATE_TIMEOUT)
        self._patient_lane = _Lane(1, PATIENT_TIMEOUT)
        self._trips: set[asyncio.Task[None]] = set()
        # Why it cannot be used now; None while it can, and before it was first used.
        self.problem: str | None = None
        # When it went away (`time.monotonic`); None while it can be used.
        self.away_since: float | None = None
        self._is_back = asyncio.Event()
        # Seconds of the last round trip; None before the first.
        self.latency: float | None = None
        # How often it went away.
        self.outages = 0

    def _connect(self) -> tuple[Valkey, Valkey]:
        """For commands, and to listen for as long as there is nothing to read. Raises `ValueError`."""
        url, connect = self._url, _directly
        if self._node is not None:
            url = _url_of(url, self._node)
        elif urlsplit(url).scheme.endswith(SENTINEL_SUFFIX):
            connect = _through_sentinels
        bounded = {**self._options, "socket_timeout": self._options["socket_connect_timeout"]}
        return connect(url, bounded), connect(url, self._options)

    def _move(self, node: _Node) -> None:
        """Ask this node of a Valkey Cluster from now on."""
        if node == self._node or self._is_closed:
            return
        before = self._client, self._listening
        self._node = node
        self._client, self._listening = self._connect()
        closing = asyncio.create_task(_close_after(set(self._trips), *before))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    @property
    def is_away(self) -> bool:
        return self.problem is not None

    async def wait_until_back(self, seconds: float) -> None:
        """Until a server that is away can be used again; at most for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_back.wait()

    async def run(
        self, commands: Sequence[tuple[Argument, ...]], *, is_probe: bool = False, is_patient: bool = False
    ) -> list[Any]:
        """Run these in one round trip and return their replies, which may be anything. `is_probe`: also while the
        server is away; `is_patient`: then as well, and for longer. Raises `StateAway`."""
        if self.problem is not None and not (is_probe or is_patient):
            raise StateAway(self.problem)
        lane = self._patient_lane if is_patient else self._lane
        asked = _Asked(commands)
        began = time.monotonic()
        try:
            try:
                await self._wait(asked, lane)
            except TimeoutError:
                # It was our own loop that was busy: the reply may have been there all the time.
                if time.monotonic() - began < lane.timeout + LOOP_LAG:
                    raise
                asked = _Asked(commands)
                await self._wait(asked, lane)
            if self._node is not None and (owner := _owner(asked.failure, self._node)) is not None:
                # Nothing was done there. Notices may have been told, which are heard once.
                self._move(owner)
                asked = _Asked(commands)
                await self._wait(asked, lane)
            if asked.failure is not None:
                raise asked.failure
        except StateAway:
            # We have left.
            raise
        except Exception as error:
            _raise_if_cancelled()
            raise self.away(_why(error)) from None
        _raise_if_cancelled()
        if not is_patient or time.monotonic() - began < STATE_TIMEOUT:
            # After a late reply to a patient caller, it would be away again for the next other one.
            self._note(None)
        if misplaced := [each for each, reply in zip(commands, asked.replies, strict=True) if _is_of_other_type(reply)]:
            raise OtherType(misplaced)
        return asked.replies

    async def _wait(self, asked: _Asked, lane: _Lane) -> None:
        """Until these have been sent, by us or with those of another caller."""
        lane.asked.append(asked)
        try:
            async with asyncio.timeout(lane.timeout):
                async with lane.turns:
                    while asked in lane.asked:
                        if self._is_closed:
                            # A connection that is made now would have no owner.
                            raise StateAway(_LEFT)
                        joined = [lane.asked.popleft() for _ in range(min(MAX_JOINED, len(lane.asked)))]
                        trip = asyncio.create_task(self._send(joined, lane.timeout))
                        self._trips.add(trip)
                        trip.add_done_callback(self._trips.discard)
                        # Others wait for it as well, whatever becomes of us, and of it.
                        await asyncio.wait([trip])
                await asked.done.wait()
        finally:
            with contextlib.suppress(ValueError):
                lane.asked.remove(asked)

    async def _send(self, joined: list[_Asked], timeout: float) -> None:
        """Send the commands of several callers in one round trip."""
        began = time.monotonic()
        try:
            pipeline = self._client.pipeline(transaction=False)
            for asked in joined:
                for command in asked.commands:
                    pipeline.execute_command(*command)
            async with asyncio.timeout(timeout):
                replies = cast("list[Any]", await pipeline.execute(raise_on_error=False))
        except (Exception, asyncio.CancelledError) as error:
            for asked in joined:
                asked.failure = error if isinstance(error, Exception) else StateAway(_LEFT)
                asked.done.set()
            return
        self.latency = time.monotonic() - began
        for asked in joined:
            own, replies = replies[: len(asked.commands)], replies[len(asked.commands) :]
            # Full, read-only, or not for us: what was to be written is not.
            failures = (each for each in own if isinstance(each, Exception) and not _is_of_other_type(each))
            asked.failure = next(failures, None)
            asked.replies = own
            asked.done.set()

    def _note(self, problem: str | None) -> None:
        before, self.problem = self.problem, problem
        if problem is not None and self._nodes:
            # Whichever answers says which one has our keys now.
            self._nodes.rotate(-1)
            self._move(self._nodes[0])
        if problem is not None and before is None:
            self.outages += 1
            self.away_since = time.monotonic()
            self._is_back.clear()
            log.warning(
                "the cluster's state at %s is away: %s; calls go on, and what is new is written when it is back",
                self.address,
                problem,
            )
        elif problem is None and before is not None:
            self.away_since = None
            self._is_back.set()
            log.info("the cluster's state at %s is back", self.address)

    def away(self, problem: str = NONSENSE) -> StateAway:
        """To be raised: the server cannot be used now."""
        self._note(problem)
        return StateAway(problem)

    async def messages(self, channel: str) -> AsyncIterator[bytes]:
        """What is published on a channel, until the subscription breaks."""
        async with self._listening.pubsub(ignore_subscribe_messages=True) as subscription:
            try:
                if not self._is_closed:
                    async with asyncio.timeout(STATE_TIMEOUT):
                        await subscription.subscribe(channel)
                silent_since = time.monotonic()
                while not self._is_closed and time.monotonic() - silent_since < SILENCE_LIMIT:
                    message = await subscription.get_message(ignore_subscribe_messages=True, timeout=1.0)
                    _raise_if_cancelled()
                    if message is not None:
                        silent_since = time.monotonic()
                        if isinstance(message["data"], bytes):
                            yield message["data"]
            except Exception:
                # Also what the library does not expect of a server: heartbeats tell what is wrong with it.
                _raise_if_cancelled()

    async def close(self) -> None:
        self._is_closed = True
        for trip in self._trips:
            trip.cancel()
        await asyncio.gather(*self._trips, return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await _close(self._client, self._listening)


async def _close_after(trips: set[asyncio.Task[None]], *clients: Valkey) -> None:
    # The library does not close a connection that is being made.
    await asyncio.gather(*trips, return_exceptions=True)
    await _close(*clients)


async def _close(*clients: Valkey) -> None:
    for one in (each for client in clients for each in _clients_of(client)):
        with contextlib.suppress(OSError, TimeoutError, _errors()):
            async with asyncio.timeout(STATE_TIMEOUT):
                await one.aclose()


def _raise_if_cancelled() -> None:
    """The library loses a cancellation that arrives while it connects or disconnects; whoever waits for our end would
    wait forever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _errors() -> type[Exception]:
    from valkey.exceptions import ValkeyError

    return cast("type[Exception]", ValkeyError)


def _is_of_other_type(reply: object) -> bool:
    """Whether a key holds another type than this command is for: that of one key says nothing about the others."""
    return isinstance(reply, Exception) and str(reply).startswith("WRONGTYPE")


def _owner(failure: Exception | None, asked: _Node) -> _Node | None:
    """Which node has the keys, if this one says that it has not: `MOVED 866 10.0.0.2:6379`."""
    words = str(failure).split()
    if len(words) != 3 or words[0] != "MOVED":
        return None
    host, _, port = words[2].rpartition(":")
    return _Node(host or asked.host, int(port)) if port.isdecimal() and int(port) < 2**16 else None


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError":
        return f"no answer within {STATE_TIMEOUT * 1000:.0f} ms"
    if not isinstance(error, (OSError, _errors())):
        # The library does not expect it of a server.
        return NONSENSE
    # The library's own messages end with the address, which we say ourselves.
    return printable((str(error) or type(error).__name__).splitlines()[0].rstrip("."))


def printable(text: str) -> str:
    """What a server says, for logs and terminals."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:MAX_SHOWN])


def _is_encrypted(url: str) -> bool:
    return urlsplit(url).scheme.partition("+")[0] in ("valkeys", "rediss")


def _directly(url: str, options: dict[str, Any]) -> Valkey:
    from valkey.asyncio import Valkey

    return cast("Valkey", Valkey.from_url(url, **options))


def _through_sentinels(url: str, options: dict[str, Any]) -> Valkey:
    """`valkey+sentinel://user@one:26379,two:26379/service/0`: whichever server the Sentinels call the master now.
    Raises `ValueError`."""
    from valkey.asyncio.connection import parse_url
    from valkey.asyncio.sentinel import Sentinel

    sentinels, service, database = sentinels_of(url)
    given = dict(parse_url(_url_of(url, _Node(*sentinels[0]))))
    for name in ("host", "port", "connection_class"):
        given.pop(name, None)
    options = {**options, **given, "ssl": _is_encrypted(url)}
    # Sentinels are asked within the same time; they have no password of their own.
    own = {"socket_timeout": STATE_TIMEOUT, "socket_connect_timeout": STATE_TIMEOUT, "retry": options["retry"]}
    known = Sentinel(sentinels, sentinel_kwargs=own, **options)  # type: ignore[no-untyped-call]
    return cast("Valkey", known.master_for(service, db=database))


def _clients_of(client: Valkey) -> list[Valkey]:
    """This client, and those by which it asks Sentinels: the library leaves them open."""
    known = getattr(client.connection_pool, "sentinel_manager", None)
    return [client, *(known.sentinels if known is not None else ())]


def sentinels_of(url: str) -> tuple[list[tuple[str, int]], str, int]:
    """The Sentinels, the service and the number of the database in an address. Raises `ValueError`."""
    service, _, database = urlsplit(url).path.strip("/").partition("/")
    if not service or not (database or "0").isdecimal():
        raise ValueError("after the Sentinels comes the name of the service, for example `/mymaster/0`")
    return list(_hosts_of(url, SENTINEL_PORT)), service, int(database or 0)


def nodes_of(url: str) -> list[_Node]:
    """The nodes of a Valkey Cluster in an address. Raises `ValueError`."""
    if urlsplit(url).path.strip("/") not in ("", "0"):
        raise ValueError("a Valkey Cluster has no numbers of databases")
    return [_Node(*each) for each in _hosts_of(url, NODE_PORT)]


def _hosts_of(url: str, port: int) -> Iterator[tuple[str, int]]:
    for each in urlsplit(url).netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{each}")
        if not one.hostname:
            raise ValueError("each of the servers is a host, with or without a port")
        yield one.hostname, one.port or port


def _url_of(url: str, node: _Node) -> str:
    """The address of one server, with what else is said of all of them."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    host = f"[{node.host}]" if ":" in node.host else node.host
    return urlunsplit((parts.scheme.partition("+")[0], f"{user}{at}{host}:{node.port}", "", parts.query, ""))


def without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username
    return urlunsplit((parts.scheme, f"{user}@{host}" if user else host, parts.path, "", ""))
