"""Serving clients, over stdio or HTTP, until shutdown; then ending in order.

Stop accepting, let running calls finish for a bounded time, answer the rest, then let the gateway stop the servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.engine.process_context import has_terminal
from mcp_workbench.errors import DownstreamError, shortage

if TYPE_CHECKING:
    from mcp_workbench.app.cluster_instance import ClusterInstance
    from mcp_workbench.app.live import LiveConfig
    from mcp_workbench.app.metrics_page import Metrics
    from mcp_workbench.app.page_serving import LazySite, OwnPage
    from mcp_workbench.engine.config.choose import ConfigSource
    from mcp_workbench.engine.file_watch import FileWatch
    from mcp_workbench.engine.session.session import Session
    from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, HttpServer
    from mcp_workbench.engine.transport.http.server.pages import NegotiatedPage, Page, PageResponse
    from mcp_workbench.engine.transport.http.server.request_head import RequestHead
    from mcp_workbench.engine.transport.stdio import StdioLink

log = logging.getLogger(__name__)

# How long running calls may continue during shutdown. Over stdio everything must end within the 5 s that clients give a
# server before they kill it; over HTTP no client waits for that.
STDIO_DRAIN_TIMEOUT: Final = 3.0
HTTP_DRAIN_TIMEOUT: Final = 5.0
# How long everything goes on while `/readyz` reports that we leave, if anybody polls it. Load balancers want to see
# that several times (HAProxy and Kubernetes three), one or two seconds apart.
DRAIN_DELAY: Final = 5.0
# How long the client may take to read the last answers.
LAST_ANSWERS_FLUSH_TIMEOUT: Final = 1.0
# `mcp-workbench status` and following the configuration must not delay the first answer, which is sent well before.
AFTER_FIRST_ANSWER: Final = 1.0
NOT_FINISHED: Final = "the workbench is shutting down; the call was not finished"


class Draining(NamedTuple):
    """How long serving HTTP takes to end."""

    # None: `DRAIN_DELAY` if `/readyz` is polled, otherwise none.
    delay: float | None = None
    seconds: float | None = None


class ResumedClient(NamedTuple):
    """A client that another workbench has served before."""

    # The saved state of its session; empty if there is none.
    resume: bytes
    # What the client has sent that was not processed, and what was still to be sent to it.
    unread: bytes
    unsent: bytes


async def serve_stdio(
    gateway: Gateway, client: ResumedClient | None = None, config: ConfigSource | None = None
) -> None:
    """Serve one client on stdin and stdout until it disconnects or a signal arrives. `config`: follow its changes."""
    from mcp_workbench.engine.transport.stdio import StdioLink

    gateway.serve_at("stdio")
    async with _until_the_end(gateway, config) as ending:
        assert gateway.runtime.batch is not None
        link = StdioLink(gateway.runtime.batch, gateway.config.max_message_bytes)
        try:
            if client is None:
                session = gateway.make_session(link, OWN_USER, ending.begin)
                link.start(session)
            else:
                session = _resumed(gateway, link, client, ending.begin)
            await ending.begun.wait()
            log.info("shutting down: %s", ending.reason)
            session.is_draining = True
            link.stop_reading()
            await wait_until(lambda: not session.calls or ending.is_urgent, STDIO_DRAIN_TIMEOUT)
            # Calls that have not finished by now are unlikely to end by themselves.
            gateway.runtime.processes.is_hurried = bool(session.calls)
            session.end(DownstreamError(NOT_FINISHED))
            await wait_until(lambda: not link.unsent_bytes or ending.is_urgent, LAST_ANSWERS_FLUSH_TIMEOUT)
        finally:
            link.close()
    # A broken pipe is how a client leaves, but what the machine lacks, or a defect, is not the client's doing.
    if link.failure is not None and (shortage(link.failure) or not isinstance(link.failure, OSError)):
        raise link.failure


def _resumed(gateway: Gateway, link: StdioLink, client: ResumedClient, closed: Callable[[str], None]) -> Session:
    from mcp_workbench.engine.session.resuming import ResumedLink, restore

    session = gateway.make_session(ResumedLink(link), OWN_USER, closed)
    link.start(session)
    link.send_bytes(client.unsent)
    if client.resume:
        try:
            restore(session, client.resume)
        except ValueError as error:
            log.warning("%s", error)
    link.feed(client.unread)
    return session


async def serve_http(
    gateway: Gateway,
    options: HttpOptions,
    started: Callable[[str], None],
    config: ConfigSource | None = None,
    *,
    pages: Mapping[str, Page] | None = None,
    site: Callable[[], LazySite] | None = None,
    callers: Callable[[HttpServer], None] | None = None,
    draining: Draining | None = None,
    cluster: ClusterInstance | None = None,
) -> None:
    """Serve any number of clients over HTTP until a signal arrives. `started` is called with the address, `callers`
    with the server, to end what revoked callers have open. `cluster`: we are one instance of several."""
    from msgspec.structs import replace

    from mcp_workbench.engine.transport.http.header_names import TRACE_PARENT
    from mcp_workbench.engine.transport.http.server.http_server import serve_http as start
    from mcp_workbench.engine.transport.http.server.pages import METRICS_HEADERS, METRICS_PATH

    draining = draining or Draining()
    async with _until_the_end(gateway, config) as ending:
        gateway.runtime.pool.serve_many()
        # Always: whoever looks later wants to know what has happened before.
        _ = gateway.runtime.count_calls()
        traces = (TRACE_PARENT,) if gateway.may_trace else ()
        page = site() if site is not None and gateway.config.page_in_force.is_served else None
        if cluster is not None:
            await cluster.state.prime()
        server = await start(
            replace(options, header_names=(*options.header_names, *METRICS_HEADERS, *traces)),
            gateway.make_session,
            readiness=gateway.readiness,
            parameters_of=gateway.mirrored_parameters(),
            pages={METRICS_PATH: metrics_page(gateway), **(pages or {})},
            site=page,
            on_refused=partial(record_refusal, gateway),
            keeper=cluster,
            batch=gateway.runtime.batch,
        )
        watch = _watch(options) if options.watched else None
        try:
            if callers is not None:
                callers(server)
            gateway.serve_at(server.url)
            if cluster is not None:
                cluster.serve(server)
                _ = gateway.runtime.start_task(cluster.run())
            await gateway.runtime.open_status_socket()
            started(server.url)
            await ending.begun.wait()
            log.info("shutting down: %s", ending.reason)
            server.leave()
            if page is not None:
                page.close()
            delay = draining.delay
            if delay is None:
                delay = DRAIN_DELAY if server.is_watched else 0.0
            if delay and not ending.is_by_hand:
                log.info("waiting %g s for load balancers that watch /readyz", delay)
                await wait_until(lambda: ending.is_urgent, delay)
            server.drain()
            seconds = HTTP_DRAIN_TIMEOUT if draining.seconds is None else draining.seconds
            await wait_until(lambda: not server.call_count or ending.is_urgent, seconds)
            gateway.runtime.processes.is_hurried = bool(server.call_count)
            server.fail_all(DownstreamError(NOT_FINISHED))
        finally:
            if watch is not None:
                watch.close()
            await server.stop()
            if cluster is not None:
                await cluster.leave()


def metrics_page(gateway: Gateway) -> NegotiatedPage:
    """Metrics beside the MCP endpoint, for those who may call; loaded with the first request for them."""
    from mcp_workbench.engine.transport.http.server.pages import NegotiatedPage, PageAccess

    made: list[Metrics] = []

    def respond_to(head: RequestHead) -> PageResponse:
        from mcp_workbench.app.metrics_page import Metrics

        if not made:
            settings = gateway.config.metrics
            made.append(Metrics(gateway.runtime, per_tool=settings is not None and settings.per_tool))
        return made[0].respond_to_caller(head)

    return NegotiatedPage(respond_to, PageAccess.CALLERS)


def record_refusal(gateway: Gateway, peer: str, reason: str) -> None:
    """Record a failed authentication in the audit."""
    gateway.gate.record("authentication", peer=peer, decision="denied", reason=reason)


def _hand_over(loop: asyncio.AbstractEventLoop, changed: Callable[[], None], seen: object) -> None:
    # Called from the watching thread; the loop may have ended meanwhile.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(changed)


def _watch(options: HttpOptions) -> FileWatch:
    """Watch the files that decide which callers are admitted."""
    from mcp_workbench.engine.file_watch import FileWatch, Watched, fingerprint

    loop = asyncio.get_running_loop()
    watch = FileWatch()
    for files, changed in options.watched:
        watch.add(Watched(files, fingerprint(files), partial(_hand_over, loop, changed)))
    return watch


@contextlib.asynccontextmanager
async def _until_the_end(gateway: Gateway, config: ConfigSource | None) -> AsyncIterator[_Shutdown]:
    loop = asyncio.get_running_loop()
    follower = None if config is None else _Follower(gateway, config)
    ending = _Shutdown(loop, gateway.runtime.end_at_once, None if follower is None else follower.reload)
    gateway.runtime.offer_page(partial(_own_page, gateway))
    async with gateway.running():
        timer = loop.call_later(AFTER_FIRST_ANSWER, lambda: gateway.runtime.start_task(_settle_in(gateway, follower)))
        try:
            yield ending
        finally:
            timer.cancel()
            if follower is not None:
                follower.close()
    log.info("bye")


def _own_page(gateway: Gateway) -> OwnPage:
    from mcp_workbench.app.page_serving import OwnPage

    return OwnPage(gateway.runtime, lambda: [gateway])


async def _settle_in(gateway: Gateway, follower: _Follower | None) -> None:
    if follower is not None:
        await follower.live.start()
    await gateway.runtime.open_status_socket()


class _Follower:
    """Makes the gateway follow its file. The code for that is loaded when it is first needed."""

    def __init__(self, gateway: Gateway, config: ConfigSource) -> None:
        self._gateway = gateway
        self._config = config
        self._live: LiveConfig | None = None
        self._watch: FileWatch | None = None

    @property
    def live(self) -> LiveConfig:
        if self._live is None:
            from mcp_workbench.app.live import LiveConfig
            from mcp_workbench.engine.file_watch import FileWatch

            self._watch = FileWatch()
            self._live = LiveConfig(self._gateway, self._config, self._watch)
        return self._live

    def reload(self) -> None:
        """Reload at once, whether the file seems to have changed or not."""
        _ = self._gateway.runtime.start_task(self.live.reload())

    def close(self) -> None:
        if self._live is not None and self._watch is not None:
            self._live.close()
            self._watch.close()


class _Shutdown:
    """Why and how fast we end. The first signal begins the shutdown, a signal during the shutdown hurries it, and a
    second signal ends at once. SIGHUP reloads the configuration, unless it means that our terminal is gone."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, end_at_once: Callable[[], None], reload: Callable[[], None] | None
    ) -> None:
        """`reload`: None if there is no configuration to reload."""
        self.begun = asyncio.Event()
        self.reason = ""
        self.is_urgent = False
        # Ctrl-C: the user is present, and may have just tried `/readyz`. Load balancers stop us in other ways.
        self.is_by_hand = False
        self._end_at_once = end_at_once
        self._signals = 0
        self._reload = reload
        # `nohup`, and shells that start background jobs, ignore it: then it never ends us.
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._had_terminal = has_terminal()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def begin(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.begun.set()

    def _on_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            is_hung_up = self._had_terminal and not has_terminal()
            if not self._ends_with_terminal and (is_hung_up or self._reload is None):
                return
            if self._reload is not None and not is_hung_up:
                if not self.begun.is_set():
                    self._reload()
                return
        self._signals += 1
        if self._signals > 1:
            self._end_at_once()
            os._exit(128 + number)
        self.is_urgent = self.begun.is_set()
        self.is_by_hand = number == signal.SIGINT
        self.begin(f"received {number.name}")


async def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, for this many seconds at most."""
    # Polled: the conditions change in hot paths, which should not have to set events for the shutdown.
    now = asyncio.get_running_loop().time
    began = now()
    while not condition() and now() - began < seconds:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
