"""What waits for the user in a running workbench: approvals, sign-ins, changed definitions, servers that do not work.

Pure: a status report in, sentences and commands out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from shlex import quote
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.cli.server_copies import ServerCopies, duration, grouped, lacking_in, withheld_in
from mcp_workbench.engine.downstream.server_status import SIGN_IN_NEEDED
from mcp_workbench.engine.printable import one_line

# Of the arguments of a call; `mcp-workbench team approve --show` has all of it.
MAX_ARGUMENTS_SHOWN: Final = 200
MAX_HOSTS_SHOWN: Final = 5
_CRASHED: Final = ("failed", "backoff")
_DIFFERENCE: Final = "mcp-workbench team lock diff"
_NO_LOCK_HINT: Final = "mcp-workbench team lock creates it; review it before you commit it"


class Need(Struct, frozen=True):
    """One thing that waits for the user."""

    what: str
    details: tuple[str, ...] = ()
    # A command, or what else to do.
    do: str = ""


def needs_of(status: dict[str, Any]) -> list[Need]:
    """The most urgent first: a call that waits for approval holds up an agent."""
    if status.get("serving") == "ending":
        # Of a shared workbench that was restarted, the next one says everything else.
        return [*_approvals(status.get("approvals"))]
    servers = grouped(status["servers"])
    return [
        *_approvals(status.get("approvals")),
        *(need for copies in servers for need in _sign_ins(copies)),
        *_configuration(status),
        *_cluster_state(status.get("clusterState")),
        *(need for copies in servers for need in _definitions(copies)),
        *(need for copies in servers for need in _crashed(copies, status.get("serving"))),
        *(need for copies in servers for need in _sandboxes(copies)),
    ]


def needs_of_workbench(status: dict[str, Any]) -> list[Need]:
    """Without those of single servers, and with all arguments of calls."""
    approvals = _approvals(status.get("approvals"), is_whole=True)
    return [*approvals, *_configuration(status), *_cluster_state(status.get("clusterState"))]


def _approvals(approvals: object, *, is_whole: bool = False) -> Iterator[Need]:
    """Calls that wait for the user because their client could not ask."""
    for each in approvals if isinstance(approvals, list) else ():
        arguments = one_line(each["arguments"])
        if len(arguments) > MAX_ARGUMENTS_SHOWN and not is_whole:
            arguments = arguments[:MAX_ARGUMENTS_SHOWN] + "…"
        yield Need(
            f"approve {one_line(each['call'])} for {one_line(each['principal'])}, {duration(each['secondsLeft'])} left",
            (f"it will be sent as {arguments}",),
            f"mcp-workbench team approve {one_line(each['id'])}",
        )


def _sign_ins(copies: ServerCopies) -> Iterator[Need]:
    waiting = [each for each in copies.reports if each["state"] == SIGN_IN_NEEDED]
    if waiting:
        users = ", ".join(dict.fromkeys(str(each["user"]) for each in waiting if each.get("user")))
        whose = f" as {users}" if users else ""
        yield Need(f"sign in to {copies.label}{whose}", (), _next_of(waiting) or _login(copies))
        return
    for note in dict.fromkeys(each["signInNote"] for each in copies.reports if each.get("signInNote")):
        yield Need(f"{copies.label}: {note}")


def _login(copies: ServerCopies) -> str:
    return f"mcp-workbench auth login {quote(copies.label)}"


def _cluster_state(state: object) -> Iterator[Need]:
    if isinstance(state, dict) and state["problem"]:
        yield Need(
            f"the cluster's state at {one_line(state['address'])} is away: {one_line(state['problem'])}",
            (f"{state['waiting']} values wait to be written; calls go on",),
            "mcp-workbench team cluster status",
        )


def _configuration(status: dict[str, Any]) -> Iterator[Need]:
    configuration = status.get("configuration")
    rejected = configuration.get("rejected") if isinstance(configuration, dict) else None
    if rejected:
        what = "the configuration has changed, but the change has not taken effect"
        # `check` looks at the file of whoever runs it, which may be another.
        do = "" if "hint: " in rejected else "correct the file; it takes effect when you save it"
        yield Need(what, tuple(rejected.splitlines()), do)
    for line in (status.get("lock") or "").splitlines():
        yield Need(line, do=_NO_LOCK_HINT if line.startswith("there is no") else "")


def _definitions(copies: ServerCopies) -> Iterator[Need]:
    if found := withheld_in(copies):
        yield Need(f"{copies.label} offers something else than locked", tuple(found), _DIFFERENCE)
    if changed := dict.fromkeys(what for each in copies.reports for what in each.get("changed") or ()):
        yield Need(f"{copies.label} describes itself differently than before: {', '.join(changed)}")


def _crashed(copies: ServerCopies, serving: object) -> Iterator[Need]:
    broken = [each for each in copies.reports if each["state"] in _CRASHED]
    if broken:
        # The lines of stderr that follow the cause are in the log.
        log = f"mcp-workbench logs {quote(copies.label)}" if serving == "shared" else "mcp-workbench top"
        advice, has_written = _next_of(broken), any("\n" in (each.get("lastError") or "") for each in broken)
        details = [*copies.reasons(_CRASHED), *([f"what it wrote: {log}"] if advice and has_written else [])]
        yield Need(f"{copies.label} does not work", tuple(details), advice or log)


def _sandboxes(copies: ServerCopies) -> Iterator[Need]:
    """What a sandbox lacks on this machine, and what it refused."""
    if lacking := lacking_in(copies):
        yield Need(f"the sandbox of {copies.label} lacks something", tuple(lacking))
    refused: Counter[str] = Counter()
    for each in copies.reports:
        # What a person has decided about is settled, and what was allowed is not refused any more.
        decided = each.get("hostDecisions") or {}
        refused.update({host: n for host, n in (each.get("refusedHosts") or {}).items() if host not in decided})
    if refused:
        hosts = ", ".join(f"{host} ({count})" for host, count in refused.most_common(MAX_HOSTS_SHOWN))
        what = f"the sandbox of {copies.label} refused it {'a host' if len(refused) == 1 else 'hosts'}"
        yield Need(what, (hosts,), "mcp-workbench page allows one now; for good, add it to `network` of its `sandbox`")


def _next_of(reports: list[dict[str, Any]]) -> str:
    """What their errors advise. Older versions do not report it."""
    return next((str(each["nextStep"]) for each in reports if each.get("nextStep")), "")
