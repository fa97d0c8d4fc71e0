"""The tables of docs/reference/cli.md, made from the declarations of the commands: the list of commands, and the
options of each. Pure.

The list follows the line `<!-- commands -->`, the options of a command `<!-- options of NAME -->`.
"""

from __future__ import annotations

import re
from typing import Final

from mcp_workbench import __version__
from mcp_workbench.cli.flags import HELP_FLAG
from mcp_workbench.cli.usage import ACTIONS_OF_COMMANDS, COMMAND_GROUPS, COMMANDS, SPELLED

COMMAND_LIST: Final = re.compile(r"^<!-- commands -->\n(?:\n(?:\|[^\n]*\n)+)?", re.MULTILINE)
OPTIONS: Final = re.compile(r"^<!-- options of ([a-z-]+) -->\n(?:\n(?:\|[^\n]*\n)+)?", re.MULTILINE)
# What would be set as code if help had any: options, paths, patterns.
_CODE: Final = re.compile(
    r"(?<![`\w/])(--[a-z][a-z-]*(?: --[a-z-]+)*|[a-z]+[:/][A-Za-z/]+|[a-z-]+\.json|NUMBER:HASH|WORKBENCH_TOKEN)"
    r"(?![`\w])"
)

# What people should know beyond the line that `--help` has room for: the rest of the sentence, or further ones.
MORE: Final = {
    "init.from": ", without asking",
    "init.project": "With `--from`, from your own files too. You are asked whether what came with the project may be "
    "started; if not, see below.",
    "init.json": ": what was found, what was left out, and the configuration; implies `--no-check`",
    "install.all": ", instead of naming them. A client that also reads another's file is left out.",
    "install.project": "The file has to be [trusted](#trust). The paths are those of this machine, so do not commit it "
    "as it is.",
    "install.config": "The client starts the workbench with it; your own by default.",
    "install.replace": "One that the workbench cannot start, because a variable or a secret is missing, stays and is "
    "named. Values that your configuration has in a keychain or from a program are not fetched to compare them; such a "
    "server counts as the same if its name is the same, too.",
    "install.yes": "At a terminal, it lists what is removed from which client and asks once.",
    "install.print": ": a command, or the content of a file",
    "install.json": ": what was done to each file",
    "uninstall.all": ", instead of naming them",
    "undo.purge": "They hold the keys that were in the file, and are kept until the change is undone or newer ones "
    "take their place.",
    "add.toolbox": "Without this option, the toolbox that [`init`](#init) would choose if there is one, or else the "
    "only one.",
    "add.env": "`--env 'TOKEN=${TOKEN}'` writes a reference.",
    "add.header": "`NAME: VALUE` works too.",
    "add.share": "See [who shares a server](configuration.md#who-shares-a-server).",
    "doctor.json": ": the findings, and the servers as [`check --connect --json`](#check) does",
    "check.config": "; can also be given as an argument",
    "check.json": ": the problems, or the state of every server and `warnings` that concern several of them",
    "secret.json": ", with `list`",
    "login.as": "See [what a user is](../guides/team.md#what-a-user-is).",
    "logout.as": "See [what a user is](../guides/team.md#what-a-user-is).",
    "auth.encrypt": "See [encrypted sign-ins](../guides/auth.md#encrypted-sign-ins).",
    "list.config": "; can also be given as an argument",
    "list.face": "With `auto`, those of a client that is not known.",
    "open.budget": "; as an agent can ask for it, and without a limit all definitions are shown",
    "open.json": ": the `structuredContent` that an agent gets; if it gets only text, an object with `toolbox`, "
    "`form` and `text`",
    "find.json": ": an object with `query` and `text`",
    "call.raw": ": formatted on a terminal, the server's own bytes in a pipe",
    "prompt.json": ": the list",
    "resource.json": ": the list",
    "tokens.config": "; can also be given as an argument",
    "serve.config": "; can also be given as an argument",
    "serve.face": "The configuration's `face` comes before these defaults. See [faces](../guides/faces.md).",
    "serve.separator": "With another face, this option and the next two have no effect, and a warning says so.",
    "serve.list-timeout": ", in seconds, once there is something to show",
    "serve.token": "A generated one, on loopback only, is printed once and stored for you alone; [`status`](#status) "
    "says where. Other users of the machine can read command lines, so prefer the variable or `--token-file`.",
    "serve.token-file": "White space around it is ignored. Warns if other users can read the file.",
    "serve.no-token": "Every user of this machine, and every program they run, can then use your servers as you.",
    "serve.allow-host": "; may be repeated",
    "serve.allow-origin": "; may be repeated",
    "serve.allow-user": ", by name or uid; may be repeated. See [on one machine](../guides/team.md#on-one-machine).",
    "serve.tls-cert": "The file has the whole chain. A renewed one is used within a second, without a restart.",
    "serve.tls-client-ca": "See [behind a proxy](../guides/team.md#behind-a-proxy-that-authenticates).",
    "serve.drain-delay": "So that load balancers notice: see [health checks](../guides/http.md#health-checks). Polled "
    "means within the last 30 s.",
    "serve.version": f": `{__version__}`, or `{__version__}+g1ee18ce` for a commit between releases",
    "serve.log-file": "; a new file is readable only by you",
    "serve.log-format": "`text` starts with the local date and time; `json` is one object per line, times in UTC.",
    "up.foreground": "It runs until stopped, and logs to stderr. If one is running already, it waits and takes its "
    "place. It exits with 75 after `restart`, so that a service manager starts it again.",
    "up.print-service": "Its first lines say where to save it.",
    "logs.follow": "; `-f` for short",
    "approve.show": ", up to 256 KiB",
    "approve.for": ", for at most a day",
    "policy.group": "; can be given several times",
    "policy.resource": ": `toolbox/server/` and its URI",
    "key.toolboxes": ", such as `web*`",
    "key.expires": "Also `2w` and `1y`; days are in UTC.",
    "key.json": ", with `create` and `list`",
    "trust.json": ", with `--list`",
}


def with_tables(document: str) -> str:
    """The document with its tables as they should be."""
    return OPTIONS.sub(lambda found: _options(found[1]), COMMAND_LIST.sub(lambda _: _commands(), document))


def _commands() -> str:
    rows = [f"| **Try** | |\n| [`demo`](#demo) | {_marked(COMMANDS['demo'].summary)} |\n"]
    for group, names in COMMAND_GROUPS.items():
        rows.append(f"| **{group}** | |\n")
        for name in names:
            every = [name, *ACTIONS_OF_COMMANDS.get(name, {}).values()]
            rows += [f"| [`{SPELLED[each]}`](#{each}) | {_marked(COMMANDS[each].summary)} |\n" for each in every]
    return "<!-- commands -->\n\n| command | what it does |\n|---|---|\n" + "".join(rows)


def _options(command: str) -> str:
    rows = []
    for flag in (*COMMANDS[command].flags, HELP_FLAG):
        about = _marked(flag.help)
        if more := MORE.get(f"{command}.{flag.name}"):
            about += more if more[0] in ",;:" else f". {more}"
        name = f"`--{flag.name} {flag.value}`" if flag.value else f"`--{flag.name}`"
        rows.append(f"| {name} | {about} |\n")
    return f"<!-- options of {command} -->\n\n| option | what it is |\n|---|---|\n" + "".join(rows)


def _marked(text: str) -> str:
    return _CODE.sub(r"`\1`", text).replace("|", "\\|")
