"""`mcp-workbench init --update`: take over what is new or changed in the clients since, and drop what is gone.

Owns the comparison and the choice. The configuration is edited in place: what was not chosen keeps its bytes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.cli.consent import ask
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stderr, stdout, tilde
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_files import FoundFile
from mcp_workbench.setup.clients.dialects import is_own, translated
from mcp_workbench.setup.clients.identity import Served, is_served
from mcp_workbench.setup.clients.toolbox_proposals import ImportedServer, proposed
from mcp_workbench.setup.import_record import ImportRecord, read_record, write_record
from mcp_workbench.setup.install_plan import served_by
from mcp_workbench.setup.own_configuration import OwnConfiguration, own_configuration
from mcp_workbench.setup.secret_store import SecretStore
from mcp_workbench.setup.server_preview import preview


class ImportDifference(Struct, frozen=True):
    """One server that clients have otherwise than the configuration. `toolbox` is empty for a new one."""

    kind: Literal["new", "changed", "gone"]
    name: str
    sources: tuple[str, ...]
    toolbox: str = ""
    # None if no client has it any more.
    entry: dict[str, Any] | None = None


def differences(
    servers: Iterable[ImportedServer],
    record: ImportRecord,
    served: dict[str, Served],
    complete: Collection[str],
) -> list[ImportDifference]:
    """Return what differs between the clients and the configuration. `complete` names the clients that would have a
    server if it was not gone: they were read, and we did not replace their servers. Pure."""
    found = []
    places = {each.name: path.rpartition("/")[0] for path, each in served.items()}
    now = {}
    for server in servers:
        now[server.name] = server
        known = record.servers.get(server.name)
        is_ours = is_served(server.name, server.entry, served.values(), shutil.which)
        if is_ours or (known is not None and known.mark == record.mark(server.entry)):
            # There already, or seen before and left out.
            continue
        is_changed = known is not None and server.name in places
        place = places[server.name] if is_changed else ""
        kind: Literal["new", "changed"] = "changed" if is_changed else "new"
        found.append(ImportDifference(kind, server.name, tuple(server.sources), place, server.entry))
    for name, seen in record.servers.items():
        if name not in now and name in places and set(seen.sources) <= set(complete):
            found.append(ImportDifference("gone", name, seen.sources, places[name]))
    return found


def update(
    parsed: Parsed, target: str, files: list[FoundFile], servers: list[ImportedServer]
) -> tuple[str, ...] | None:
    """Show what differs and take over what is chosen. Returns the servers that are new or changed in the file; None if
    nothing was written."""
    file = own_configuration(target, makes=False, warn=partial(remark, "warning"))
    readable, ours = _looked_at(files)
    # From clients that start the workbench, `install --replace` may have removed servers.
    found = differences(servers, read_record(target), served_by(target), readable - ours)
    if parsed.has("json"):
        stdout().json([{"what": each.kind, "server": each.name, "from": each.sources} for each in found])
    elif found:
        _show(found)
    if parsed.has("dry-run"):
        return None
    chosen = _chosen(found, parsed) if found else []
    if chosen:
        with SecretStore(os.path.dirname(target), note=partial(remark, "note")) as store:
            content = _applied(file, chosen, store)
            file.check(content)
            store.write()
            file.write(content)
        if store.kept:
            remark(
                "note", f"keys are kept in {store.whereabouts()}, and the file refers to them: {', '.join(store.kept)}"
            )
    # Also what was left out: next time, only what has changed since is shown.
    write_record(target, servers, readable)
    if not found:
        remark("note", "nothing is new, changed or gone in your clients")
    if not chosen:
        return None
    remark("note", f"written: {tilde(target)} ({', '.join(f'{each.kind}: {each.name}' for each in chosen)})")
    return tuple(each.name for each in chosen if each.kind != "gone")


def _looked_at(files: Iterable[FoundFile]) -> tuple[set[str], set[str]]:
    """Return the clients whose files can be read, and those of them that start the workbench."""
    readable: dict[str, bool] = {}
    ours = set()
    for file in files:
        name = file.client.name
        try:
            entries = [translated(one, file.file.dialect).entry for one in file.servers().values()]
        except ConfigError:
            readable[name] = False
            continue
        readable.setdefault(name, True)
        if any(is_own(entry) for entry in entries if entry is not None):
            ours.add(name)
    return {name for name, can_be in readable.items() if can_be}, ours


def _show(found: list[ImportDifference]) -> None:
    screen = stderr()
    rows: list[list[Part]] = []
    for number, each in enumerate(found, 1):
        style: Any = {"new": "good", "changed": "warn", "gone": "bad"}[each.kind]
        first, *more = ["no client has it any more"] if each.entry is None else preview(each.entry)
        rows.append([str(number), (each.kind, style), (each.name, "name"), ", ".join(each.sources), first])
        rows += [["", "", "", "", (line, "dim")] for line in more]
    screen.section("Changed in your clients")
    screen.table(["", "", "server", "from", "what it is"], rows, indent=2)
    screen.blank()
    screen.flush()


def _chosen(found: list[ImportDifference], parsed: Parsed) -> list[ImportDifference]:
    present = [each for each in found if each.kind != "gone"]
    if parsed.has("yes"):
        # Removing needs somebody who looks.
        return present
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask what to take over",
            hint="--yes takes over what is new or changed, removes nothing",
        )
    answer = ask("Take over which? [Enter: new and changed; numbers such as 1 3; all; none]")
    if answer is None:
        raise ConfigError("nothing was written: the input ended", hint="run the command again, or use --yes")
    if answer.lower() in ("", "y", "yes"):
        return present
    if answer.lower() == "all":
        return found
    numbers = {int(word) for word in answer.replace(",", " ").split() if word.isdigit()}
    return [each for number, each in enumerate(found, 1) if number in numbers]


def _applied(file: OwnConfiguration, chosen: list[ImportDifference], store: SecretStore) -> bytes:
    for each in chosen:
        if each.entry is None:
            content = file.without_server(each.toolbox, each.name)
        else:
            name = _free_name(file, each) if each.kind == "new" else each.name
            entry = store.taken_from(name, each.entry)
            toolbox, description = _place(file, name, entry) if each.kind == "new" else (each.toolbox, "")
            content = file.with_server(toolbox, description, name, entry)
        file = _after(file, content)
    return file.before or b""


def _free_name(file: OwnConfiguration, new: ImportDifference) -> str:
    """Its name, or with its client's name if another server has it: two of one name would conflict."""
    taken = {name.casefold() for servers in file.toolboxes.values() for name in servers}
    number, name = 1, new.name
    while name.casefold() in taken:
        name = f"{new.name}-{new.sources[0]}" + (f"-{number}" if number > 1 else "")
        number += 1
    return name


def _place(file: OwnConfiguration, name: str, entry: dict[str, Any]) -> tuple[str, str]:
    """Return the toolbox for a new server, and its description if that is new: the one that `init` would propose."""
    if file.is_plain:
        return next(iter(file.toolboxes)), ""
    ((toolbox, box),) = proposed([ImportedServer(name, entry, [])]).items()
    return toolbox, box["description"]


def _after(file: OwnConfiguration, content: bytes) -> OwnConfiguration:
    from mcp_workbench.setup.own_configuration import servers_written

    # What is on the disk stays what is compared when the file is written.
    return replace(file, before=content, toolboxes=servers_written(content, file.path))
