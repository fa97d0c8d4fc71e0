"""`mcp-workbench init --update`: take over what is new or changed in the clients since, and drop what is gone.

Owns the comparison and the choice. The configuration is edited in place: what was not chosen keeps its bytes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.cli.consent import ask
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stderr, stdout
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_files import FoundFile
from mcp_workbench.setup.clients.dialects import is_own, translated
from mcp_workbench.setup.clients.identity import Served, is_served
from mcp_workbench.setup.clients.toolbox_proposals import ImportedServer, proposed
from mcp_workbench.setup.import_record import (
    NESTED,
    ImportRecord,
    known_as,
    members_of,
    read_record,
    started,
    write_record,
)
from mcp_workbench.setup.install_plan import had_by
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
        if known is not None and known.mark == record.mark(started(server.entry)):
            # There already, or seen before and left out.
            continue
        # Of a server that was another when it was taken over, what we keep in its stead may be another, too.
        is_certain = known is not None
        if is_served(server.name, server.entry, served.values(), shutil.which, is_certain=is_certain):
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
    parsed: Parsed, target: str, files: list[FoundFile], servers: list[ImportedServer], twins: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Show what differs and take over what is chosen. Returns the servers that are new or changed in the file; None if
    nothing was written."""
    file = own_configuration(target, makes=False, warn=partial(remark, "warning"))
    readable, ours = _looked_at(files)
    record, served = read_record(target), had_by(target)
    # From clients that start the workbench, `install --replace` may have removed servers.
    complete = readable - ours
    _name(servers, record, served, complete)
    found = differences(servers, record, served, complete)
    if parsed.has("json"):
        stdout().json([{"what": each.kind, "server": each.name, "from": each.sources} for each in found])
    elif found:
        _show(found)
    if parsed.has("dry-run"):
        return None
    chosen = _chosen(found, parsed) if found else []
    if chosen:
        with SecretStore(os.path.dirname(target), note=partial(remark, "note")) as store:
            content = _applied(file, chosen, record, store)
            file.check(content)
            store.write()
            file.write(content)
        if store.kept:
            remark(
                "note", f"keys are kept in {store.whereabouts()}, and the file refers to them: {', '.join(store.kept)}"
            )
    # Also what was left out: next time, only what has changed since is shown.
    write_record(target, servers, readable, twins, {each.name for each in found} - {each.name for each in chosen})
    if not found:
        remark("note", "nothing is new, changed or gone in your clients")
    if not chosen:
        return None
    remark("note", f"written: {target} ({', '.join(f'{each.kind}: {each.name}' for each in chosen)})")
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


def _applied(file: OwnConfiguration, chosen: list[ImportDifference], record: ImportRecord, store: SecretStore) -> bytes:
    for each in chosen:
        if each.entry is None:
            content = file.without_server(each.toolbox, each.name)
        elif each.kind == "new":
            entry = store.taken_from(each.name, each.entry)
            content = file.with_server(*_place(file, each.name, entry), each.name, entry)
        else:
            ours = file.toolboxes[each.toolbox][each.name]
            entry = _with_changes(each, ours, record, store)
            content = file.with_server(each.toolbox, "", each.name, entry)
        file = _after(file, content)
    return file.before or b""


def _with_changes(
    each: ImportDifference, ours: dict[str, Any], record: ImportRecord, store: SecretStore
) -> dict[str, Any]:
    """Return our entry with what its clients say otherwise now than when it was taken over. The rest stays as the user
    has it, such as filters, a sandbox, and references that they have written instead of a key."""
    assert each.entry is not None
    now, before = members_of(each.entry), record.servers[each.name].members
    # What the user wrote instead, such as a narrower filter. Of what is started, keys are references in our file.
    kept = {
        name
        for name, value in members_of(ours).items()
        if not _is_started(name) and before.get(name) != record.mark(value)
    }
    # Records of earlier versions do not tell what there was: then that which is started.
    gone = [name for name in before or (name for name in members_of(ours) if _is_started(name)) if name not in now]
    gone = [name for name in gone if name not in kept]
    changed: dict[str, Any] = {}
    for name, value in now.items():
        if name not in kept and before.get(name) != record.mark(value):
            _set(changed, name, value)
    found = {key: dict(value) if key in NESTED and isinstance(value, dict) else value for key, value in ours.items()}
    for name in gone:
        kind, _, key = name.partition("/")
        if not key:
            found.pop(kind, None)
        elif isinstance(found.get(kind), dict):
            found[kind].pop(key, None)
    for key, value in store.taken_from(each.name, changed).items():
        old = found.get(key)
        if key in NESTED and isinstance(old, dict):
            value = old | value
        elif key == "envFile" and key not in changed and old is not None:
            # With the keys that have changed; the later file counts.
            value = [*([old] if isinstance(old, str) else old), value]
        found[key] = value
    return {key: value for key, value in found.items() if key not in NESTED or value}


def _is_started(name: str) -> bool:
    return name.partition("/")[0] in ("command", "args", "cwd", "url", "type", *NESTED)


def _set(entry: dict[str, Any], name: str, value: object) -> None:
    kind, _, key = name.partition("/")
    if key:
        entry.setdefault(kind, {})[key] = value
    else:
        entry[kind] = value


def _name(
    servers: list[ImportedServer], record: ImportRecord, served: dict[str, Served], complete: Collection[str]
) -> None:
    """Give each server the name that it has in the configuration, or would have: two of one name would conflict."""
    # Names of servers that would have been read if their clients still had them: another client's takes their place.
    free = {name for name, seen in record.servers.items() if set(seen.sources) <= set(complete)}
    ours = {each.name.casefold() for each in served.values()}
    taken = {each.name.casefold() for each in servers}
    for server in servers:
        own = f"{server.name}-{server.sources[0]}"
        if (known := known_as(record, server)) is not None:
            server.name = known
        elif server.name not in free and server.name.casefold() in ours:
            if is_served(server.name, server.entry, served.values(), shutil.which):
                continue
            number, name = 1, own
            while name.casefold() in ours | taken:
                number += 1
                name = f"{own}-{number}"
            server.name = name
            taken.add(name.casefold())


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
