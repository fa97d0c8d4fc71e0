"""docs/start/clients.md, made from the table: what people read of a client is what `install` and `init` go by. Pure."""

from __future__ import annotations

from typing import Final

from mcp_workbench.setup.clients.dialects import own_entry
from mcp_workbench.setup.clients.documents import with_server
from mcp_workbench.setup.clients.table import Client, ClientFile, clients

START: Final = "<!-- made from src/mcp_workbench/setup/clients/clients.toml by scripts/write_client_docs.py -->\n"
_COMMAND: Final = ["/home/me/.local/bin/mcp-workbench", "serve", "--config", "/home/me/workbench-config.json"]
_CHECKED: Final = {
    "measured": "the client itself was run, on Linux",
    "code": "read in code; the client itself was not run",
    "documentation": "from its documentation; the client itself was not run",
    "guess": "a guess",
}
_UNTESTED: Final = (
    "No client was run on macOS or Windows. Paths there come from the same sources as the rest, and those of Windows\n"
    "are untested: neither the clients nor `install` have used them ([platforms](../reference/platforms.md))."
)
_SYSTEMS: Final = (("linux", "Linux"), ("macos", "macOS"), ("windows", "Windows"))


def sections() -> str:
    """What is known of them, and one section for each client, in the order of the table."""
    rows = ["| client | name | as of | how it is known |", "|---|---|---|---|"]
    rows += [
        f"| [{client.title}](#{_anchor(client.title)}) | `{client.name}` | {client.date} | {_CHECKED[client.checked]} |"
        for client in clients().values()
    ]
    table = "\n".join(["## What was verified", "", _UNTESTED, "", *rows, "", ""])
    return START + "\n" + table + "\n".join(_section(client) for client in clients().values())


def _anchor(title: str) -> str:
    """As GitHub makes them of headings."""
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def _section(client: Client) -> str:
    lines = [f"## {client.title}", ""]
    if client.import_only:
        lines += [f"Only read, by `mcp-workbench init --from {client.name}`: it was {client.import_only}.", ""]
    else:
        lines += ["```sh", f"mcp-workbench install {client.name}", "```", ""]
        if client.own is not None and client.command_only:
            lines += [f"Uses `{client.own.program}`, which has to be on your `PATH`.", ""]
    lines += ["| file | where | servers under |", "|---|---|---|"]
    for file in client.file:
        lines.append(f"| {_kind(file)} | {_where(file)} | {_key(file)} |")
    lines += [""] + [f"- {note}" for note in client.notes] + ([""] if client.notes else [])
    if not client.import_only:
        entry = own_entry(client.file[0].dialect, "workbench", _COMMAND, {})
        file = client.file[0]
        language = "jsonc" if file.format == "jsonc" else file.format
        lines += ["By hand:", "", f"```{language}"]
        lines += [with_server(file.when_new.encode(), file, "workbench", entry, "").decode().rstrip(), "```", ""]
    lines += [f"As of {client.date}, {_CHECKED[client.checked]}. Source: {client.source}", ""]
    return "\n".join(lines)


def _kind(file: ClientFile) -> str:
    kind = "yours" if file.scope == "user" else "of a project"
    detail = file.generation + (", only read" if file.read_only and file.generation else "")
    return f"{kind} ({detail})" if detail else kind


def _where(file: ClientFile) -> str:
    if file.all:
        return ", ".join(f"`{path}`" for path in file.all)
    places = [(title, getattr(file, name)) for name, title in _SYSTEMS]
    return "; ".join(f"{title}: " + ", ".join(f"`{path}`" for path in paths) for title, paths in places if paths)


def _key(file: ClientFile) -> str:
    newer = f", or `{'.'.join(file.newer_key)}`" if file.newer_key else ""
    return f"`{'.'.join(file.key)}`{newer}, {file.format.upper()}"
