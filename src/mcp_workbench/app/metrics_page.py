"""The page `/metrics`: collects what metrics are about from one process, when somebody asks for them.

Beside `/mcp` for those who may call, or at an address of its own on this machine (`serve_at`). Loaded with the first of
these.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from mcp_workbench.app.saved_tokens import SavedTokens, fullest
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.server_status import SIGN_IN_NEEDED, state_of
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.economy.costs import definition_tokens
from mcp_workbench.engine.observe.call_figures import Label
from mcp_workbench.engine.transport.http.server.authentication import BearerToken
from mcp_workbench.engine.transport.http.server.pages import (
    METRICS_HEADERS,
    METRICS_PATH,
    NegotiatedPage,
    PageAccess,
    PageResponse,
)
from mcp_workbench.engine.version import full_version
from mcp_workbench.errors import ConfigError, DownstreamError
from mcp_workbench.seeing.metrics import (
    CONTENT_TYPE,
    OPENMETRICS_CONTENT_TYPE,
    ServerFacts,
    WorkbenchFacts,
    exposition,
)
from mcp_workbench.seeing.process_figures import own_process, tree_of

if TYPE_CHECKING:
    from mcp_workbench.app.runtime import GatewayFacts, Runtime
    from mcp_workbench.engine.catalog.catalog import Catalog
    from mcp_workbench.engine.config.model import ReferringValue
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.observe.call_figures import CallFigures
    from mcp_workbench.engine.transport.http.server.authentication import Authentication
    from mcp_workbench.engine.transport.http.server.request_head import RequestHead
    from mcp_workbench.engine.transport.http.server.served_session import ServedSession

log = logging.getLogger(__name__)

# Smaller ones are not worth it.
_MIN_COMPRESSED_BYTES: Final = 1024
# Scrapes are seconds apart, and compressing half a megabyte takes milliseconds.
_LEVEL: Final = 1
_METRIC_STATES: Final = (*(state.value for state in State), SIGN_IN_NEEDED)
_METRICS_REFUSED: Final = (
    b"rules hide servers from some users: these metrics are for the holder of the workbench's token\n"
)


class Metrics:
    """The metrics of one process."""

    def __init__(self, runtime: Runtime, *, per_tool: bool) -> None:
        self._runtime = runtime
        self._per_tool = per_tool
        self._figures: CallFigures = runtime.count_calls()
        self._started_at = time.time()
        self._servers = _Servers()
        self._tokens = SavedTokens()
        # Tokens of a list, with the revision of the catalogue that they were counted for.
        self._listed: tuple[int, int] | None = None

    def respond_to_caller(self, head: RequestHead) -> PageResponse:
        if head.principal not in OWN_PRINCIPALS and any(facts().has_rules for facts in self._runtime.gateway_facts):
            return PageResponse(403, b"content-type: text/plain\r\n", _METRICS_REFUSED)
        return self.respond_to(head)

    def respond_to(self, head: RequestHead) -> PageResponse:
        return self._respond(head.headers.get("accept", ""), head.headers.get("accept-encoding", ""))

    def _respond(self, accept: str, encodings: str) -> PageResponse:
        is_open = "application/openmetrics-text" in accept
        body = exposition(self._figures, self._facts(), per_tool=self._per_tool, is_open=is_open)
        headers = f"content-type: {OPENMETRICS_CONTENT_TYPE if is_open else CONTENT_TYPE}\r\n"
        if len(body) >= _MIN_COMPRESSED_BYTES and "gzip" in encodings:
            body = gzip.compress(body, _LEVEL)
            headers += "content-encoding: gzip\r\n"
        return PageResponse(200, (headers + "vary: accept, accept-encoding\r\n").encode(), body)

    def _facts(self) -> WorkbenchFacts:
        gateways = [facts() for facts in self._runtime.gateway_facts]
        lost = [each.audit_lost for each in gateways if each.audit_lost is not None]
        servers = self._servers.facts(self._runtime.pool.connections())
        for each in servers:
            # Measured now, so remembered for those who look at the day.
            if each.memory is not None:
                self._figures.note_memory(each.toolbox, each.server, each.memory)
        senders = self._runtime.counting.span_senders
        return WorkbenchFacts(
            version=full_version(),
            process=own_process(self._started_at),
            states=_METRIC_STATES,
            servers=servers,
            known={label for each in gateways for label in each.servers},
            approvals_waiting=sum(each.approvals_waiting for each in gateways),
            audit_lost=sum(lost) if lost else None,
            spans_dropped=sum(each.dropped for each in senders) if senders else None,
            state=self._runtime.owner.state.health(),
            tokens=self._tokens_of_toolboxes(each.catalog for each in gateways),
            listed_tokens=self._listed_tokens(gateways[0]) if gateways else None,
        )

    def _tokens_of_toolboxes(self, catalogs: Iterable[Catalog]) -> dict[str, int]:
        """Without toolboxes of which no server has been listed: nothing is known of them, which is not none."""
        return {
            name: self._tokens.of_toolboxes(catalog)[name]
            for name, catalog in fullest(catalogs).items()
            if any(entry.offer is not None for entry in catalog.toolboxes[name].values())
        }

    def _listed_tokens(self, gateway: GatewayFacts) -> int:
        revision = gateway.catalog.revision
        if self._listed is None or self._listed[0] != revision:
            self._listed = revision, sum(definition_tokens(each) for each in gateway.listed())
        return self._listed[1]


class _ServerCounts(NamedTuple):
    """What only ever grows."""

    starts: int = 0
    failed_starts: int = 0
    crashes: int = 0
    stderr_lines: int = 0
    # Connections to hosts that the sandbox does not allow.
    refused: int = 0

    def plus(self, other: _ServerCounts) -> _ServerCounts:
        return _ServerCounts(*map(add, self, other))


class _Servers:
    """The facts of servers that have been used, also of connections that are gone: a counter never goes back."""

    def __init__(self) -> None:
        self._last: dict[Connection, _ServerCounts] = {}
        self._gone: dict[Label, _ServerCounts] = {}

    def facts(self, connections: Iterable[Connection]) -> list[ServerFacts]:
        found: dict[Label, list[Connection]] = {}
        before, self._last = self._last, {}
        for each in connections:
            found.setdefault((each.entry.toolbox, each.entry.name), []).append(each)
            reasons = each.policy.by_reason
            self._last[each] = _ServerCounts(
                each.starts, reasons["start"], reasons["crash"], each.stderr_lines, sum(each.refused_hosts.values())
            )
        for each in before.keys() - self._last.keys():
            label = each.entry.toolbox, each.entry.name
            self._gone[label] = before[each].plus(self._gone.get(label, _ServerCounts()))
        return [self._of(label, own) for label, own in found.items()]

    def _of(self, label: Label, own: list[Connection]) -> ServerFacts:
        pids = [each.run.process_id for each in own if each.run is not None]
        tree = tree_of(pid for pid in pids if pid is not None)
        counts = self._gone.get(label, _ServerCounts())
        for each in own:
            counts = counts.plus(self._last[each])
        return ServerFacts(
            *label,
            states={state_of(each) for each in own},
            starts=counts.starts,
            failures={"start": counts.failed_starts, "crash": counts.crashes},
            stderr_lines=counts.stderr_lines,
            refused=counts.refused,
            memory=None if tree is None else tree.memory,
            processes=None if tree is None else tree.processes,
        )


async def serve_at(
    address: str, token: str | ReferringValue | None, environ: Mapping[str, str], metrics: Metrics, runtime: Runtime
) -> None:
    """Serve them at an address of their own, to the holder of the token if there is one. If the address is in use, or
    the token cannot be fetched, calls are served all the same."""
    from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
    from mcp_workbench.engine.transport.http.server.listening import parse_address

    host, port = parse_address(address)
    try:
        known = token if token is None or isinstance(token, str) else await _fetched(token, environ, runtime)
    except DownstreamError as error:
        log.warning("no metrics are served: %s", error.message)
        return
    # Without one, a token that nobody has.
    callers = _MetricsReaders(known or secrets.token_hex(32))
    options = HttpOptions(host=host, port=port, authenticator=callers, header_names=METRICS_HEADERS)
    access = PageAccess.ANYBODY if known is None else PageAccess.CALLERS
    try:
        runtime.metrics[address] = await serve_http(
            options, _no_session, pages={METRICS_PATH: NegotiatedPage(metrics.respond_to, access)}
        )
    except ConfigError as error:
        log.warning("no metrics are served: %s", error.message)


async def _fetched(token: ReferringValue, environ: Mapping[str, str], runtime: Runtime) -> str:
    """What the token refers to. Raises `DownstreamError`."""
    from mcp_workbench.signin.secrets.resolve import resolve_value

    found = await resolve_value(token, environ)
    runtime.redactor.replace(token, found.secrets)
    if not (text := found.text.strip()):
        raise DownstreamError("the token of `metrics` is empty")
    return text


class _MetricsReaders(BearerToken):
    """Lets the holder of the token read metrics, and nobody do anything else: there is no MCP endpoint here."""

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        return super().authenticate(head) if head.path == METRICS_PATH else self._missing


def _no_session(link: object, principal: str) -> ServedSession:
    raise AssertionError("nobody can have the token")
