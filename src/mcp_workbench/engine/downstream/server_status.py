"""The status of servers, for `/readyz`, `mcp-workbench status` and the resource `workbench://status`.

Owns what is reported, and that every configured server is included, even if it has not been used yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.errors import SignInNeeded, WorkbenchError

SIGN_IN_NEEDED: Final = "needs sign-in"


def status_of(
    entries: Iterable[ServerEntry],
    connections: Iterable[Connection],
    now: float,
    users_of: Callable[[Connection], dict[str, object]] | None = None,
) -> list[dict[str, object]]:
    """The status of each connection, in the order of creation, then of the servers without one. `users_of` says who
    uses a connection, for those who may know."""
    reached = list(connections)
    used = {id(connection.entry) for connection in reached}
    # For a reader who sees the connections of all users, a server that only others use is in use.
    by_users = {(each.entry.toolbox, each.entry.name) for each in reached if each.entry.context.principal}
    return [
        *(_status(each, now) | (users_of(each) if users_of else {}) for each in reached),
        *(_unused(entry) for entry in entries if id(entry) not in used and (entry.toolbox, entry.name) not in by_users),
    ]


def _status(connection: Connection, now: float) -> dict[str, object]:
    traffic = connection.traffic
    is_up = connection.state is State.READY
    profile = traffic.profile if is_up else None
    error = failure_of(connection)
    received, sent, noise, unmatched = connection.counts()
    return {
        "toolbox": connection.entry.toolbox,
        "server": connection.config.name,
        "state": state_of(connection),
        "protocol": None if profile is None else profile.version,
        "tools": _tools(connection.entry),
        "withheld": _withheld(connection.entry),
        "uptimeSeconds": round(now - connection.started_at, 3) if is_up else None,
        "starts": connection.starts,
        "failures": connection.policy.total,
        "lastError": None if error is None else error.message,
        # Readers first want to know whether an error is recent.
        "lastErrorSecondsAgo": None if connection.last_error is None else round(now - connection.last_error_at, 3),
        "nextStep": None if error is None else error.hint,
        "sandbox": connection.sandbox or configured_sandbox(connection.entry),
        **({"refusedHosts": dict(connection.refused_hosts)} if connection.refused_hosts else {}),
        **({"hostDecisions": dict(decided)} if (decided := connection.entry.host_decisions) else {}),
        **_sign_in(connection.entry),
        "waitingForStart": connection.waiting,
        "callsInFlight": traffic.call_count,
        # Included in `callsInFlight`.
        "callsWaiting": traffic.pending.waiting_count,
        "bytesReceived": received,
        "bytesSent": sent,
        "noiseLines": noise,
        "unmatchedAnswers": unmatched,
    }


def failure_of(connection: Connection) -> WorkbenchError | None:
    # A server that could not even be started has no other record of its failure.
    return connection.last_error or (connection.entry.failure if connection.config.unresolved else None)


def state_of(connection: Connection) -> str:
    """Its state as a word. A server that waits for a sign-in has not failed; one that lacks a variable has, although it
    was never started."""
    if connection.config.unresolved:
        return State.FAILED.value
    is_up = connection.state in (State.READY, State.STARTING)
    return SIGN_IN_NEEDED if isinstance(connection.last_error, SignInNeeded) and not is_up else connection.state.value


def _unused(entry: ServerEntry) -> dict[str, object]:
    return {
        "toolbox": entry.toolbox,
        "server": entry.config.name,
        "state": unused_state(entry).value,
        "protocol": None,
        "tools": _tools(entry),
        "withheld": _withheld(entry),
        "uptimeSeconds": None,
        "starts": 0,
        "failures": 0,
        "lastError": None if entry.failure is None else entry.trouble_for_all,
        "lastErrorSecondsAgo": None,
        "nextStep": None if entry.failure is None or entry.trouble is None else entry.trouble.hint,
        "sandbox": configured_sandbox(entry),
        **_sign_in(entry),
        "waitingForStart": 0,
        "callsInFlight": 0,
        "callsWaiting": 0,
        "bytesReceived": 0,
        "bytesSent": 0,
        "noiseLines": 0,
        "unmatchedAnswers": 0,
    }


def unused_state(entry: ServerEntry) -> State:
    """The state of a server that nobody has used here."""
    if entry.config.unresolved:
        # No request can start it: the environment has to change first.
        return State.FAILED
    return State.CONFIGURED if entry.offer is None else State.KNOWN


def configured_sandbox(entry: ServerEntry) -> dict[str, object] | None:
    """What is known before the server is started: its profile; None for addresses."""
    if entry.config.command is None:
        return None
    return {"profile": "guard" if entry.config.sandbox is None else entry.config.sandbox.profile}


def _sign_in(entry: ServerEntry) -> dict[str, object]:
    """When the sign-in expires, and what to do about it when that is near."""
    term = entry.sign_in
    return {
        "signInEndsAt": None if term is None else term.ends_at,
        "signInNote": None if term is None else term.note() or None,
    }


def _withheld(entry: ServerEntry) -> dict[str, list[str]]:
    """The items withheld because they differ from the lock file, by kind."""
    return {kind: sorted(names) for kind, names in entry.withheld.items() if names}


def _tools(entry: ServerEntry) -> int | None:
    return None if entry.offer is None else len(entry.tools)
