"""`mcp-workbench status`: show the state of the running workbenches and their servers."""

from __future__ import annotations

import time
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.catalog.offer import MOST_WITHHELD_NAMED
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Part, Screen, stdout
from mcp_workbench.observe.status_socket import query_all
from mcp_workbench.printable import one_line
from mcp_workbench.run import run as run_loop

EXPECTED = {"pid", "config", "face", "uptimeSeconds", "servers"}
HEADER = ("toolbox/server", "state", "up", "tools", "in flight", "starts", "failures", "received", "sent")
NARROW = ("toolbox/server", "state", "up", "tools", "in flight", "failures")


def run(parsed: Parsed) -> int:
    answers = run_loop(query_all())
    found = [status for answer in answers.values() if (status := _read(answer)) is not None]
    screen = stdout()
    if parsed.has("json"):
        screen.json(found)
        return 0
    # The socket accepts, so the process is alive; but SIGTERM is handled by the event loop, which hangs.
    for pid in (pid for pid, answer in answers.items() if not answer):
        screen.line(f"process {pid} does not answer; kill -9 {pid} ends it")
    if not answers:
        screen.line("No workbench is running.")
    for number, status in enumerate(found):
        if number:
            screen.blank()
        _show(screen, status)
    return 0


async def running_workbenches() -> list[dict[str, Any]]:
    """Return the status reports of the user's running workbenches."""
    answers = await query_all()
    return [status for answer in answers.values() if (status := _read(answer)) is not None]


def _read(answer: bytes) -> dict[str, Any] | None:
    try:
        status = decode(answer)
    except DecodeError:
        return None
    # Another version, or another program, may report different keys.
    return status if isinstance(status, dict) and status.keys() >= EXPECTED else None


def _show(screen: Screen, status: dict[str, Any]) -> None:
    up = _duration(status["uptimeSeconds"])
    # Older versions do not report where they serve.
    serving = f"{status['serving']}, " if status.get("serving") else ""
    if status.get("clients") is None:
        screen.line(f"process {status['pid']}, {serving}face {status['face']}, up {up}: {status['config']}")
    else:
        screen.line(f"process {status['pid']}, {serving}up {up}")
        _show_clients(screen, status["clients"])
    _show_token(screen, status.get("tokenFile"))
    _show_rejected(screen, status.get("configuration"))
    for line in (status.get("lock") or "").splitlines():
        screen.line((line, "warn"), indent=2)
    _show_approvals(screen, status.get("approvals"))
    servers = status["servers"]
    if not any(server["starts"] for server in servers):
        screen.line("no server started yet", indent=2)
    if servers:
        _show_table(screen, [_row(server) for server in servers])
    _show_sharing(screen, [server for server in servers if server.get("users")])
    for server in servers:
        name = f"{server['toolbox']}/{server['server']}"
        for kind, withheld in (server.get("withheld") or {}).items():
            named = ", ".join(withheld[:MOST_WITHHELD_NAMED])
            screen.line(f"{name}: withheld {kind}: {named} (mcp-workbench lock diff)", indent=2)
        if server["lastError"]:
            ago = server.get("lastErrorSecondsAgo")
            when = "" if ago is None else f" ({_duration(ago)} ago)"
            # The lines of stderr that follow are in the log.
            screen.line(f"{name}: {server['lastError'].splitlines()[0]}{when}", indent=2)
        if server.get("signInNote"):
            screen.line(f"{server['toolbox']}/{server['server']}: {server['signInNote']}", indent=2)
        elif isinstance(server.get("signInEndsAt"), int | float):
            when = time.strftime("%Y-%m-%d", time.localtime(server["signInEndsAt"]))
            screen.line(f"{server['toolbox']}/{server['server']}: signed in until {when}", indent=2)


def _show_clients(screen: Screen, clients: list[dict[str, Any]]) -> None:
    """Show the clients of the shared workbench."""
    if not clients:
        screen.line("no client is connected", indent=2)
        return
    header = ("client", "name", "face", "in flight", "connected", "folder", "configuration")
    rows: list[list[Part]] = [
        [
            str(client["pid"]),
            client["name"] or "",
            client["face"],
            str(client["callsInFlight"]),
            _duration(client["connectedSeconds"]),
            client["folder"],
            client["config"],
        ]
        for client in clients
    ]
    screen.table(header, rows, indent=2, right=(0, 3, 4))


def _show_sharing(screen: Screen, servers: list[dict[str, Any]]) -> None:
    """Show which clients use which of its servers."""
    for server in servers:
        users = ", ".join(map(str, server["users"]))
        where = f" in {server['folder']}" if server.get("folder") else ""
        name = f"{server['toolbox']}/{server['server']}"
        screen.line(f"{name} (share: {server['share']}){where}: used by {users}", indent=2)


def _show_token(screen: Screen, path: object) -> None:
    """Show the token generated for its clients. A token provided by the user is not shown."""
    if not isinstance(path, str):
        return
    from mcp_workbench.cli.http_token import read_stored

    token = read_stored(path)
    screen.line(f"token {token}, stored in {path}" if token else f"its token cannot be read from {path}", indent=2)


def _show_rejected(screen: Screen, configuration: object) -> None:
    rejected = configuration.get("rejected") if isinstance(configuration, dict) else None
    if rejected:
        screen.line("the configuration has changed, but the change has not taken effect:", indent=2)
        for line in rejected.splitlines():
            screen.line(line, indent=4)


def _show_approvals(screen: Screen, approvals: object) -> None:
    """Show calls that wait for the user because their client could not ask."""
    for each in approvals if isinstance(approvals, list) else ():
        left, call, principal = _duration(each["secondsLeft"]), one_line(each["call"]), one_line(each["principal"])
        screen.line(f"waiting for approval, {left} left: {call} for {principal}", indent=2)
        screen.line(f"it will be sent as {one_line(each['arguments'])}", indent=4)
        screen.line(f"mcp-workbench approve {one_line(each['id'])}", indent=4)


def _show_table(screen: Screen, rows: list[list[Part]]) -> None:
    header: tuple[str, ...] = HEADER
    # The columns left out are in `--json`, and in a wider window.
    if not screen.fits(header, rows, indent=2):
        kept = [header.index(title) for title in NARROW]
        header, rows = NARROW, [[row[column] for column in kept] for row in rows]
    screen.table(header, rows, indent=2, right=range(2, len(header)))


def _row(server: dict[str, Any]) -> list[Part]:
    return [
        f"{server['toolbox']}/{server['server']}",
        server["state"],
        "" if server["uptimeSeconds"] is None else _duration(server["uptimeSeconds"]),
        "" if server["tools"] is None else str(server["tools"]),
        str(server["callsInFlight"]),
        str(server["starts"]),
        str(server["failures"]),
        _size(server["bytesReceived"]),
        _size(server["bytesSent"]),
    ]


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count //= 1024
    return f"{count} GiB"
