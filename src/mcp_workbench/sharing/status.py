"""Who is served by the shared workbench, and who shares what: for `mcp-workbench status`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from mcp_workbench.engine.downstream.server_status import status_of
from mcp_workbench.engine.session.client_name import client_name
from mcp_workbench.engine.version import full_version

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.session.session import Session
    from mcp_workbench.sharing.catalogs import Catalogs
    from mcp_workbench.sharing.client import SharedClient


def describe(catalogs: Catalogs, clients: Collection[SharedClient], *, is_ending: bool = False) -> dict[str, object]:
    """Return the status in the format of every workbench, with `clients`, and which clients share servers. One that is
    ending is no longer the shared workbench: another may be."""
    runtime = catalogs.runtime
    now = asyncio.get_running_loop().time()
    connections = runtime.pool.connections()
    entries = list(dict.fromkeys(entry for gateway in catalogs.gateways for entry in gateway.catalog.entries()))
    rows = status_of(entries, connections, now)
    reached = {connection.entry for connection in connections}
    unused = [entry for entry in entries if entry not in reached]
    processes = {client.session: client.hello.pid for client in clients if client.session is not None}
    shared = [
        *(_sharing(each.entry, _users(each, processes)) for each in connections),
        *(_sharing(entry, []) for entry in unused),
    ]
    locks = {each.gate.oversight.problem for each in catalogs.gateways if each.gate.oversight is not None}
    return {
        "pid": os.getpid(),
        "version": full_version(),
        "serving": "ending" if is_ending else "shared",
        "config": None,
        "face": None,
        "uptimeSeconds": round(now - runtime.started_at, 3),
        "configuration": {
            "reloads": sum(gateway.reloads.count for gateway in catalogs.gateways),
            "rejected": "\n".join(catalogs.rejected()) or None,
        },
        "lock": "\n".join(sorted(filter(None, locks))) or None,
        "approvals": [waiting for gateway in catalogs.gateways for waiting in gateway.waiting_approvals()],
        "tasks": len(asyncio.all_tasks()),
        "configurations": len(catalogs.gateways),
        "clients": [_client(client, now) for client in sorted(clients, key=lambda each: each.joined_at)],
        "servers": [{**row, **more} for row, more in zip(rows, shared, strict=True)],
    }


def _client(client: SharedClient, now: float) -> dict[str, object]:
    session = client.session
    return {
        "pid": client.hello.pid,
        "name": client_name(b"{}" if session is None else session.client_info),
        "folder": client.context.folder,
        "config": client.context.config.path,
        "face": client.gateway.face.name,
        "callsInFlight": 0 if session is None else len(session.calls),
        "unreadBytes": client.unsent_bytes,
        "connectedSeconds": round(now - client.joined_at, 3),
    }


def _sharing(entry: ServerEntry, users: list[int]) -> dict[str, object]:
    config = entry.config
    folder = None if config.share in ("user", "everyone") and config.cwd is None else config.cwd or entry.context.folder
    return {
        "share": config.share or ("session" if entry.per_client else "project"),
        "folder": folder,
        "users": users,
        "changed": entry.changed,
    }


def _users(connection: Connection, processes: Mapping[Session, int]) -> list[int]:
    peers = connection.traffic.clients.sessions()
    return sorted(pid for session, pid in processes.items() if session in peers)
