"""Commands that use servers from a shell, or show what they offer."""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Command, Flag
from mcp_workbench.cli.usage.options import (
    AS,
    CONFIG,
    CONNECT,
    DEBUG,
    HEADER_FLAG,
    JSON_FLAG,
    NO_CACHE_FLAG,
    OUTPUT,
    PRIVATE,
    RAW_FLAG,
)
from mcp_workbench.engine.faces import names_of_faces

USING_COMMANDS: Final = (
    Command(
        "list [OPTIONS] [CONFIG]",
        "show toolboxes and servers; with --face, what clients see",
        """
Shows the toolboxes with their descriptions and servers: how each server is reached, which of its tools are allowed, and
how many tools it has, if it has been listed before. Starts nothing unless --connect is given, and shows no secrets.

With --face, --separator or --no-prefix (as for serve), prints the names of the tools that clients see, one per line.
With the face dynamic, these are the names once every toolbox is open.

Exit code: 0, or 1 if a server that had to be started failed.
""",
        (
            CONFIG,
            Flag("face", "FACE", f"show the tool names of this face: {names_of_faces()}"),
            Flag("separator", "CHARS", "show the names with this separator (face flat)"),
            Flag("no-prefix", None, "show the names without a prefix where they are unique (face flat)"),
            CONNECT,
            JSON_FLAG,
            PRIVATE,
            DEBUG,
        ),
        takes=1,
    ),
    Command(
        "open [OPTIONS] TOOLBOX",
        "show the tools of a toolbox as an agent gets them",
        """
Shows the tools of a toolbox as an agent gets them from open_toolbox. Full definitions, if they fit the budget, are laid
out for people; otherwise the text is exactly what the agent gets. --json prints the structured content, or an object
with the text. --budget null shows everything.

Servers that have been listed before are not started: the cached list is shown. --no-cache asks all of them.

Exit code: 0, 1 if no server of the toolbox could be reached, 2 if there is no such toolbox.
""",
        (
            CONFIG,
            Flag("budget", "TOKENS", "the token limit of the answer, instead of the configured budget; null for none"),
            JSON_FLAG,
            NO_CACHE_FLAG,
            PRIVATE,
            DEBUG,
        ),
        names=("TOOLBOX",),
        takes=1,
    ),
    Command(
        "find [OPTIONS] WORDS…",
        "search for tools as an agent does",
        """
Searches for tools by what they do, as an agent does with open_toolbox, and shows a line for each: its path, and what it
does. With --as-agent or --json you see what the agent gets.
Servers that have not been listed yet are started to say what they offer; --no-cache asks all of them again.

    mcp-workbench find create an issue
    mcp-workbench find --toolbox desk what time is it

Exit code: 0, 1 if nothing was found or no server could be reached, 2 if there is no such toolbox.
""",
        (
            CONFIG,
            Flag("toolbox", "NAME", "only in this toolbox"),
            Flag("limit", "N", "at most this many tools"),
            Flag("as-agent", None, "print exactly the text that an agent gets"),
            JSON_FLAG,
            NO_CACHE_FLAG,
            PRIVATE,
            DEBUG,
        ),
        names=("WORDS",),
    ),
    Command(
        "call [OPTIONS] TOOLBOX/SERVER/TOOL | URL TOOL | -- COMMAND … TOOL [key=value ...]",
        "call a tool",
        """
Calls a tool and prints its result: text as text, structured content as a table on a terminal and as JSON in a pipe,
images inline where the terminal can show them and as files elsewhere. The server is started for the call and stopped
afterwards; where a shared workbench is running, its server is used instead, and stays.

Arguments are key=value; the tool's input schema decides whether a value is text, a number, a boolean or JSON. key:=json
passes a value as JSON regardless of the schema. Repeat a key to pass a list.

    mcp-workbench call desk/clock/now zone=Europe/Vienna
    mcp-workbench call desk clock now zone=Europe/Vienna
    mcp-workbench call desk notes add_note title=Train text=Nine tags=a tags=b
    mcp-workbench call desk/clock/now --json '{"zone": "Europe/Vienna"}'

Toolbox, server and tool are all needed. A server that is in no file is named by its address, or by its command after
--; the last word that is not key=value is the tool:

    mcp-workbench call https://mcp.example.com/mcp search query=bees
    mcp-workbench call -- uvx mcp-server-time get_current_time timezone=UTC

What the tool asks (elicitation) is asked at the terminal; without one, servers are told that nothing can be asked.
Ctrl-C cancels the call. Tools cannot use the client's model (sampling) here.

Exit code: 0, 1 if the tool or its server failed, 2 if there is no such tool or the arguments are invalid.
""",
        (
            CONFIG,
            Flag("json", "OBJECT", "all arguments as one JSON object; - reads it from stdin"),
            RAW_FLAG,
            OUTPUT,
            HEADER_FLAG,
            NO_CACHE_FLAG,
            PRIVATE,
            DEBUG,
        ),
        # Any number of `key=value` words may follow.
        names=("TOOLBOX/SERVER/TOOL",),
    ),
    Command(
        "prompt [OPTIONS] [TOOLBOX/SERVER/PROMPT | URL PROMPT | -- COMMAND … PROMPT] [key=value ...]",
        "get a prompt, or list prompts",
        """
Gets a prompt and prints the text of its messages. Without a name, lists the prompts of all servers with their
arguments; --json prints that list as JSON.

    mcp-workbench call --prompt
    mcp-workbench call --prompt desk/notes/summarize_notes tag=home
    mcp-workbench call --prompt -- uvx mcp-server-fetch fetch url=https://a.test

Arguments are key=value, all of them text. A server that is in no file is named as for call.

Exit code: 0, 1 if the server failed, 2 if there is no such prompt or an argument is missing.
""",
        (CONFIG, RAW_FLAG, JSON_FLAG, HEADER_FLAG, NO_CACHE_FLAG, PRIVATE, DEBUG),
    ),
    Command(
        "resource [OPTIONS] [URI | TOOLBOX/SERVER URI | URL URI | -- COMMAND … URI]",
        "read a resource, or list resources",
        """
Reads a resource and prints it. In a pipe, binary data comes out as it is; on a terminal, images are shown
where it can show them and everything else goes to a file. Without an address, lists the resources and templates of all
servers; --json prints that list as JSON. Where several servers have the same address, the server is named before it; it
is started for the command.

    mcp-workbench call --resource
    mcp-workbench call --resource notes://1
    mcp-workbench call --resource desk/notes notes://1
    mcp-workbench call --resource https://mcp.example.com/mcp docs://welcome
    mcp-workbench call --resource -- ./my-server docs://welcome

Exit code: 0, 1 if the server failed or has no such resource, 2 if there is no such server.
""",
        (CONFIG, RAW_FLAG, JSON_FLAG, OUTPUT, HEADER_FLAG, NO_CACHE_FLAG, PRIVATE, DEBUG),
    ),
    Command(
        "tokens [OPTIONS] [CONFIG]",
        "show what tools cost an agent, with and without the workbench",
        """
Shows what the tools of every toolbox and server cost an agent, in tokens (bytes / 4): as a flat list, which is part of
every conversation without the workbench; in each form that open_toolbox can show them in; and when a toolbox is opened
within its budget. Counts the servers that have been listed before; --connect starts the others. Tools that most of your
clients used are named, so that you can pin them.

Exit code: 0, or 1 if a server that had to be started failed.
""",
        (CONFIG, CONNECT, JSON_FLAG, PRIVATE, DEBUG),
        takes=1,
    ),
    Command(
        "forget [OPTIONS]",
        "forget what searches have learned from your use",
        """
Deletes what your clients' searches have learned: which tools served which needs (stems of words and names of tools),
and which tools each client used. Clients that are connected now keep what they know, and add what they have learned
when they leave.

Exit code: 0, even if nothing was learned; 1 if it cannot be deleted.
""",
        (AS, DEBUG),
        takes=0,
    ),
    Command(
        "demo [SERVER [ARGUMENTS ...]]",
        "walk through a short session on the included servers",
        """
Shows in a few seconds what MCP Workbench does: a client connects, opens a toolbox and uses tools; a server crashes and
recovers. Everything runs on included servers in a temporary folder, without Node or network, and leaves nothing behind.

With the name of an included server (notes, clock), runs that server over stdio, so that your first configuration needs
nothing else: { "command": "mcp-workbench", "args": ["demo", "clock"] }
""",
        (),
        is_runner=True,
    ),
)
