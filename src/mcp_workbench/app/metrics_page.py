"""The page `/metrics`: collects what metrics are about from one process, when somebody asks for them.

Beside `/mcp` for those who may call, or at an address of its own on this machine (`serve_at`). Loaded with the first of
these.
"""

from __future__ import annotations

import gzip
import logging
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.server_status import SIGN_IN_NEEDED, state_of
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.transport.http.server.pages import METRICS_HEADERS, METRICS_PATH, NegotiatedPage, PageResponse
from mcp_workbench.engine.version import full_version
from mcp_workbench.seeing.metrics import (
    CONTENT_TYPE,
    OPENMETRICS_CONTENT_TYPE,
    ServerFacts,
    WorkbenchFacts,
    exposition,
)
from mcp_workbench.seeing.process_figures import own_process, tree_of

if TYPE_CHECKING:
    from mcp_workbench.app.runtime import Runtime
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.observe.call_figures import CallFigures
    from mcp_workbench.engine.transport.http.server.http_server import HttpServer
    from mcp_workbench.engine.transport.http.server.request_head import RequestHead
    from mcp_workbench.engine.transport.http.server.served_session import ServedSession

log = logging.getLogger(__name__)

# Smaller ones are not worth it.
_LEAST_COMPRESSED: Final = 1024
# Scrapes are seconds apart, and compressing half a megabyte takes milliseconds.
_LEVEL: Final = 1
_STATES: Final = (*(state.value for state in State), SIGN_IN_NEEDED)
_NOT_YOURS: Final = b"rules hide servers from some users: these metrics are for the holder of the workbench's token\n"


class Metrics:
    """The metrics of one process."""

    def __init__(self, runtime: Runtime, *, per_tool: bool) -> None:
        self._runtime = runtime
        self._per_tool = per_tool
        self._figures: CallFigures = runtime.count_calls()
        self._started_at = time.time()

    def respond_to_caller(self, head: RequestHead) -> PageResponse:
        if head.principal not in OWN_PRINCIPALS and any(facts().has_rules for facts in self._runtime.gateway_facts):
            return PageResponse(403, b"content-type: text/plain\r\n", _NOT_YOURS)
        return self.respond_to(head)

    def respond_to(self, head: RequestHead) -> PageResponse:
        return self._respond(head.headers.get("accept", ""), head.headers.get("accept-encoding", ""))

    def _respond(self, accept: str, encodings: str) -> PageResponse:
        is_open = "application/openmetrics-text" in accept
        body = exposition(self._figures, self._facts(), per_tool=self._per_tool, is_open=is_open)
        headers = f"content-type: {OPENMETRICS_CONTENT_TYPE if is_open else CONTENT_TYPE}\r\n"
        if len(body) >= _LEAST_COMPRESSED and "gzip" in encodings:
            body = gzip.compress(body, _LEVEL)
            headers += "content-encoding: gzip\r\n"
        return PageResponse(200, (headers + "vary: accept, accept-encoding\r\n").encode(), body)

    def _facts(self) -> WorkbenchFacts:
        gateways = [facts() for facts in self._runtime.gateway_facts]
        lost = [each.audit_lost for each in gateways if each.audit_lost is not None]
        servers = _servers(self._runtime.pool.connections())
        for each in servers:
            # Measured now, so remembered for those who look at the day.
            if each.memory is not None:
                self._figures.note_memory(each.toolbox, each.server, each.memory)
        return WorkbenchFacts(
            version=full_version(),
            process=own_process(self._started_at),
            states=_STATES,
            servers=servers,
            known={label for each in gateways for label in each.servers},
            approvals_waiting=sum(each.approvals_waiting for each in gateways),
            audit_lost=sum(lost) if lost else None,
            spans_dropped=sum(each.dropped for each in senders)
            if (senders := self._runtime.counting.span_senders)
            else None,
        )


def _servers(connections: Iterable[Connection]) -> list[ServerFacts]:
    """Those that have been used."""
    found: dict[tuple[str, str], list[Connection]] = {}
    for each in connections:
        found.setdefault((each.entry.toolbox, each.entry.name), []).append(each)
    servers = []
    for (toolbox, server), own in found.items():
        pids = [each.run.process_id for each in own if each.run is not None]
        tree = tree_of(pid for pid in pids if pid is not None)
        servers.append(
            ServerFacts(
                toolbox=toolbox,
                server=server,
                states={state_of(each) for each in own},
                starts=sum(each.starts for each in own),
                failures=sum(each.policy.total for each in own),
                memory=None if tree is None else tree.memory,
                processes=None if tree is None else tree.processes,
                refused=sum(sum(each.refused_hosts.values()) for each in own),
            )
        )
    return servers


async def serve_at(address: str, metrics: Metrics, served: dict[str, HttpServer | None]) -> None:
    """Serve them at an address of this machine. If that is in use, calls are served all the same."""
    from mcp_workbench.engine.transport.http.server.authentication import BearerToken
    from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
    from mcp_workbench.engine.transport.http.server.listening import parse_address
    from mcp_workbench.errors import ConfigError

    host, port = parse_address(address)
    # A token that nobody has: there is no MCP endpoint here.
    nobody = BearerToken(secrets.token_hex(32))
    options = HttpOptions(host=host, port=port, authenticator=nobody, header_names=METRICS_HEADERS)
    try:
        served[address] = await serve_http(
            options, _no_session, pages={METRICS_PATH: NegotiatedPage(metrics.respond_to)}
        )
    except ConfigError as error:
        log.warning("no metrics are served: %s", error.message)


def _no_session(link: object, principal: str) -> ServedSession:
    raise AssertionError("nobody can have the token")
