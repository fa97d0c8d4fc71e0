"""Commands that run workbenches, and show what runs."""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Command, Flag
from mcp_workbench.cli.serve import SERVE
from mcp_workbench.cli.usage.options import CONFIG, JSON_FLAG

RUNNING_COMMANDS: Final = (
    SERVE,
    Command(
        "up [OPTIONS]",
        "start the shared workbench; serve joins it from then on",
        """
Starts your shared workbench in the background. Until you run `mcp-workbench up --stop`, `mcp-workbench serve` joins it
instead of starting its own servers. It exits when it has had no client for `sharedIdleExit`, and the next client starts
it again.
""",
        (
            Flag("foreground", None, "run in this terminal, or under a service manager, instead of in the background"),
            Flag(
                "print-service",
                None,
                "print a systemd user unit (on macOS a launchd agent) that keeps it running, and exit",
            ),
        ),
        takes=0,
    ),
    Command(
        "down",
        "stop the shared workbench",
        """
Stops your shared workbench gracefully: running calls get a moment to finish, then its servers are stopped. Connected
clients carry on, each with its own workbench.
""",
        (),
        takes=0,
    ),
    Command(
        "restart",
        "start the shared workbench again, without losing a call",
        """
Starts your shared workbench again, for example after an update, and hands its clients over without losing a call: each
one moves to the new workbench when none of its calls is running. The old one goes on for 2 minutes at most, and status
shows it as `ending`.
""",
        (),
        takes=0,
    ),
    Command(
        "status [OPTIONS]",
        "show the running workbenches and the state of their servers",
        """
Shows what needs you: calls that wait for approval, sign-ins, changed definitions, and servers that do not work, each
with the cause and what to do; then each of your running workbenches with a row for each server: state, uptime, tools
and calls in flight.

With --long, shows everything: face and configuration, clients by process and folder and which of them use which
server, starts and failures, bytes sent and received, sandboxes, last errors, and where there is a generated HTTP
token, the file that holds it. The same, without that file, is available at /readyz over HTTP, and to clients as the
resource workbench://status.
""",
        (Flag("long", None, "show clients, copies and counts as well", short="v"), JSON_FLAG),
        takes=0,
    ),
    Command(
        "page [OPTIONS]",
        "open the page of a running workbench in the browser",
        """
Opens the page of your shared workbench, or of a running `serve`, in the browser: what waits for you (approvals,
sign-ins, changed definitions, servers that failed), calls as they happen, every tool with a form to try it, servers
with their logs, tokens, the audit, and how to connect clients. It is served on this machine alone, by the workbench
itself, and the address signs you in, once. `serve --http` also has it at /, for whoever has the token.

Exit code: 0; 1 if the workbench opens no page; 2 if none or several are meant, or the command line is wrong.
""",
        (
            Flag("port", "N", "the port on this machine (default: 8421, or another if that is taken)"),
            Flag("no-browser", None, "print the address instead of opening it"),
            Flag("pid", "PID", "the workbench with this process ID"),
            CONFIG,
        ),
        takes=0,
    ),
    Command(
        "top",
        "watch servers and calls live, stop and restart servers",
        """
Shows what your running workbenches are doing, updated every second: a row for each server with its state, calls,
errors, the 50th and 95th percentile of how long calls take, calls under way, memory and, where there is room, the
calls of the last day; why a server does not work; and the last calls, with client, user, and why they failed. The
shared workbench and `serve --http` count always; others count while top runs.

Keys: up and down choose a server, enter looks at it (its calls, its log, its copies), / shows only what contains a
text, s stops the server (the next call starts it again), r restarts it, ? shows all keys, q quits. In a pipe, it
prints one snapshot, taken over one second.
""",
        (),
        takes=0,
    ),
    Command(
        "logs [OPTIONS] [SERVER]",
        "show the log of the shared workbench, or follow that of another",
        """
Prints the log of your shared workbench: clients that join and leave, servers that start and stop, and what servers
write to stderr. With SERVER (a name, or toolbox/server), prints only the lines about that server. Following goes on
when the workbench is started again.

Other workbenches log where their clients want it; with --pid and --follow, prints what one of them logs from now on.
""",
        (
            Flag("follow", None, "keep printing new lines until Ctrl-C", short="f"),
            Flag("level", "LEVEL", "only lines of this level or worse: debug, info, warning, error"),
            Flag("lines", "N", "how many of the last lines to print (default: 200; with --follow: 20)"),
            Flag("pid", "PID", "follow the workbench with this process ID, such as a running serve"),
        ),
        takes=1,
    ),
    Command(
        "reload [PID]",
        "make running workbenches read their configuration again now",
        """
Makes each of your running workbenches, or the one with the process ID PID, read its configuration again now, and shows
the outcome. SIGHUP does the same. A saved configuration also takes effect within a second without this command.
""",
        (),
        takes=1,
    ),
)
