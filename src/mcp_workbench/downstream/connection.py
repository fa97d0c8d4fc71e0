"""One connection to one server: started when needed, owned by one task, ended as a whole.

Owns the server's life. What is said on its link is `Traffic`'s business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.freshness import Freshness
from mcp_workbench.downstream.last_words import QUOTED_STDERR, READ_STDERR, with_last_words
from mcp_workbench.downstream.lifecycle import RETIRED_LOOK, Event, RestartPolicy, State, next_state, unexpected
from mcp_workbench.downstream.listing import list_offer, offered_over_http
from mcp_workbench.downstream.relisting import Relisting
from mcp_workbench.downstream.server_link import LinkOpener, ServerLink
from mcp_workbench.downstream.sharing import Caller, expected_revision
from mcp_workbench.downstream.traffic import Traffic
from mcp_workbench.downstream.watch import Watch
from mcp_workbench.errors import DownstreamError, ServerGone, WorkbenchError, shortage
from mcp_workbench.jsonrpc.pending import within
from mcp_workbench.protocol.handshake import OtherEra, ServerProfile, meet, second_try
from mcp_workbench.protocol.meta import ClientIdentity
from mcp_workbench.protocol.revisions import Revision, SpokenEras
from mcp_workbench.transport.link import SESSION_FORGOTTEN

log = logging.getLogger(__name__)


class Connection:
    """A server in a toolbox, as one group of callers reaches it."""

    def __init__(
        self,
        entry: ServerEntry,
        catalog: Catalog,
        caller: Caller,
        own_info: bytes,
        open_link: LinkOpener,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
    ) -> None:
        self.entry = entry
        self.label = entry.label
        self.config = entry.config
        # The first of its callers. All of them have the same principal; a legacy server is told his capabilities.
        self.caller = caller
        self.identity = ClientIdentity(own_info, caller.capabilities, caller.era)
        # Told when the server has been met, before anybody sends anything.
        self.on_met: Callable[[], None] = lambda: None
        self.state = State.CONFIGURED if entry.offer is None else State.KNOWN
        self.policy = RestartPolicy()
        self.last_error: DownstreamError | None = None
        self.last_error_at = 0.0
        self.failed_at = float("-inf")
        # Blacks out secrets in what is told of the server.
        self.conceal: Callable[[str], str] = str
        # What a server that does not start may lack, by what it said on the way.
        self.advise: Callable[[str], str | None] = lambda said: None
        self.starts = 0
        # How many wait for it to start.
        self.waiting = 0
        self.started_at = 0.0
        self.start_seconds = 0.0
        self._catalog = catalog
        self._open_link = open_link
        self._start_task = start_task
        self._loop = asyncio.get_running_loop()
        self.traffic = Traffic(self.label, self.identity, self)
        # What was counted in the server's earlier lives.
        self._counted_before = (0, 0, 0, 0)
        self._relisting = Relisting(self._loop, self._list_again)
        self.watch = Watch(start_task, entry.config.timeout, self._relisting.soon)
        # Until when the server must not be stopped for being idle: it works on something that outlives a call.
        self.held_until = 0.0
        self._link: ServerLink | None = None
        self._ready: asyncio.Future[None] = self._quiet_future()
        self._listed: asyncio.Future[None] = self._quiet_future()
        self._task: asyncio.Task[None] | None = None
        # What the owner task is woken up for.
        self._wake = asyncio.Event()
        # The owner tasks of all lives that have not ended: one, unless a crashed life still clears up.
        self._lives: set[asyncio.Task[None]] = set()
        self._retired: DownstreamError | None = None
        self._must_list = False
        self.freshness = Freshness(self._loop.time)

    def __repr__(self) -> str:
        under_way = len(self.traffic.pending)
        return f"<Connection {self.label} {self.state.value}, {under_way} under way, started {self.starts}x>"

    @property
    def revision(self) -> Revision | None:
        """The revision that the server agreed to; None while it has not been met."""
        return None if self.traffic.profile is None else self.traffic.profile.revision

    def counts(self) -> tuple[int, int, int, int]:
        """Over all lives of the server: bytes of messages received and sent, lines of noise, answers to nothing."""
        before, now = self._counted_before, self.traffic
        return (
            before[0] + now.bytes_received,
            before[1] + now.bytes_sent,
            before[2] + now.noise,
            before[3] + now.pending.unmatched,
        )

    # ── for those who use it ──

    async def ensure_ready(self, *, asked: bool = False) -> None:
        """Return when requests can be sent, starting the server if need be. Raises `DownstreamError`.

        `asked`: somebody asked for this very server, so one that was given up gets another chance.
        """
        if self.state is State.READY:
            return
        self.waiting += 1
        try:
            await self._become_ready(asked)
        finally:
            self.waiting -= 1

    async def _become_ready(self, asked: bool) -> None:
        while self.state is not State.READY:
            if self.state is State.STARTING:
                # Looked at again: it may have died since it was ready.
                await asyncio.shield(self._ready)
            elif self.state is State.STOPPING:
                assert self._task is not None
                await asyncio.wait({self._task})
            elif self.state in (State.BACKOFF, State.FAILED) and await self._must_wait(asked):
                asked = False
            else:
                self._start()

    async def ensure_listed(self, *, asked: bool = False) -> None:
        """Return when the server has said what it offers. Raises `DownstreamError`."""
        await self.ensure_ready(asked=asked)
        if self.state is State.READY and self._listed.done() and self._listed.exception() is not None:
            # It could not list its tools the last time, and lives: it is asked again.
            self._listed = self._quiet_future()
            self._list_again()
        await asyncio.shield(self._listed)

    async def list_anew(self) -> None:
        """Return when the server has said once more what it offers. Raises `DownstreamError`."""
        await self.ensure_ready()
        if self._listed.done():
            self._listed = self._quiet_future()
            self._list_again()
        await asyncio.shield(self._listed)

    def start_in_background(self) -> None:
        """Start the server without waiting for it. Should that fail, the next use says so."""
        self._start()

    def linger(self, seconds: float) -> None:
        """Nobody has called it yet: without a call it may go after these seconds, if not before."""
        idle = self.config.idle_timeout
        if idle is not None and seconds < idle:
            self.traffic.last_used = self._loop.time() - idle + seconds
            self._wake.set()

    def request_stop(self) -> None:
        """End the server, whatever its owner task is waiting for: the handshake, a list that never comes, a call."""
        if self.state in (State.STARTING, State.READY) and self._task is not None:
            self._task.cancel()

    def retire(self, why: DownstreamError) -> None:
        """End the server for good: whoever asks for it from now on is refused."""
        self._retired = why
        self.request_stop()

    def retire_when_idle(self, why: DownstreamError) -> None:
        """End the server for good once nobody uses it any more: nobody is led to it from now on."""
        self._retired = why
        self._wake.set()

    @property
    def is_running(self) -> bool:
        """Whether there is something left of the server, of earlier lives too."""
        return bool(self._lives)

    @property
    def is_idle(self) -> bool:
        """Whether nobody calls, waits, watches, or has left it something to do."""
        return not self.waiting and not self._is_needed() and self.state is not State.STARTING

    async def wait_stopped(self) -> None:
        """Return when nothing is left of the server: after a crash, what the crashed one left may be ending yet."""
        if self._lives:
            await asyncio.wait(self._lives)

    async def _must_wait(self, asked: bool) -> bool:
        """After a failure: refuse, or wait as long as the policy wants. True when there was something to wait for."""
        now = self._loop.time()
        if asked:
            self.policy.forgive()
        elif self.policy.gives_up(now):
            if await self._is_back():
                # It gets one try, unless somebody else has begun meanwhile.
                return self.state not in (State.BACKOFF, State.FAILED)
            assert self.last_error is not None
            raise self.policy.refusal(self.last_error, self.entry.toolbox, now)
        delay = self.policy.delay(now)
        if delay:
            await asyncio.sleep(delay)
        return delay > 0

    async def _is_back(self) -> bool:
        """Whether somebody listens where a server was that was given up: to look, and to try, starts no process."""
        if self.config.url is None:
            return False
        from mcp_workbench.transport.http.client.dialing import accepts_connections

        return await accepts_connections(self.config.url)

    # ── the owner task ──

    def _start(self) -> None:
        if self._retired is not None:
            raise self._retired
        self._move(Event.START)
        self._ready = self._quiet_future()
        self._listed = self._quiet_future()
        self._wake = asyncio.Event()
        self._must_list = False
        self.starts += 1
        life = self._run()
        self._task = self._start_task(life)
        self._lives.add(self._task)
        self._task.add_done_callback(lambda task: self._on_task_done(task, life))

    def _on_task_done(self, task: asyncio.Task[None], life: Coroutine[None, None, None]) -> None:
        self._lives.discard(task)
        if task is self._task and self.state is State.STARTING:
            # Cancelled before its first step: nothing was started, and nothing of `_run` was run.
            life.close()
            self._move(Event.STOP)
            self._end_waits(DownstreamError("the server was stopped", hint="call again to start it anew"))
            self._move(Event.STOPPED)

    async def _run(self) -> None:
        """From the start of the server until nothing is left of it.

        After a crash the next life may begin while this task still clears away what is left of its own: hence the
        links of a life are its own, and everything that the lives share is left to the newest.
        """
        began = self._loop.time()
        links: list[ServerLink] = []
        try:
            await self._connect(links)
            self._move(Event.STARTED)
            self.started_at = self.traffic.last_used = self._loop.time()
            self.start_seconds = self.started_at - began
            self._ready.set_result(None)
            assert self.traffic.profile is not None
            log.info("[%s] ready after %.2f s (MCP %s)", self.label, self.start_seconds, self.traffic.profile.version)
            await self.watch.begin(self.traffic)
            await self._list()
            await self._look_after()
        except WorkbenchError as error:
            self._fail_own_life(self._quoting(error.message, error.hint), links)
        except TimeoutError:
            self._fail_own_life(
                self._quoting(
                    f"the server did not answer the handshake within {self.config.startup_timeout:g} s",
                    "raise `startupTimeout` of this server if it needs longer to start",
                ),
                links,
            )
        except Exception as error:
            self._fail_own_life(unexpected(error))
            if shortage(error) is None:
                raise
        finally:
            await self._clean_up(links)

    def _is_newest_life(self) -> bool:
        return self._task is asyncio.current_task()

    def _fail_own_life(self, error: DownstreamError, links: Sequence[ServerLink] = ()) -> None:
        if not self._is_newest_life():
            return
        if self.state is State.STARTING and links:
            said = "\n".join((error.message, *links[-1].last_words(READ_STDERR)))
            error.hint = "; ".join(filter(None, (error.hint, self.advise(said)))) or None
        self._failed(error)

    async def _connect(self, links: list[ServerLink]) -> None:
        tried_first = expected_revision(self.entry, self.identity.era).era
        gone: ServerGone | None = None
        try:
            async with within(self.config.startup_timeout):
                try:
                    profile = await self._meet(links, self.config.protocol)
                except (ServerGone, OtherEra) as error:
                    # One that never read what it was sent would only fail a second time.
                    is_unread = links[-1].unread_bytes >= self.traffic.bytes_sent
                    other = second_try(tried_first, error) if self.config.protocol == "auto" else None
                    if other is None or is_unread:
                        raise
                    gone = error if isinstance(error, ServerGone) else None
                    log.info("[%s] the server cannot be met in the %s era; trying the other", self.label, tried_first)
                    await links[-1].stop()
                    del links[-1]
                    profile = replace(await self._meet(links, other), eras=SpokenEras.only(other))
        except TimeoutError:
            if gone is None:
                raise
            # Why it ended the first time says more than that there was no time left for a second.
            self._link = None
            raise gone from None
        self._catalog.met(self.entry, profile)
        self.on_met()

    async def _meet(self, links: list[ServerLink], protocol: str) -> ServerProfile:
        traffic = Traffic(self.label, self.identity, self)
        traffic.audience = self.traffic.audience
        traffic.conceal = self.conceal
        self._counted_before = self.counts()
        self.traffic = traffic
        self._link = link = await self._open_link(self, traffic)
        links.append(link)
        traffic.attach(link)
        traffic.profile = await meet(traffic, protocol, self.entry.eras, self.identity)
        if traffic.ended is not None:
            # It answered and died in one breath, before we came to read the answer.
            raise traffic.ended
        return traffic.profile

    async def _look_after(self) -> None:
        wake = self._wake
        while self._is_newest_life() and self.state is State.READY:
            if self._retired is not None and self.is_idle:
                return
            idle = self.config.idle_timeout
            patience = None if idle is None else max(0.05, self.traffic.last_used + idle - self._loop.time())
            if self._retired is not None:
                patience = RETIRED_LOOK
            try:
                async with asyncio.timeout(patience):
                    await wake.wait()
                wake.clear()
            except TimeoutError:
                if self._is_needed():
                    self.traffic.last_used = self._loop.time()
                elif idle is not None and self._loop.time() - self.traffic.last_used >= idle:
                    log.info("[%s] stopped after %g s without a call", self.label, idle)
                    return
            if self._must_list:
                await self._list()

    def _is_needed(self) -> bool:
        return self.traffic.call_count > 0 or self.watch.is_needed or self.held_until > self._loop.time()

    async def _list(self) -> None:
        self._must_list = False
        announced = self._relisting.take()
        self.freshness.on_asked()
        assert self.traffic.profile is not None
        try:
            async with within(self.config.startup_timeout):
                largest = self._catalog.config.max_definition_bytes
                offer = await list_offer(self.label, self.traffic, self.traffic.profile, self.entry.offer, largest)
                if self.config.url is not None:
                    offer = await offered_over_http(self.label, offer, self._link)
        except (WorkbenchError, TimeoutError) as error:
            self.freshness.on_failed()
            self._relisting.announced |= announced
            if not self._is_newest_life() or self.state is not State.READY:
                return
            reason = error.message if isinstance(error, WorkbenchError) else "no answer in time"
            failure = self._quoting(f"its tools cannot be listed: {reason}", None)
            self._remember(failure)
            log.warning("[%s] %s", self.label, failure.message)
            if not self._listed.done():
                self._listed.set_exception(failure)
            return
        self.freshness.on_listed(offer.ttls)
        self._catalog.learn(self.entry, offer, frozenset(announced), remember=not offer.is_large)
        if self._listed.done():
            self._listed = self._quiet_future()
        self._listed.set_result(None)
        if offer.is_large:
            await asyncio.to_thread(self.entry.remember)

    async def _clean_up(self, links: list[ServerLink]) -> None:
        if self._is_newest_life():
            self._link = None
            if self.state in (State.STARTING, State.READY):
                self._move(Event.STOP)
            self._end_waits(DownstreamError("the server was stopped", hint="call again to start it anew"))
        try:
            for link in links:
                await link.stop()
        finally:
            if self._is_newest_life() and self.state is State.STOPPING:
                self._move(Event.STOPPED)

    # ── what happens to it ──

    def on_link_closed(self, traffic: Traffic, reason: str) -> None:
        """The link is gone: a crash, unless we are ending it."""
        if traffic is not self.traffic:
            return
        if reason == SESSION_FORGOTTEN and self.state is State.READY:
            self._meet_again(traffic)
            return
        error = self._quoting(reason, None)
        if self.state is State.STARTING:
            # The owner task is waiting for an answer that will not come; it decides what this means.
            traffic.end(ServerGone(error.message, hint=error.hint))
        else:
            self._failed(error)

    def _meet_again(self, traffic: Traffic) -> None:
        """The server forgot who we are: what it has not accepted is sent again once it has been met anew.

        A link that ends with this reason has answered or failed everything else before (`SESSION_FORGOTTEN`), so what
        is left was certainly not accepted.
        """
        log.info("[%s] %s; meeting it anew", self.label, SESSION_FORGOTTEN)
        unaccepted = traffic.take_calls()
        self._move(Event.STOP)
        self._end_waits(DownstreamError(SESSION_FORGOTTEN))
        self._wake.set()
        for exchange in unaccepted:
            exchange.send_anew()

    def _failed(self, error: DownstreamError) -> None:
        """Everything under way fails now; the next use starts the server again."""
        if self.state not in (State.STARTING, State.READY):
            return
        now = self._loop.time()
        self._remember(error)
        self.failed_at = now
        self.policy.crashed(now)
        self._move(Event.CRASH)
        if self.policy.gives_up(now):
            self._move(Event.GIVE_UP)
            self._catalog.withdraw(self.entry, error)
        log.warning("[%s] %s", self.label, error.message)
        self._end_waits(error)
        self._wake.set()

    def _remember(self, error: DownstreamError) -> None:
        error.message = self.conceal(error.message)
        self.last_error = error
        self.last_error_at = self._loop.time()

    def _end_waits(self, error: DownstreamError) -> None:
        self.watch.end()
        self.traffic.end(error)
        for future in (self._ready, self._listed):
            if not future.done():
                future.set_exception(error)

    def on_trouble(self, error: DownstreamError) -> None:
        """A server at an address is never gone as a whole; whoever asks how it does wants to know that it was."""
        self._remember(error)

    def on_resource_updated(self, params: Raw) -> None:
        self.watch.on_updated(params)

    def on_asked(self) -> None:
        """From now on, clients that can be asked do not share this server."""
        self._catalog.asks(self.entry)

    def on_acknowledged(self) -> None:
        self.watch.on_acknowledged()

    def on_list_changed(self, kind: str) -> None:
        """Somebody is told when the lists have been fetched again, whether they differ or not."""
        self._relisting.announced.add(kind)
        self._relisting.soon()

    def _list_again(self) -> None:
        self._must_list = True
        self._wake.set()

    def _move(self, event: Event) -> None:
        self.state = next_state(self.state, event)
        log.debug("[%s] %s: %s", self.label, event.value, self.state.value)

    def _quiet_future(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        # Nobody may be waiting when it fails; that is not an error of its own.
        future.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        return future

    def _quoting(self, what: str, hint: str | None) -> DownstreamError:
        if self._link is None:
            return DownstreamError(what, hint=hint)
        noise = self.traffic.noise_lines if self.state is State.STARTING else ()
        return DownstreamError(with_last_words(what, self._link.last_words(QUOTED_STDERR), noise), hint=hint)
