"""`mcp-workbench team approve`: allow or deny a call that waits for the user's approval."""

from __future__ import annotations

from mcp_workbench.cli.error_output import FAILED_STATUS, complain
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import stdout
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.team.policy.approval_socket import ApprovalRefused, ApprovalRequest, decide_anywhere

# A day: by tomorrow, users will not remember what they allowed today.
MAX_APPROVAL_LIFETIME = 86_400


def run(parsed: Parsed) -> int:
    wanted = ApprovalRequest(
        parsed.positionals[0], _seconds(parsed.value("for")), parsed.has("show"), parsed.has("deny")
    )
    if wanted.denies and (wanted.only_shows or wanted.seconds is not None):
        raise UsageError("`--deny` cannot be combined with `--show` or `--for`", hint="a denial is for 10 minutes")
    try:
        # The id does not identify the workbench that holds the call, so all of this user's workbenches are asked.
        reply = run_loop(decide_anywhere(wanted))
    except ApprovalRefused:
        return complain(
            "this process cannot be told from a server's (it runs with no_new_privs), and servers must not approve",
            hint="run it outside of the sandbox or container, or answer in a client that can ask you",
            status=FAILED_STATUS,
        )
    if reply.problem is not None:
        return complain(
            f"the call `{wanted.id[:50]}` could not be decided: {one_line(reply.problem)}", status=FAILED_STATUS
        )
    if reply.found is None:
        return _complain_of(wanted.id[:50], reply.decided)
    if wanted.only_shows:
        for line in reply.found.split("\n", 1):
            stdout().line(one_line(line))
        return 0
    stdout().line(f"{'denied' if wanted.denies else 'approved'}: {one_line(reply.found)}")
    return 0


def _complain_of(id: str, decided: str | None) -> int:
    hint = "`mcp-workbench status` shows the calls that are waiting"
    if decided is not None:
        return complain(f"the call `{id}` has been {one_line(decided)} already", hint=hint)
    return complain(f"no call is waiting for the approval `{id}`: it has expired or never existed", hint=hint)


def _seconds(written: str | None) -> float | None:
    if written is None:
        return None
    if not (written.isascii() and written.isdecimal()) or not 0 < int(written[:9]) <= MAX_APPROVAL_LIFETIME:
        raise UsageError(f"`--for {written[:50]}` is not a number of seconds", hint=f"1 to {MAX_APPROVAL_LIFETIME:,}")
    return float(written)
