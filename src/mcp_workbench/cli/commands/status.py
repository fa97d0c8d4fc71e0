"""`mcp-workbench status`: show what needs the user, and the state of the running workbenches and their servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_workbench.cli.attention import Need, needs_of, needs_of_workbench
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Part, Screen, Style, stdout
from mcp_workbench.cli.server_copies import BROKEN, ServerCopies, details_of, duration, grouped
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.observe.status_socket import query_all, reports
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.engine.socket_peers import is_confined

STATUS_HEADER = ("toolbox/server", "state", "up", "tools", "in flight", "starts", "failures", "received", "sent")
SHORT = ("toolbox/server", "state", "up", "tools", "in flight", "sandbox")
NARROW_STATUS_HEADER = ("toolbox/server", "state", "up", "tools", "in flight", "failures")


def run(parsed: Parsed) -> int:
    answers = run_loop(query_all())
    found = reports(answers)
    screen = stdout()
    if parsed.has("json"):
        screen.json(found)
        return 0
    # The socket accepts, so the process is alive; but SIGTERM is handled by the event loop, which hangs.
    for pid in (pid for pid, answer in answers.items() if not answer):
        screen.line(f"process {pid} does not answer; kill -9 {pid} ends it")
    if not answers:
        screen.line("No workbench is running.")
        if is_confined():
            screen.line(
                ("This shell runs with no_new_privs, as servers do: workbenches outside do not answer it.", "dim")
            )
    if parsed.has("long"):
        for number, status in enumerate(found):
            if number:
                screen.blank()
            _show(screen, status)
    else:
        show_short(screen, found)
    return 0


def show_short(screen: Screen, found: list[dict[str, Any]]) -> None:
    """What needs the user in any workbench; then each with a row for each server."""
    needs = [need for status in found for need in needs_of(status)]
    if needs:
        screen.line(("Needs you", "warn"))
        for need in needs:
            _show_need(screen, need)
    for number, status in enumerate(found):
        if number or needs:
            screen.blank()
        _show_in_short(screen, status)


def _show_need(screen: Screen, need: Need) -> None:
    screen.line((one_line(need.what), "strong"), indent=2)
    for detail in need.details:
        screen.line(one_line(detail), indent=4)
    if need.do:
        screen.line((one_line(need.do), "code"), indent=4, wrap=not need.do.startswith("mcp-workbench"))


def _show_in_short(screen: Screen, status: dict[str, Any]) -> None:
    clients = status.get("clients")
    names = [client["name"] or str(client["pid"]) for client in clients or ()] or status.get("clientNames") or ()
    serving = f", {status['serving']}" if status.get("serving") else ""
    whose = ", ".join(dict.fromkeys(map(one_line, names))) or ("no client is connected" if clients is not None else "")
    whose = whose or tilde(one_line(status["config"]))
    screen.line(f"process {status['pid']}{serving}, up {duration(status['uptimeSeconds'])}: {whose}")
    _show_token_file(screen, status)
    rows: list[list[Part]] = []
    servers = grouped(status["servers"])
    # Where all have the default, it is no news.
    has_sandboxes = any(each.profile not in ("", "guard") for each in servers)
    for each in servers:
        up, tools, busy = each.largest("uptimeSeconds"), each.largest("tools"), each.total("callsInFlight")
        style: Style = "good" if each.state.endswith("ready") else "plain" if each.is_used else "dim"
        rows.append(
            [
                each.label,
                (each.state, "bad" if each.reasons(BROKEN) else style),
                "" if up is None else duration(up),
                "" if tools is None else str(tools),
                str(busy) if busy else "",
                each.profile if has_sandboxes else "",
            ]
        )
    # A column in which nothing stands says nothing.
    kept = [column for column in range(len(SHORT)) if column < 2 or any(row[column] for row in rows)]
    header, rows = [SHORT[column] for column in kept], [[row[column] for column in kept] for row in rows]
    if rows:
        screen.table(header, rows, indent=2, right=range(2, len(header) - has_sandboxes))
    else:
        screen.line("no server", indent=2)


def _show(screen: Screen, status: dict[str, Any]) -> None:
    up = duration(status["uptimeSeconds"])
    # Older versions do not report where they serve.
    serving = f"{status['serving']}, " if status.get("serving") else ""
    names = ", ".join(status.get("clientNames") or ())
    serving += f"{names}, " if names else ""
    if status.get("clients") is None:
        screen.line(f"process {status['pid']}, {serving}face {status['face']}, up {up}: {status['config']}")
    else:
        screen.line(f"process {status['pid']}, {serving}up {up}")
        _show_clients(screen, status["clients"])
    _show_token_file(screen, status)
    _show_cluster_state(screen, status.get("clusterState"))
    for need in needs_of_workbench(status):
        _show_need(screen, need)
    servers = status["servers"]
    if not any(server["starts"] for server in servers):
        screen.line("no server started yet", indent=2)
    if servers:
        clients = {client["pid"]: client["name"] or "" for client in status.get("clients") or ()}
        _show_servers(screen, grouped(servers), clients)


def _show_cluster_state(screen: Screen, state: object) -> None:
    if isinstance(state, dict) and not state["problem"]:
        latency = "" if state["latencySeconds"] is None else f", {1000 * state['latencySeconds']:.1f} ms"
        screen.line(f"the cluster's state is at {one_line(state['address'])}{latency}", indent=2)


def _show_token_file(screen: Screen, status: dict[str, Any]) -> None:
    if isinstance(status.get("tokenFile"), str):
        # Not the token: a screen is shared, and output is pasted into reports.
        screen.line(f"clients need the token in {tilde(one_line(status['tokenFile']))}", indent=2)


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
            duration(client["connectedSeconds"]),
            client["folder"],
            client["config"],
        ]
        for client in clients
    ]
    if screen.fits(header, rows, indent=2):
        screen.table(header, rows, indent=2, right=(0, 3, 4))
        return
    # Paths folded into narrow columns cannot be read.
    where = [[f"in {client['folder']}, with {client['config']}"] for client in clients]
    screen.table(header[:-2], [row[:-2] for row in rows], indent=2, right=(0, 3, 4), details=where)


def _show_servers(screen: Screen, servers: list[ServerCopies], clients: Mapping[int, str]) -> None:
    header: tuple[str, ...] = STATUS_HEADER
    rows = [_row(each) for each in servers]
    # The columns left out are in `--json`, and in a wider window.
    if not screen.fits(header, rows, indent=2):
        kept = [header.index(title) for title in NARROW_STATUS_HEADER]
        header, rows = NARROW_STATUS_HEADER, [[row[column] for column in kept] for row in rows]
    details = [details_of(each, clients) for each in servers]
    screen.table(header, rows, indent=2, right=range(2, len(header)), details=details)


def _row(copies: ServerCopies) -> list[Part]:
    up, tools = copies.largest("uptimeSeconds"), copies.largest("tools")
    return [
        copies.label,
        copies.state,
        "" if up is None else duration(up),
        "" if tools is None else str(tools),
        *(str(copies.total(member)) for member in ("callsInFlight", "starts", "failures")),
        *(_size(copies.total(member)) for member in ("bytesReceived", "bytesSent")),
    ]


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count //= 1024
    return f"{count} GiB"
