"""How servers are doing, told truthfully: for `/readyz`, `mcp-workbench status` and the resource `workbench://status`."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.lifecycle import State


def status_of(connections: Iterable[Connection], now: float) -> list[dict[str, object]]:
    """One entry for each connection there is, in the order they were made."""
    return [_status(connection, now) for connection in connections]


def _status(connection: Connection, now: float) -> dict[str, object]:
    traffic = connection.traffic
    is_up = connection.state is State.READY
    profile = traffic.profile if is_up else None
    error = connection.last_error
    return {
        "toolbox": connection.entry.toolbox,
        "server": connection.config.name,
        "state": connection.state.value,
        "protocol": None if profile is None else profile.version,
        "tools": None if connection.entry.offer is None else len(connection.entry.tools),
        "uptimeSeconds": round(now - connection.started_at, 3) if is_up else None,
        "starts": connection.starts,
        "failures": connection.policy.total,
        "lastError": None if error is None else error.message,
        "callsInFlight": traffic.call_count,
        "bytesReceived": traffic.bytes_received,
        "bytesSent": traffic.bytes_sent,
        "noiseLines": traffic.noise,
        "unmatchedAnswers": traffic.pending.unmatched,
    }
