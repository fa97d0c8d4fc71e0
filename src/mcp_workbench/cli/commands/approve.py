"""`mcp-workbench approve`: allow a call that waits for the user's approval because its client could not ask for it."""

from __future__ import annotations

from mcp_workbench.cli.error_output import FAILED, complain
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import stdout
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.team.policy.approval_socket import ApprovalRefused, approve_anywhere

# A day: by tomorrow, users will not remember what they allowed today.
MAX_APPROVAL_SECONDS = 86_400


def run(parsed: Parsed) -> int:
    id = parsed.positionals[0]
    only_shows = parsed.has("show")
    # The id does not identify the workbench that holds the call, so all of this user's workbenches are asked.
    asked = approve_anywhere(id, _seconds(parsed.value("for")), only_shows=only_shows)
    try:
        approved = run_loop(asked)
    except ApprovalRefused:
        return complain(
            "this process cannot be told from a server's (it runs with no_new_privs), and servers must not approve",
            hint="run it outside of the sandbox or container, or answer in a client that can ask you",
            status=FAILED,
        )
    if approved is None:
        return complain(
            f"no call is waiting for the approval `{id[:50]}`: it has been approved already, has expired, or never "
            "existed",
            hint="`mcp-workbench status` shows the calls that are waiting",
        )
    if only_shows:
        for line in approved.split("\n", 1):
            stdout().line(one_line(line))
        return 0
    stdout().line(f"approved: {one_line(approved)}")
    return 0


def _seconds(written: str | None) -> float | None:
    if written is None:
        return None
    if not (written.isascii() and written.isdecimal()) or not 0 < int(written[:9]) <= MAX_APPROVAL_SECONDS:
        raise UsageError(f"`--for {written[:50]}` is not a number of seconds", hint=f"1 to {MAX_APPROVAL_SECONDS:,}")
    return float(written)
