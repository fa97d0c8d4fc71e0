"""Commands for running a workbench for others, or with others."""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Command, Flag
from mcp_workbench.cli.usage.options import CONFIG, DEBUG, JSON_FLAG

TEAM_COMMANDS: Final = (
    Command(
        "team [ACTION] …",
        "approve calls; keys, policy, audit, the lock file, trust in projects",
        """
What an endpoint for several people needs, and who may do what. Each action is a command of its own, and `mcp-workbench
team ACTION --help` explains it.
""",
        (),
        actions=("approve", "key", "policy", "audit", "lock", "cluster", "trust"),
        takes=1,
    ),
    Command(
        "lock [OPTIONS] [diff|accept [SERVER[/TOOL]]]",
        "record what servers offer, and show what has changed since",
        """
Starts every server and writes workbench.lock beside the configuration: for each server its package and version as far
as they are known, and a hash for each tool, prompt and resource. Commit it. With "lock" in the configuration,
definitions that differ from it are reported ("warn"), or neither listed nor callable ("enforce").

lock diff shows what differs, and points out hidden characters, sentences that address the model, tools that take the
name of another server's tool, and annotations that promise less. lock accept accepts what differs: of all servers, of
SERVER, or of SERVER/TOOL (also a prompt or resource). Running workbenches notice within a second.

Exit code: 0; 1 if lock diff finds something, or a server cannot be started; 2 if the command line or the configuration
is wrong.
""",
        (CONFIG, JSON_FLAG, DEBUG),
        actions=("diff", "accept"),
        takes=2,
    ),
    Command(
        "audit [OPTIONS] [verify] [FILE]",
        "show who called what, and verify that the record is whole",
        """
Prints the audit as a table: when, who, from where, what was called, what was decided, how it ended. Reads the file that
"audit" in the configuration names, and its rotated files; or FILE.

verify checks that no line was edited, inserted, moved or removed since it was written, and prints the number and the
hash of the last line. Keep these elsewhere, and --expect NUMBER:HASH finds a record that was rewritten as a whole.

Exit code: 0; 1 if verify finds something, or the file cannot be read; 2 if the command line or configuration is wrong.
""",
        (
            CONFIG,
            Flag("who", "GLOB", "only lines of these principals"),
            Flag("tool", "GLOB", "only lines about these, as toolbox/server/tool; a name alone means any server's"),
            Flag("since", "WHEN", "only lines since then: 30m, 12h, 7d, or 2026-11-16T08:00"),
            Flag("lines", "N", "how many of the last lines to print (default: 200; 0 for all)"),
            Flag("expect", "LINE", "with verify: require this line to be unchanged, given as NUMBER:HASH"),
            JSON_FLAG,
        ),
        takes=2,
    ),
    Command(
        "approve ID [OPTIONS]",
        "allow or deny a call that waits for your approval",
        """
Allows the call with this ID. A client that cannot ask its user gets the ID when a rule of the policy says `ask`, and
can make the same call again once you have approved it. The approval is for exactly that call: its server, its tool, its
arguments, and the user who made it. With --deny it is refused instead, and so is the same call for the next 10 minutes,
with your name. `mcp-workbench status` shows the calls that are waiting, those that a client asks about as well.

Exit code: 0; 1 if this process may not decide; 2 if no such call waits, or if somebody has decided already.
""",
        (
            Flag("show", None, "print everything that would be sent, without allowing it"),
            Flag("deny", None, "refuse it, and the same call for the next 10 minutes"),
            Flag("for", "SECONDS", "allow the same call repeatedly for this long; without it, once"),
        ),
        names=("ID",),
        takes=1,
    ),
    Command(
        "policy test WHO TOOL [ARGUMENTS] [OPTIONS]",
        "show what the policy decides, by which rule and why",
        """
Says what the policy in the configuration decides when WHO uses TOOL with these arguments, which rule decides so, and
why. WHO is a principal: `local`, the name of a key, or `issuer#subject`. TOOL is toolbox/server/tool; with --prompt or
--resource it is the path of a prompt or resource. ARGUMENTS is a JSON object; without it the answer is the one for a
list, in which the item is shown if any arguments are allowed. If WHO is a named key, its toolboxes count. What servers
say of their tools is taken from the cache, and no server is started.

Exit code: 0; 2 if the configuration or the command line is wrong.
""",
        (
            CONFIG,
            Flag("group", "NAME", "a group that WHO is in, as the identity provider says", repeats=True),
            Flag("prompt", None, "TOOL is a prompt"),
            Flag("resource", None, "TOOL is a resource"),
            JSON_FLAG,
        ),
        actions=("test",),
        names=("test", "WHO", "TOOL"),
        takes=4,
    ),
    Command(
        "key [OPTIONS] create|list|revoke [NAME]",
        "manage named keys for clients over HTTP",
        """
Named keys tell the clients of serve --http apart: each has processes, opened toolboxes, kept results and sign-ins of
its own. create NAME makes a key and prints its token once; give that to the client as its bearer token. --toolboxes
limits the key to toolboxes with these names, --expires ends it after a time (30d, 12h, 45m) or on a day (2027-01-31, at
0:00 UTC). list shows all keys, revoke NAME ends one. Running workbenches follow within a second.

Only a hash of the token is kept, in a file that only you can read.

Exit code: 0; 1 if keys cannot be read or written, or there is no such key to revoke; 2 if the command line is wrong.
""",
        (
            Flag(
                "toolboxes",
                "NAMES",
                "create: toolboxes that the key is limited to, separated by commas; globs",
                repeats=True,
            ),
            Flag("expires", "WHEN", "create: when the key expires: 30d, 12h, 45m, or a date such as 2027-01-31"),
            JSON_FLAG,
        ),
        actions=("create", "list", "revoke"),
        names=("create|list|revoke",),
        takes=2,
    ),
    Command(
        "cluster [OPTIONS] status|key",
        "show the instances of a cluster, and create its key",
        """
Several workbenches behind a balancer leave state for each other in Valkey or Redis ("cluster" in the configuration).
status shows the instances that are running, with their versions and users, and how the state server is: its latency,
whether the clocks agree, and whether all instances have the same key. key prints a new key, for a file that all
instances have.

Exit code: 0; 1 if something is wrong with the state server; 2 if the command line or the configuration is wrong.
""",
        (CONFIG, JSON_FLAG, DEBUG),
        actions=("status", "key"),
        names=("status|key",),
        takes=1,
    ),
    Command(
        "trust [OPTIONS] [FILE]",
        "allow the workbench-config.json of a project, as it is now",
        """
A workbench-config.json decides which programs are started, and one in a project's folder was written by the
project's authors. It is used only after this command, which shows what it starts and records its path and a hash of its
content. After a change, trust it again. A file that you name with --config, as an argument or with WORKBENCH_CONFIG
needs no trust.

Trust covers the file, not the programs it names: a script in the project may change without asking again.

Exit code: 0, or 2 if the file cannot be read or is not a configuration.
""",
        (Flag("list", None, "list the trusted files"), Flag("remove", None, "stop trusting the file"), JSON_FLAG),
        takes=1,
    ),
)
