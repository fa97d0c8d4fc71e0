"""Commands that set things up: configuration, clients, secrets, sign-ins."""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Command, Flag
from mcp_workbench.cli.usage.options import AS, CONFIG, DEBUG, JSON_FLAG, NO_CACHE_FLAG, PRIVATE
from mcp_workbench.engine.faces import DEFAULT_FACE, names_of_faces

SETUP_COMMANDS: Final = (
    Command(
        "init [OPTIONS]",
        "create a configuration from the servers that your clients have",
        """
Creates your workbench-config.json from the MCP servers that the clients on this machine have. It looks for their files,
asks whether to read them, merges servers that several clients have, and groups them into toolboxes. Keys in those files
go to the keychain or, if there is none, to files that only you can read, and the configuration refers to them. Anything
that cannot be converted is listed with what to do about it. The clients' files are not changed; mcp-workbench install
CLIENT --replace does that. At the end every server is started once, as by check --connect.

Names and descriptions of toolboxes are proposals, which you can change at the prompt. You are also asked what your
clients are to see: two tools (proxy), unless you choose otherwise there or with --face. Later, edit the file: changes
take effect when you save it.

--update shows what is new, changed or gone in the clients since, and takes over what you choose; everything else in the
file stays as it is. Nothing is removed without being chosen.

Exit code: 0; 1 if the file was written and a server failed the check; 2 if there is nothing to convert or the file
already exists.
""",
        (
            Flag("from", "CLIENT", "use the servers of this client only; may be repeated", repeats=True),
            Flag("update", None, "merge what has changed in the clients since then into the existing file"),
            Flag("project", None, "write workbench-config.json into this folder, from the files of this project"),
            Flag("face", "FACE", f"what clients see: {names_of_faces()} (default: {DEFAULT_FACE})"),
            Flag("yes", None, "use everything that is found and proposed, without asking"),
            Flag("dry-run", None, "print the configuration instead of writing it"),
            Flag("no-check", None, "do not try out the servers at the end"),
            JSON_FLAG,
        ),
        takes=0,
    ),
    Command(
        "install [OPTIONS] CLIENT… | --all",
        "add the workbench to MCP clients",
        """
Adds the workbench to MCP clients, with absolute paths. The client's file is edited in place, and everything else in it
stays as it is, including comments; only Claude Code's own file is changed with its command, claude mcp. You see what
changes, and mcp-workbench install --undo CLIENT takes it back. With --replace, servers that your configuration also has
are removed from the client, so that nothing is listed twice. A server that the workbench cannot start, because a
variable or a secret is missing, stays.

Clients: claude-code, claude-desktop, cursor, vscode, vscode-insiders, devin, zed, cline, roo, continue, gemini,
antigravity, qwen-code, codex, goose, opencode, kilo, amp, droid, kiro, lm-studio, warp, junie, copilot, amazon-q. Quit
desktop clients first, and start them again afterwards. `mcp-workbench help clients` has a section for each.

Exit code: 0; 1 if one of several clients failed; 2 if nothing could be done.
""",
        (
            Flag("all", None, "all clients that are found on this machine"),
            Flag("project", None, "into the files of this project, with its workbench-config.json"),
            Flag("name", "NAME", "what the workbench is called there (default: workbench)"),
            CONFIG,
            Flag("replace", None, "also remove the servers that the workbench now serves"),
            Flag("yes", None, "do not ask before --all --replace changes anything"),
            Flag("print", None, "only print what to enter by hand"),
            Flag("dry-run", None, "show what would be done without doing it"),
            JSON_FLAG,
        ),
    ),
    Command(
        "uninstall [OPTIONS] CLIENT… | --all",
        "remove the workbench from MCP clients",
        """
Removes the entries that start the workbench from a client's file, and puts back the servers that install --replace
removed. Everything else in the file stays as it is. A server whose name the client has given to another one in the
meantime is not put back, and you are told so.

Exit code: 0; 1 if one of several clients has no workbench or its file cannot be written; 2 if nothing could be done.
""",
        (
            Flag("all", None, "from all clients that have it"),
            Flag("project", None, "from the files of this project"),
        ),
    ),
    Command(
        "undo [OPTIONS] CLIENT… | --all",
        "take back the last install or removal",
        """
Undoes the last install or uninstall for a client. If its file has not been written since, it gets exactly the bytes
that it had before, and a file that was created is deleted. Otherwise only the servers are taken back: those that were
added go, those that were removed return, and everything else stays as the client has written it. A server that has been
changed since stays as it is, and you are told so. Run it again to undo the change before that.

Backups are kept in your state folder, readable only by you, until the change is undone, at most 90 days; they hold the
keys that were in the file. --purge deletes them at once, and with them the way back.

Exit code: 0; 1 if one of several clients failed; 2 if there is nothing to undo.
""",
        (
            Flag("all", None, "the last change of every client"),
            Flag("purge", None, "delete the backups and records instead, with the keys in them"),
        ),
    ),
    Command(
        "add [OPTIONS] NAME SOURCE | NAME -- COMMAND … | --search WORDS",
        "add a server to the configuration",
        """
Adds a server to your configuration and creates the file if there is none; every other byte of it stays as it is. SOURCE
is an address, a package (npm:NAME, pypi:NAME or oci:IMAGE), a server.json, or the name of a server in the MCP registry,
such as io.github.owner/server; a program goes after --. --search lists what the registry has for some words. Words
after -- behind a package, a server.json or a registry name are more arguments for its program.

You are asked for what a server.json requires, unless --env or --header provides it. Secrets go to the keychain or, if
there is none, to a file that only you can read, and the configuration refers to them; write --env 'TOKEN=${TOKEN}' to
refer to a variable yourself. Without --toolbox, the server goes to the toolbox for its purpose if there is one, or else
to the only one.

A package is pinned to the version that its registry has now, and started once in the sandbox contained; you see its
tools and what they cost before you are asked. It stays in that sandbox. An address is connected to and asked about in
the same way; a program of your own is added, then started. Without a terminal, --yes is needed.

What a server.json or the registry describes was written by somebody else: you are shown the whole command or address
with its variables and headers, and asked before the first start if it would get a value of yours, could use files that
its arguments and variables name, is an image, which has to be pulled, or an address with headers or inside your
network. What a package stores before you agree is deleted. Packages that could load other code than their own are
refused.

Exit code: 0; 1 if the server was added and does not work, or the registry cannot be reached; 2 if nothing was added.
""",
        (
            Flag("search", None, "list the servers that the registry has for these words, and what each would run"),
            Flag("toolbox", "TOOLBOX", "the toolbox to add it to; created if it does not exist"),
            Flag(
                "env",
                "NAME=VALUE",
                "a variable for it, or what its server.json asks for; may be repeated",
                repeats=True,
            ),
            Flag("header", "NAME=VALUE", "an HTTP header to send to it; may be repeated", repeats=True),
            Flag("share", "WITH", "who shares one process: project, user or session"),
            CONFIG,
            Flag("yes", None, "add it without asking"),
            Flag("no-check", None, "do not start it"),
        ),
        # Any number: everything after `--` belongs to the program.
        names=("NAME",),
    ),
    Command(
        "remove [OPTIONS] [TOOLBOX/]SERVER",
        "remove a server from the configuration",
        """
Takes a server out of your configuration; every other byte of the file stays as it is. A toolbox that has no other
server goes with it. A running workbench stops the server at once. Secrets that the server referred to are kept, and the
output says how to remove them.

Exit code: 0, or 2 if there is no such server or the file cannot be written.
""",
        (CONFIG,),
        names=("SERVER",),
        takes=1,
    ),
    Command(
        "doctor [OPTIONS]",
        "find out what is wrong; with --sandbox, which sandbox fits a server",
        """
Looks at everything that can be wrong, and says what to do about it, the most important first: the configuration and
whether it is trusted, programs that are missing, variables and secrets, sign-ins, servers that fail, start slowly or
write to stdout, names that clients refuse, hidden characters, what your clients start, files of older versions of
clients, the keychain, the cache, sockets, versions, and limits of the system. Every server is started once. It changes
nothing, except with --fix, which fixes what is safe to fix.

Exit code: 0 if nothing is broken, 1 if something is.
""",
        (CONFIG, Flag("fix", None, "fix what is safe to fix: permissions of your own files and folders"), JSON_FLAG),
        takes=0,
    ),
    Command(
        "check [OPTIONS] [CONFIG]",
        "validate the configuration; with --connect, test every server",
        """
Validates the configuration and reports all problems at once. With --connect, also starts every server, lists its tools
and stops it again. A table shows which servers are ready, the MCP revision they use, how many tools they have and how
long they took. Below it are all failures, with the last lines of the server's stderr, and every tool, prompt, resource
or instruction with invisible characters (control, zero-width, bidirectional, tags).

--connect always asks the servers, and caches what they offer unless --no-cache is given.

References to files and keychain entries are always resolved; programs in ${cmd:...} are run only with --connect.

Exit code: 0 if everything is fine, 1 if a server failed, 2 if the configuration is wrong, or lacks a variable, file or
keychain entry it refers to.
""",
        (
            CONFIG,
            Flag("connect", None, "start every server and list what it offers"),
            JSON_FLAG,
            NO_CACHE_FLAG,
            PRIVATE,
            DEBUG,
        ),
        takes=1,
    ),
    Command(
        "secret [OPTIONS] set|list|remove [NAME]",
        "keep secrets out of the configuration, in the keychain or a file",
        """
set NAME stores a value in the keychain of your system (macOS Keychain, GNOME Keyring, KWallet); where there is none, in
a file that only you can read. It prompts for the value without echoing it, or reads it from standard input in a pipe.
Refer to it as ${keyring:NAME} in a configuration. Write service/name to use an entry that another program created.

list shows the names of the entries created with set; remove NAME deletes one. Values are never shown.

Exit code: 0; 1 if the keychain cannot be used, or has no such entry to remove; 2 if the command line is wrong.
""",
        (JSON_FLAG,),
        actions=("set", "list", "remove"),
        names=("set|list|remove",),
        takes=2,
    ),
    Command(
        "sandbox [OPTIONS] try|prepare SERVER",
        "find the strictest sandbox that a server works in",
        """
try SERVER starts the server (toolbox/server) in the sandboxes contained, sealed and guard, and lists what it offers. If
it says that it was denied a file or folder, it is tried again with that granted; one with a list of hosts is also tried
with the whole network. A server that the configuration keeps in contained or sealed is given what it asks for, or
started in a weaker profile or with more of the network, only if you agree at the terminal. Shows what worked, and what
to write into the configuration for the strictest. It calls no tool: whether those work is for you to try.

prepare SERVER starts it once in its private home, with the network, so that npx, uvx and others install what they need.
After that it can start in the sandbox sealed. One with a list of hosts is then started with those alone, and what that
shows is printed.

Exit code: 0; 1 if the server starts in none of them; 2 if there is no such server.
""",
        (CONFIG, DEBUG),
        actions=("try", "prepare"),
        names=("try|prepare", "SERVER"),
        takes=2,
    ),
    Command(
        "login [OPTIONS] SERVER",
        "sign in to a remote server, in the browser",
        """
Connects to the server and, if it requires a sign-in, opens the sign-in page in your browser (the one named by BROWSER,
or else the system's). The page redirects to an address on this machine that exists only for this sign-in. Tokens are
stored in your data folder, readable only by you, and all your workbenches use and refresh them from then on.

On a machine without a browser, --no-browser prints the address: open it anywhere, and paste the address you are
redirected to at the end, even if that page cannot be shown. With --device, if the server supports it, you enter a short
code on another device instead.

Exit code: 0 once you are signed in, 1 if that failed, 2 if there is no such server.
""",
        (
            CONFIG,
            Flag("no-browser", None, "print the address instead of opening it, and read the pasted redirect"),
            Flag("device", None, "sign in with a code on another device, if the server supports it"),
            Flag("again", None, "sign in even if you are signed in already: as someone else, or with more scopes"),
            Flag("new-client", None, "register again, if the server has lost the earlier registration"),
            AS,
            DEBUG,
        ),
        names=("SERVER",),
        takes=1,
    ),
    Command(
        "logout [OPTIONS] SERVER",
        "forget a sign-in, and revoke it if possible",
        """
Deletes the tokens for a server from your data folder, and revokes them if the authorization server supports that. The
workbench may stay on the server's own list of connected apps; you can remove it there.

Exit code: 0, even if you were not signed in; 2 if there is no such server.
""",
        (CONFIG, AS, DEBUG),
        names=("SERVER",),
        takes=1,
    ),
    Command(
        "auth [OPTIONS]",
        "list your sign-ins and how long they last; sign in and out",
        """
Shows every sign-in in your data folder: the server, the account if it is known, the scopes, when the token expires, and
whether it is refreshed automatically. Servers that require a sign-in are shown too.

--encrypt encrypts all sign-ins with a key in the system's keychain, for all your workbenches; --decrypt undoes that.
"keychain": true in a configuration makes encryption mandatory.
""",
        (
            Flag("encrypt", None, "encrypt stored sign-ins with a key in the system's keychain"),
            Flag("decrypt", None, "store sign-ins unencrypted again"),
            JSON_FLAG,
        ),
        actions=("login", "logout"),
        takes=1,
    ),
    Command(
        "completion bash | zsh | fish",
        "print a script that completes command lines, for your shell",
        """
Prints a script for your shell, which then completes commands, options, toolboxes, servers, tools, prompts, resources
and the names of arguments. What servers offer is taken from the cache: nothing is started.

    bash: mcp-workbench install --completion bash > \\
          ~/.local/share/bash-completion/completions/mcp-workbench
    zsh:  mcp-workbench install --completion zsh > "${fpath[1]}/_mcp-workbench"
    fish: mcp-workbench install --completion fish > \\
          ~/.config/fish/completions/mcp-workbench.fish

The scripts run `mcp-workbench install --completion words`, which prints what fits the last word, one per line.
""",
        (Flag("line", "TEXT", "for `words`: the whole command line up to the cursor, as bash passes it"),),
        names=("SHELL",),
    ),
    Command(
        "schema",
        "print the JSON Schema of the configuration, for editors",
        """
Prints the JSON Schema of the configuration, with which an editor completes and checks what you type. Save it next to
the configuration, and name it there:

    mcp-workbench check --schema > workbench-config.schema.json
    "$schema": "./workbench-config.schema.json"
""",
        (),
        takes=0,
    ),
)
