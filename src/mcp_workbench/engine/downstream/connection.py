"""One connection to one server: its state, who waits for it, and when its server is started and stopped.

Owns what outlives a single run of the server: the state, the restart policy, the last error, and its principal. A run
is owned by `ServerRun`, the messages on its link by `Traffic`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Servers
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.lifecycle import Event, RestartPolicy, State, next_state, quiet_future
from mcp_workbench.engine.downstream.server_run import ServerRun
from mcp_workbench.engine.downstream.server_subscriptions import ServerSubscriptions
from mcp_workbench.engine.downstream.sharing import Caller, is_everyones, withheld
from mcp_workbench.engine.downstream.traffic import Traffic
from mcp_workbench.engine.protocol.meta import ClientIdentity
from mcp_workbench.engine.protocol.revisions import Revision
from mcp_workbench.engine.transport.link import SESSION_LOST
from mcp_workbench.errors import DownstreamError, ServerGone, SignInNeeded

if TYPE_CHECKING:
    from mcp_workbench.engine.config.model import ServerConfig
    from mcp_workbench.engine.downstream.clients import ClientPeer
    from mcp_workbench.engine.downstream.server_link import LinkOpener

log = logging.getLogger(__name__)
# For how long after its last call a client without a session counts as connected. As long as a session over HTTP that
# is not used.
PRESENCE_LIMIT: Final = 1800.0
# A server that ends so soon after its handshake failed at something that it does when it starts.
EARLY_DEATH_WINDOW: Final = 5.0
# Changes that are announced together are fetched together: after a pause, or at the latest after a second.
REFRESH_PAUSE: Final = 0.1
REFRESH_AT_LATEST: Final = 1.0


# The lists of one server: when they are fetched, what waits for them, and for how long they are valid.
# Owns those times and the announced changes. Knows nothing about how lists are fetched: the owner task of the
# connection does that when it is woken up.
class ListRefresh:
    """The lists of one connection, across all runs of its server. `wake` wakes up the owner task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._listed = quiet_future(loop)
        # Whether the owner task has to fetch them.
        self.is_due = False
        # Lists that the server announced as changed, and that have not been fetched since.
        self._announced: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0
        self._listed_at = 0.0
        self._ttls: dict[str, int] = {}
        # Since when a response is awaited; None if no request is in progress.
        self._asked_at: float | None = None

    # ── for those who wait ──

    async def wait(self) -> None:
        """Return when the server has been listed. Raises the error if that failed."""
        await asyncio.shield(self._listed)

    @property
    def is_done(self) -> bool:
        """Whether the current run of the server has been listed."""
        return self._listed.done() and self._listed.exception() is None

    @property
    def has_failed(self) -> bool:
        """Whether fetching the lists failed the last time."""
        return self._listed.done() and self._listed.exception() is not None

    def request(self) -> None:
        """Have the lists fetched again, unless that is already awaited."""
        if self._listed.done():
            self._listed = quiet_future(self._loop)
            self._fetch_now()

    def has_expired(self, kinds: Iterable[str]) -> bool:
        """Whether one of these lists has expired. A list without `ttlMs` never does."""
        age = (self._loop.time() - self._listed_at) * 1000
        return any(age >= self._ttls[kind] for kind in kinds if kind in self._ttls)

    def has_been_asking_for(self, seconds: float) -> bool:
        """Whether the lists were requested longer ago than this, and have not arrived."""
        return self._asked_at is not None and self._loop.time() - self._asked_at > seconds

    # ── what the server says ──

    def on_changed(self, kind: str) -> None:
        """The server announced that one of its lists has changed."""
        self._announced.add(kind)
        self.refresh_soon()

    def refresh_soon(self) -> None:
        """Schedule a fetch, because something may have changed."""
        now = self._loop.time()
        if self._timer is None:
            self._latest = now + REFRESH_AT_LATEST
        else:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, min(REFRESH_PAUSE, self._latest - now)), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._fetch_now()

    def _fetch_now(self) -> None:
        self.is_due = True
        self._wake()

    # ── for the owner task ──

    def on_start(self) -> None:
        """The server is being started; its lists are fetched as soon as it is ready."""
        self._listed = quiet_future(self._loop)
        self.is_due = False

    def on_end(self, error: DownstreamError) -> None:
        """The server has ended: nothing will be listed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._listed.done():
            self._listed.set_exception(error)

    def on_asked(self) -> frozenset[str]:
        """The lists are being fetched. Returns those whose change has been announced so far."""
        self.is_due = False
        self._asked_at = self._loop.time()
        announced, self._announced = frozenset(self._announced), set()
        return announced

    def on_listed(self, ttls: dict[str, int]) -> None:
        """The lists have arrived; `ttls` are their lifetimes in milliseconds, counted from the request."""
        self._listed_at, self._asked_at = self._asked_at or self._loop.time(), None
        self._ttls = ttls

    def on_learnt(self) -> None:
        """The lists have been processed: release the callers that wait."""
        if self._listed.done():
            self._listed = quiet_future(self._loop)
        self._listed.set_result(None)

    def on_not_listed(self, announced: frozenset[str]) -> None:
        """Fetching failed: the previous lists keep their age, and announced changes are still to be fetched."""
        self._asked_at = None
        self._announced |= announced


class Connection:
    """A server of a toolbox, for the callers that share it."""

    def __init__(
        self,
        entry: ServerEntry,
        servers: Servers,
        caller: Caller,
        own_info: bytes,
        open_link: LinkOpener,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        owner: ConnectionOwner,
    ) -> None:
        self.entry = entry
        self.label = entry.label
        self.config = entry.config
        # Its first caller, whose capabilities are declared in a handshake. All callers have the same principal.
        self.caller = caller
        self.identity = ClientIdentity(own_info, caller.capabilities, caller.era)
        self.state = State.CONFIGURED if entry.offer is None else State.KNOWN
        self.policy = RestartPolicy()
        self.last_error: DownstreamError | None = None
        self.last_error_at = 0.0
        self.failed_at = float("-inf")
        # Suggests what a server that does not start may be missing, from its output.
        self.advise: Callable[[str], str | None] = lambda said: None
        # How its process is confined, for `status`; None until it is started, and for addresses.
        self.sandbox: dict[str, object] | None = None
        # The owner of the sign-in's secrets in the redactor.
        self.secrets_owner: object = None
        # How often its sandbox refused which host, over all of its runs.
        self.refused_hosts: dict[str, int] = {}
        self.starts = 0
        # Lines that its processes have written to stderr.
        self.stderr_lines = 0
        # How many callers are waiting for it to start.
        self.waiting = 0
        self.started_at = 0.0
        self._servers = servers
        self._open_link = open_link
        self._start_task = start_task
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.traffic = Traffic(
            self.label,
            self.identity,
            self,
            withheld=withheld(entry.config),
            is_everyones=is_everyones(entry.config),
        )
        # The counts of earlier runs of the server.
        self._counted_before = (0, 0, 0, 0)
        self.lists = ListRefresh(self._loop, self._wake)
        self.subscriptions = ServerSubscriptions(
            start_task, entry.config.timeout, self.lists.refresh_soon, caller.capabilities
        )
        # Until when the server must not be stopped as idle, because a task outlives its call.
        self.held_until = 0.0
        self._ready = quiet_future(self._loop)
        # The newest run, and its task.
        self.run: ServerRun | None = None
        self._task: asyncio.Task[None] | None = None
        # The tasks of all runs that have not ended: one, unless a crashed run is still cleaning up.
        self._tasks: set[asyncio.Task[None]] = set()
        self._retired: DownstreamError | None = None
        self._is_shared = False

    def __repr__(self) -> str:
        under_way = len(self.traffic.pending)
        return f"<Connection {self.label} {self.state.value}, {under_way} under way, started {self.starts}x>"

    @property
    def revision(self) -> Revision | None:
        """The revision that the server agreed to; None before the handshake."""
        return self.traffic.revision

    @property
    def principal(self) -> str:
        """The principal of all its callers and of its credentials."""
        return self.caller.principal

    def is_seen_by(self, principal: str | None) -> bool:
        """Whether it belongs to this principal or is shared by everyone; None is the workbench's owner."""
        return principal in (None, self.principal) or self.config.share == "everyone"

    def counts(self) -> tuple[int, int, int, int]:
        """Totals over all runs of the server: bytes received and sent, lines of noise, unmatched responses."""
        before, now = self._counted_before, self.traffic
        return (
            before[0] + now.bytes_received,
            before[1] + now.bytes_sent,
            before[2] + now.noise.count,
            before[3] + now.pending.unmatched,
        )

    # ── for callers ──

    async def ensure_ready(self, *, asked: bool = False) -> None:
        """Wait until requests can be sent, starting the server if necessary. Raises `DownstreamError`.

        `asked`: the user asked for this particular server, so it is tried again even if it failed too often.
        """
        if self.state is State.READY:
            return
        self.waiting += 1
        try:
            await self._become_ready(asked)
        finally:
            self.waiting -= 1

    async def _become_ready(self, asked: bool) -> None:
        # A loop, because other callers may start, stop or fail it while this one waits.
        while self.state is not State.READY:
            if self.state is State.STARTING:
                # Shielded, so that a cancelled caller does not cancel the start that others wait for.
                await asyncio.shield(self._ready)
                if self.state in (State.BACKOFF, State.FAILED) and self.last_error is not None:
                    # It was ready but is gone again. Do not start it twice for one use.
                    raise self.last_error
            elif self.state is State.STOPPING:
                # Two processes of the same server might compete for a port or a lock file.
                assert self._task is not None
                await asyncio.wait({self._task})
            elif self.state in (State.BACKOFF, State.FAILED) and await self._must_wait(asked):
                asked = False
            else:
                self._start()

    async def ensure_listed(self, *, asked: bool = False) -> None:
        """Wait until the server has listed what it offers. Raises `DownstreamError`."""
        await self.ensure_ready(asked=asked)
        if self.state is State.READY and self.lists.has_failed:
            # It is running but could not list its tools last time, so try again.
            self.lists.request()
        await self.lists.wait()

    async def list_again(self) -> None:
        """Have the server list again what it offers, and wait for it. Raises `DownstreamError`."""
        await self.ensure_ready()
        self.lists.request()
        await self.lists.wait()

    def start_in_background(self) -> None:
        """Start the server without waiting for it. If that fails, the next use reports it."""
        self._start()

    def linger(self, seconds: float) -> None:
        """Let a server that nobody has opened or called stop after this many seconds, if not earlier."""
        idle = self.config.idle_timeout
        if idle is not None and seconds < idle and not self.is_held:
            self.traffic.last_used = self._loop.time() - idle + seconds
            self._wake()

    def release(self, client: ClientPeer) -> None:
        """A client has disconnected: if it had the server open, the idle time begins now."""
        if self.traffic.clients.leave(client):
            self.traffic.last_used = self._loop.time()
            self._wake()

    def adjust(self, config: ServerConfig) -> None:
        """Apply new settings to the running server."""
        self.config = config
        self.subscriptions.timeout = config.timeout
        self._wake()

    @property
    def is_held(self) -> bool:
        """Whether a client that is still connected has opened or used the server."""
        clients = self.traffic.clients
        return clients.is_held or (clients.passing_hold and self._loop.time() < self._last_seen() + PRESENCE_LIMIT)

    @property
    def stops_at(self) -> float | None:
        """When the server is to be stopped because it is idle, as far as is known; None: not yet."""
        config, clients, last_used = self.config, self.traffic.clients, self.traffic.last_used
        if config.idle_timeout is None:
            return None
        if config.stops_in_use:
            return last_used + config.idle_timeout
        present_until = self._last_seen() + PRESENCE_LIMIT if clients.passing_hold else 0.0
        if clients.is_held or present_until == inf:
            return None
        return max(last_used + config.idle_timeout, present_until)

    def on_idle(self) -> None:
        """The server is stopped because it is idle."""
        log.info("[%s] stopped after %g s without a call", self.label, self.config.idle_timeout)
        if self.is_held:
            self.traffic.clients.lose(passing=self.traffic.clients.passing_hold)

    def request_stop(self) -> None:
        """Stop the server, even if its owner task is waiting for the handshake, a list, or a call."""
        if self.state in (State.STARTING, State.READY) and self._task is not None:
            self._task.cancel()

    def retire(self, why: DownstreamError) -> None:
        """Stop the server permanently, and refuse further callers."""
        self._retired = why
        self.request_stop()

    def retire_when_idle(self, why: DownstreamError) -> None:
        """Stop the server permanently once it is idle. No new callers get this connection."""
        self._retired = why
        self._wake()

    @property
    def is_retired(self) -> bool:
        """Whether the server is to stop permanently."""
        return self._retired is not None

    @property
    def is_running(self) -> bool:
        """Whether anything of the server is left, including earlier runs."""
        return bool(self._tasks)

    @property
    def is_idle(self) -> bool:
        """Whether it has no calls, waiting callers, subscriptions or tasks."""
        return not self.waiting and not self.is_needed and self.state is not State.STARTING

    async def wait_stopped(self) -> None:
        """Wait until nothing of the server is left, including what a crashed run has to clean up."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def is_needed(self) -> bool:
        """Whether it has calls, subscriptions or tasks."""
        return self.traffic.call_count > 0 or self.subscriptions.is_needed or self.held_until > self._loop.time()

    async def _must_wait(self, asked: bool) -> bool:
        """After a failure, raise or wait as the restart policy requires. True if there was something to wait for."""
        now = self._loop.time()
        if asked:
            self.policy.forgive()
        elif self.policy.is_exhausted(now):
            if await self._may_be_back():
                # One attempt, unless another caller has started it meanwhile.
                return self.state not in (State.BACKOFF, State.FAILED)
            assert self.last_error is not None
            raise self.policy.refusal(self.last_error, self.entry.toolbox, now)
        delay = self.policy.delay(now)
        if delay:
            await asyncio.sleep(delay)
        return delay > 0

    async def _may_be_back(self) -> bool:
        """Whether a network server that failed too often is reachable again: checking that starts no process."""
        if self.config.url is None:
            return False
        from mcp_workbench.engine.transport.http.client.reachability import why_unreachable

        why = await why_unreachable(self.config.url, self.entry.context.environ)
        if why is not None:
            # The reason may differ from the one that made it fail.
            self.on_trouble(why)
        return why is None

    # ── runs of the server ──

    def _start(self) -> None:
        if self._retired is not None:
            raise self._retired
        self._move(Event.START)
        self._ready = quiet_future(self._loop)
        self.lists.on_start()
        self.starts += 1
        self.run = ServerRun(self, self._servers, self._open_link)
        work = self.run.main()
        self._task = self._start_task(work)
        self._tasks.add(self._task)
        self._task.add_done_callback(lambda task: self._on_task_done(task, work))

    def _on_task_done(self, task: asyncio.Task[None], work: Coroutine[None, None, None]) -> None:
        self._tasks.discard(task)
        if task is self._task and self.state is State.STARTING:
            # Cancelled before its first step, so nothing was started.
            work.close()
            self.on_stopping()
            self.on_stopped()

    def _last_seen(self) -> float:
        return self._owner.last_seen(self.principal)

    def share_fairly(self) -> None:
        """Enable fair sharing between clients, for future runs."""
        self._is_shared = True

    def new_traffic(self) -> Traffic:
        """Create the traffic for a new link. Messages from the previous link are ignored from now on."""
        before = self.traffic
        traffic = Traffic(
            self.label,
            self.identity,
            self,
            withheld=before.withheld,
            is_everyones=before.is_everyones,
            clients=before.clients,
        )
        if self._is_shared:
            traffic.share_fairly()
        self._counted_before = self.counts()
        self.traffic = traffic
        return traffic

    def on_started(self) -> None:
        """The handshake is done: requests can be sent."""
        self._move(Event.STARTED)
        self.started_at = self.traffic.last_used = self._loop.time()
        self._ready.set_result(None)

    def on_stopping(self) -> None:
        """The run has ended and is cleaning up."""
        self._end_session()
        if self.state in (State.STARTING, State.READY):
            self._move(Event.STOP)
        self._end_waits(DownstreamError("the server was stopped", hint="call again to restart it"))

    def on_stopped(self) -> None:
        """Nothing is left of the run."""
        if self.state is State.STOPPING:
            self._move(Event.STOPPED)

    def on_failed(self, error: DownstreamError) -> None:
        """Fail everything in progress; the next use starts the server again."""
        if self.state not in (State.STARTING, State.READY):
            return
        now = self._loop.time()
        self._end_session()
        self.on_trouble(error)
        self.failed_at = now
        # Requiring a sign-in is not a crash: the user may take any time, and the next call tries again at once.
        if not isinstance(error, SignInNeeded):
            self.policy.crashed(now, "start" if self.state is State.STARTING else "crash")
        self._move(Event.CRASH)
        if self.policy.is_exhausted(now):
            self._move(Event.FAIL)
            self._servers.withdraw(self.entry, error)
        log.warning("[%s] %s", self.label, error.message)
        self._end_waits(error)
        self._wake()

    def _end_session(self) -> None:
        if self.state is State.READY and self.revision is not None:
            self._owner.on_session_end(self.entry, self.revision.name, self._loop.time() - self.started_at)

    def on_handshake(self) -> None:
        """More is known about the server, and no request was sent to it yet."""
        self._owner.on_handshake(self.entry)

    def on_process(self, sandbox: dict[str, object], advise: Callable[[str], str | None]) -> None:
        """A process was started for it: how it is confined, and what suggests what it may be missing."""
        self.sandbox, self.advise = sandbox, advise

    def conceal(self, text: str) -> str:
        return self._owner.conceal(text)

    def on_stderr_line(self) -> None:
        self.stderr_lines += 1

    def on_trouble(self, error: DownstreamError) -> None:
        """Record an error for the server's status, whether the server is still running or not."""
        error.message = self.conceal(error.message)
        self.last_error = error
        self.last_error_at = self._loop.time()

    def _end_waits(self, error: DownstreamError) -> None:
        self.subscriptions.end()
        self.traffic.end(error)
        if not self._ready.done():
            self._ready.set_exception(error)
        self.lists.on_end(error)

    def _wake(self) -> None:
        if self.run is not None:
            self.run.wake()

    # ── reports from its traffic (`TrafficOwner`) ──

    def on_link_closed(self, traffic: Traffic, reason: str) -> None:
        """The link has closed: a crash, unless we are stopping it."""
        if traffic is not self.traffic or self.run is None:
            return
        if reason == SESSION_LOST and self.state is State.READY:
            self._reconnect(traffic)
            return
        error = self.run.quoting(reason, None)
        if self.state is State.READY and self._loop.time() - self.started_at < EARLY_DEATH_WINDOW:
            # Many servers open what they need after the handshake.
            error.hint = self.run.advice_on(error)
        if self.state is State.STARTING:
            # The owner task is waiting for a response that will not come, and decides what this means.
            traffic.end(ServerGone(error.message, hint=error.hint))
        else:
            self.on_failed(error)

    def _reconnect(self, traffic: Traffic) -> None:
        """The server forgot our session: what it has not accepted is sent again in a new one.

        A link that ends with this reason has answered or failed everything else before (`SESSION_LOST`), so what
        is left was certainly not accepted.
        """
        log.info("[%s] %s; reconnecting", self.label, SESSION_LOST)
        unaccepted = traffic.take_calls()
        self._move(Event.STOP)
        self._end_waits(DownstreamError(SESSION_LOST))
        self._wake()
        for exchange in unaccepted:
            exchange.call.send_again()

    def on_resource_updated(self, params: Raw) -> None:
        self.subscriptions.on_updated(params)

    def on_task_changed(self, params: Raw) -> bool:
        return self.subscriptions.on_task_changed(params)

    def on_asked(self) -> None:
        """From now on, clients that can be asked do not share this server."""
        self._servers.asks(self.entry)

    def on_acknowledged(self, params: Raw | None) -> None:
        self.subscriptions.on_acknowledged(params)

    def on_list_changed(self, kind: str) -> None:
        """Clients are told when the lists have been fetched again, whether they differ or not."""
        self.lists.on_changed(kind)

    def _move(self, event: Event) -> None:
        self.state = next_state(self.state, event)
        log.debug("[%s] %s: %s", self.label, event.value, self.state.value)


class ConnectionOwner(Protocol):
    """The owner of a connection."""

    def conceal(self, text: str) -> str:
        """Redact secrets in reports about a server."""

    def last_seen(self, principal: str) -> float:
        """When a caller without a session last used any server of this principal: that is how long it is connected.
        With one client in all, always."""

    def on_handshake(self, entry: ServerEntry) -> None:
        """A server was greeted, and no request was sent to it yet."""

    def on_session_end(self, entry: ServerEntry, version: str, seconds: float) -> None:
        """A server that was ready has ended: which revision it spoke, and for how many seconds."""
