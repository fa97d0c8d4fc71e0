"""`mcp-workbench team trust`: use a project's configuration from now on, in its current version."""

from __future__ import annotations

import os
from collections import Counter

from mcp_workbench.cli.commands.list import address
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stdout
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.catalog.hidden_text import described, hidden_in
from mcp_workbench.engine.config import trust
from mcp_workbench.engine.config.choose import CONFIG_FILE_NAME
from mcp_workbench.engine.config.load import parse, read
from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig, references_in
from mcp_workbench.engine.config.problems import ConfigProblems, quote
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.setup.clients.package_rules import remarks_about
from mcp_workbench.setup.server_preview import pairs_shown


def run(parsed: Parsed) -> int:
    if parsed.has("list"):
        return _list(parsed)
    if parsed.has("json"):
        raise UsageError("--json requires --list")
    path = parsed.positional(0) or CONFIG_FILE_NAME
    if parsed.has("remove"):
        was_trusted = trust.forget(path)
        shown = trust.real_path(path)
        remark("note", f"`{shown}` is no longer trusted" if was_trusted else f"`{shown}` was not trusted")
        return 0
    content = read(path)
    # Trust the bytes that were examined: the file may change in between.
    config = parse(content, path, os.environ)
    trust.trust(path, content)
    redactor = Redactor(config.secrets)
    screen = stdout()
    screen.line((tilde(trust.real_path(path)), "strong"), ": ", ("trusted", "good"), " as it is now; it starts")
    rows: list[list[Part]] = []
    for label, server in config.servers():
        rows.append([(label, "name"), address(server, redactor)])
        rows += [["", (text, "dim")] for text in _surroundings(server, redactor)]
    screen.table(["", ""], rows, indent=2)
    # `${cmd:…}` runs a program too, although it is a value.
    for label, programs in _programs_of(config):
        screen.line((label, "name"), f" runs {programs} for its secrets", indent=2)
    # A name or description can contain text that only a model reads.
    for where, letters in _hidden_in(config):
        remark("warning", f"hidden characters in {where}: {described(letters)}")
    return 0


def _surroundings(server: ServerConfig, redactor: Redactor) -> list[str]:
    """Return where the server runs, and what else affects it."""
    found = []
    if server.cwd is not None:
        found.append(f"in the folder {redactor.text(server.cwd)}")
    if server.env:
        found.append(f"with the variables {', '.join(pairs_shown(server.env, redactor))}")
    if server.inherit_env:
        found.append(f"and of yours {', '.join(server.inherit_env)}")
    if server.sandbox is not None:
        found.append(f"in the sandbox {server.sandbox.profile}")
    return found + [redactor.text(each) for each in remarks_about(server.command or "", server.args)]


def _programs_of(config: WorkbenchConfig) -> list[tuple[str, str]]:
    """Return the programs that run to fetch secrets when servers start."""
    found = []
    for label, server in config.servers():
        if programs := [f"`{part.written}`" for part in references_in(server) if part.kind == "cmd"]:
            found.append((label, " and ".join(dict.fromkeys(programs))))
    return found


def _hidden_in(config: WorkbenchConfig) -> list[tuple[str, Counter[str]]]:
    """Return the text in the file that agents and the system read but a person looking at it does not see."""
    texts = [
        (place, text)
        for toolbox in config.toolboxes.values()
        for place, text in (
            (f"the toolbox {quote(toolbox.name)}", toolbox.name + toolbox.description),
            *(
                (quote(f"{toolbox.name}/{server.name}"), " ".join(_texts_of(name, server)))
                for name, server in toolbox.servers.items()
            ),
        )
    ]
    return [(place, letters) for place, text in texts if (letters := hidden_in(text))]


def _texts_of(name: str, server: ServerConfig) -> list[str]:
    return [name, server.command or "", *server.args, server.cwd or "", *server.env, *server.env.values()]


def _list(parsed: Parsed) -> int:
    if parsed.has("remove") or parsed.positional(0):
        raise UsageError("--list can be combined with --json only")
    screen = stdout()
    records = trust.records()
    if parsed.has("json"):
        screen.json(
            [{"path": record.path, "sha256": record.sha256, "inForce": not _why_not(record)} for record in records]
        )
        return 0
    for record in records:
        reason = _why_not(record)
        screen.line((tilde(record.path), "strong"), ": ", (reason, "warn") if reason else ("trusted", "good"))
    if not records:
        remark("note", "no file is trusted")
    return 0


def _why_not(record: trust.TrustRecord) -> str | None:
    """Return why the file would not be used now, or None."""
    try:
        judged = trust.verdict(record.path, read(record.path))
    except ConfigProblems as error:
        return error.problems[0].found
    return None if judged is trust.TrustVerdict.TRUSTED else judged.value
