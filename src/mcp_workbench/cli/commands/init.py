"""`mcp-workbench init`: create a configuration from the servers of the clients on this machine.

Owns the sequence: find the files, ask, read them, propose toolboxes, store secrets, write, check. Never overwrites a
file. Translating, merging and grouping are in `clients`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Set
from functools import partial
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.cli.consent import agrees, ask
from mcp_workbench.cli.error_output import FAILED_STATUS, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stderr, stdout
from mcp_workbench.cli.serve import face_named
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.config import trust
from mcp_workbench.engine.config.choose import CONFIG_FILE_NAME, user_folder
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.problems import ConfigProblems, in_one_line
from mcp_workbench.engine.face.client_behaviour import UNKNOWN_CLIENT, behaviours
from mcp_workbench.engine.faces import DEFAULT_FACE, FACES
from mcp_workbench.engine.printable import plural
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_files import FoundFile, existing, present
from mcp_workbench.setup.clients.client_paths import patterns, this_system
from mcp_workbench.setup.clients.dialects import is_own, translated
from mcp_workbench.setup.clients.documents import Servers, servers_of_folders
from mcp_workbench.setup.clients.package_rules import sandbox_proposal
from mcp_workbench.setup.clients.remote_wrappers import unwrapped
from mcp_workbench.setup.clients.table import ClientFile, clients, find
from mcp_workbench.setup.clients.toolbox_proposals import (
    ImportedServer,
    disabled_twins,
    is_same,
    merged,
    proposed,
    twins,
)
from mcp_workbench.setup.file_replacement import create_file
from mcp_workbench.setup.import_record import (
    BOTH,
    ImportRecord,
    kept_before,
    kept_elsewhere,
    kept_of,
    pair_of,
    place_of,
    read_record,
    write_record,
)
from mcp_workbench.setup.secret_store import SecretStore
from mcp_workbench.setup.server_preview import preview

# Folders named in one remark.
_MAX_NAMED_FOLDERS: Final = 10
_TWIN: Final = "left out, because it is disabled there and another of this name or program is not"


class Imported(Struct):
    """Everything that was read."""

    servers: list[ImportedServer]
    # For servers that cannot be imported and files that cannot be read: where, and why.
    left_out: list[tuple[str, str]]
    # Which twins are kept, as in the record, and the clients of the others.
    twins: dict[str, str] = {}
    also_in: list[str] = []
    # Clients with a file that cannot be read, and those that start the workbench already.
    unreadable: list[str] = []
    having: list[str] = []


def run(parsed: Parsed) -> int:
    face = face_named(parsed.value("face"))
    target = _target(parsed)
    # `lexists`, because a dangling link is a user's file too.
    if parsed.has("update"):
        if not os.path.lexists(target):
            raise ConfigError(f"`{target}` does not exist yet", hint="mcp-workbench init creates it")
    elif os.path.lexists(target) and not parsed.has("dry-run"):
        raise ConfigError(
            f"`{target}` already exists; it was left unchanged",
            hint="mcp-workbench init --update takes over what has changed in your clients since",
        )
    files = _files(parsed)
    if not files:
        raise ConfigError(
            "no client on this machine has a file with MCP servers",
            hint="mcp-workbench add NAME -- COMMAND adds a server, and creates the configuration",
        )
    files = _agreed(files, parsed)
    imported = read_all(files, is_of_project=parsed.has("project"))
    has_more = not parsed.has("project") and _mention_folder_servers(files)
    disabled = disabled_twins(imported.servers, shutil.which)
    imported.left_out += [(f"{twin.name} ({find(twin.sources[0]).title})", _TWIN) for twin in disabled]
    record = read_record(target) if parsed.has("update") else ImportRecord()
    enabled = [each for each in imported.servers if not any(each is twin for twin in disabled)]
    read = {each.client.name for each in files} - {*imported.unreadable}
    servers = merged(_one_of_twins(enabled, imported, parsed, record, read), shutil.which)
    if parsed.has("update"):
        _report_left_out(imported, servers)
        return _updated(parsed, target, files, servers, imported)
    if not servers:
        _report_left_out(imported, [])
        hint = "mcp-workbench init --project, run in one of these folders" if has_more else "--from names a client"
        raise ConfigError("none of the files has an MCP server that can be used here", hint=hint)
    _list_found(servers, of_stranger=any(map(_is_from_project, files)))
    _report_left_out(imported, servers)
    if all(server.entry.get("disabled") for server in servers):
        raise ConfigError(
            f"every server that was found is disabled in its client: {', '.join(each.name for each in servers)}",
            hint="enable one in its client and run this again, or add one: mcp-workbench add NAME -- COMMAND",
        )
    boxes = _edited(proposed(servers), parsed)
    face = face or _chosen_face(servers, parsed)
    # A repository can bring a `.mcp.json`, and starting the servers in it would run a stranger's programs.
    is_confirmed = not any(map(_is_from_project, files)) or _confirmed(parsed)
    config = {"face": face, "toolboxes": boxes}
    # Validate what was typed before storing any secret.
    parse(_written(config), target, os.environ)
    content = _store_and_write(target, config, parsed)
    if parsed.has("json"):
        stdout().json(_as_json(target, servers, imported, config))
    elif parsed.has("dry-run"):
        stdout().text(content.decode())
    if parsed.has("dry-run"):
        return 0
    stderr().section("Written", tilde(target))
    write_record(target, servers, read, imported.twins)
    entries = {f"{box}/{name}": entry for box in boxes for name, entry in boxes[box]["mcpServers"].items()}
    if (proposal := sandbox_proposal(entries)) is not None:
        remark("hint", proposal)
    if not is_confirmed:
        remark(
            "hint",
            "nothing was started or trusted, as the servers came with the project: look at what they start, "
            "run mcp-workbench team trust, then mcp-workbench check --connect",
        )
        return 0
    if parsed.has("project"):
        # The user has just agreed to every server in it.
        trust.trust(target, content)
    return _checked(parsed, target, servers, imported)


def _one_of_twins(
    servers: list[ImportedServer], imported: Imported, parsed: Parsed, record: ImportRecord, read: Set[str]
) -> list[ImportedServer]:
    """Ask which of two servers to keep that differ in a key alone, unless `record` has the answer: both would offer the
    same tools. Without a terminal, the one that was kept before, or both if their names differ. `read` names the
    clients that were read."""
    imported.twins = dict(record.twins)
    dropped = [each for each in servers if kept_elsewhere(record, each, read - {*imported.having})]
    for one, other, keys in twins(servers, shutil.which):
        if any(each is one or each is other for each in dropped):
            continue
        kept = kept_of(record, one, other)
        was_asked = bool(kept)
        if not kept and not _can_ask(parsed):
            kept = kept_before(record, one, other) if one.name.casefold() == other.name.casefold() else [one, other]
        elif not kept:
            kept = _asked(one, other, keys)
            if len(kept) == 2 and place_of(one) != place_of(other):
                imported.twins[pair_of(one, other)] = BOTH
        if len(kept) == 2:
            if not parsed.has("update") and not _can_ask(parsed):
                remark("note", f"{_pair(one, other, keys)}; both are taken over")
            continue
        left = one if kept[0] is other else other
        other_title = find(kept[0].sources[0]).title
        why = f"left out: that of {other_title} is taken over, and they differ only in {_listed(keys)}"
        for each in servers:
            # Other clients may have the same.
            if each is left or (each.name == left.name and is_same(each.entry, left.entry, shutil.which)):
                title = find(each.sources[0]).title
                if not was_asked:
                    imported.left_out.append((f"{each.name} ({title})", f"{why}; {title} still starts its own"))
                # So that it does not stand for the kept one once `install --replace` has taken that out of its client.
                if place_of(each) != place_of(kept[0]):
                    imported.twins[pair_of(kept[0], each)] = place_of(kept[0])
                imported.also_in += each.sources
                dropped.append(each)
    return [each for each in servers if not any(each is one for one in dropped)]


def _asked(one: ImportedServer, other: ImportedServer, keys: list[str]) -> list[ImportedServer]:
    """Ask which of two twins to keep, and return them."""
    titles = [find(each.sources[0]).title for each in (one, other)]
    is_one_name = one.name.casefold() == other.name.casefold()
    stderr().blank()
    stderr().flush()
    question = f"{_pair(one, other, keys)}. Keep which?"
    choices = f"[1: {titles[0]}, 2: {titles[1]}, b: both; Enter: {'1' if is_one_name else 'both'}]"
    answer = _needed(f"{question} {choices}").lower()
    if answer in ("b", "both") or (not answer and not is_one_name):
        return [one, other]
    return [other if answer == "2" else one]


def _pair(one: ImportedServer, other: ImportedServer, keys: list[str]) -> str:
    first, second = (find(each.sources[0]).title for each in (one, other))
    other_name = "the one" if one.name.casefold() == other.name.casefold() else f"`{other.name}`"
    return f"`{one.name}` in {first} and {other_name} in {second} are the same server with a different {_listed(keys)}"


def _listed(keys: list[str]) -> str:
    return ", ".join(keys) or "settings"


def _updated(
    parsed: Parsed, target: str, files: list[FoundFile], servers: list[ImportedServer], imported: Imported
) -> int:
    if any(map(_is_from_project, files)):
        raise UsageError(
            "--update is for your own configuration", hint="edit the project's file, or run mcp-workbench add"
        )
    from mcp_workbench.cli.init_update import update

    written = update(parsed, target, files, servers, imported.twins)
    if not written or parsed.has("no-check") or parsed.has("json"):
        return 0
    return _checked(parsed, target, [each for each in servers if each.name in written], imported)


def _store_and_write(target: str, config: dict[str, Any], parsed: Parsed) -> bytes:
    """Store the secrets and write the file with references to them, unless it is a dry run. Returns the content."""
    # Without the file nothing would refer to the secrets, so they are deleted again if it cannot be written.
    with SecretStore(os.path.dirname(target), dry=parsed.has("dry-run"), note=partial(remark, "note")) as store:
        for box in config["toolboxes"].values():
            box["mcpServers"] = {name: store.taken_from(name, entry) for name, entry in box["mcpServers"].items()}
        content = _written(config)
        if not parsed.has("dry-run"):
            store.write()
            # Last, and never over an existing file: of two concurrent runs, only one creates a configuration.
            create_file(target, content)
    if store.kept:
        moved = "would be moved" if parsed.has("dry-run") else f"were moved to {store.whereabouts()}"
        remark("note", f"keys {moved}, and the configuration refers to them: {', '.join(store.kept)}")
    return content


def _written(config: dict[str, Any]) -> bytes:
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()


def _mention_folder_servers(files: list[FoundFile]) -> bool:
    """Mention servers that apply to single folders but are in a file of the user that was just read, as Claude Code's
    are. Returns whether there are any."""
    named: dict[str, dict[str, None]] = {}
    for found in files:
        for file in found.client.file:
            if found.path in patterns(file, this_system()):
                for folder, servers in _servers_of_folders(found, file).items():
                    ours = [name for name, one in servers.items() if is_own(translated(one, file.dialect).entry or {})]
                    # Clients keep what they know of folders that are long gone.
                    if len(servers) > len(ours) and os.path.isdir(folder):
                        listed = ", ".join(name for name in servers if name not in ours)
                        named.setdefault(found.client.title, {})[f"`{folder}` ({listed})"] = None
    for title, folders in named.items():
        shown = ", ".join([*folders][:_MAX_NAMED_FOLDERS])
        more = f" and {len(folders) - _MAX_NAMED_FOLDERS} more" if len(folders) > _MAX_NAMED_FOLDERS else ""
        remark("note", f"{title} has servers for these folders: {shown}{more}; run mcp-workbench init --project there")
    return bool(named)


def _servers_of_folders(found: FoundFile, file: ClientFile) -> dict[str, Servers]:
    try:
        return servers_of_folders(found.content() or b"", file, found.path)
    except ConfigError:
        # Its errors were reported when it was read for its other servers.
        return {}


def _is_from_project(found: FoundFile) -> bool:
    """Whether others may have written it: with `--project`, anything in the project's folder. Claude Code keeps servers
    of a project in a file of the user."""
    return found.file.scope == "project" and os.path.abspath(found.path).startswith(os.path.join(os.getcwd(), ""))


def _confirmed(parsed: Parsed) -> bool:
    """Whether the user has seen the servers and wants them started. `--yes` is given before anything is seen."""
    return _can_ask(parsed) and agrees("These servers came with the project. Trust them, and start each once?")


def read_all(files: list[FoundFile], *, is_of_project: bool = False) -> Imported:
    """Read the servers of these files, translated to our format. A file that cannot be read is reported and left
    out."""
    found = Imported([], [])
    for file in files:
        try:
            servers = file.servers()
        except ConfigError as error:
            found.left_out.append((file.client.title, error.message))
            found.unreadable.append(file.client.name)
            continue
        for name, written in servers.items():
            one = translated(written, file.file.dialect, is_of_project=is_of_project)
            if one.entry is None:
                found.left_out.append((f"{name} ({file.client.title})", "; ".join(one.remarks)))
            elif is_own(one.entry):
                # Importing the workbench itself would create a loop.
                found.having.append(file.client.name)
            else:
                entry, remarks = unwrapped(one.entry)
                if (fault := _fault(entry)) is not None:
                    found.left_out.append((f"{name} ({file.client.title})", "; ".join([fault, *one.remarks])))
                    continue
                found.servers.append(ImportedServer(name, entry, [file.client.name], one.remarks + remarks))
    return found


def _fault(entry: dict[str, Any]) -> str | None:
    """Return why an entry cannot be imported, or None. One bad entry must not block the others."""
    if entry.get("disabled"):
        # A disabled entry is validated only when it is enabled.
        return None
    # With the configuration reader itself, so that everything imported can be loaded.
    box = {"description": "x", "mcpServers": {"x": entry}}
    try:
        parse(_written({"toolboxes": {"x": box}}), CONFIG_FILE_NAME, os.environ)
    except ConfigProblems as error:
        return in_one_line(error.problems).replace("$.toolboxes.x.mcpServers.x.", "")
    return None


def _target(parsed: Parsed) -> str:
    if parsed.has("project"):
        return os.path.abspath(CONFIG_FILE_NAME)
    folder = user_folder()
    if folder is None:
        raise ConfigError("there is no folder for your settings", hint="set `HOME`, or use --project")
    return os.path.join(folder, CONFIG_FILE_NAME)


def _files(parsed: Parsed) -> list[FoundFile]:
    """Return the existing files: those of the project if requested, else the user's. Nothing is read yet."""
    named = parsed.values("from")
    chosen = [find(name) for name in named] if named else list(clients().values())
    scope: Any = "project" if parsed.has("project") and not named else None if parsed.has("project") else "user"
    return [found for client in chosen for found in existing(client, scope)]


def _agreed(files: list[FoundFile], parsed: Parsed) -> list[FoundFile]:
    if parsed.has("yes") or parsed.has("from"):
        return files
    rows: list[list[Any]] = [[str(number), each.client.title, tilde(each.path)] for number, each in enumerate(files, 1)]
    screen = stderr()
    screen.line("These files of MCP clients are here:")
    screen.table(["", "", ""], rows, indent=2)
    screen.blank()
    screen.flush()
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask for permission to read them",
            hint="--yes reads all, --from CLIENT those of one",
        )
    answer = ask("Read them? [Y/n, or numbers such as 1 3]")
    if answer is not None and answer.lower() in ("", "y", "yes"):
        return files
    numbers = [int(word) for word in (answer or "").replace(",", " ").split() if word.isdigit()]
    chosen = [files[number - 1] for number in numbers if 0 < number <= len(files)]
    if not chosen:
        raise ConfigError("nothing was read, and nothing was written", hint="mcp-workbench init --from CLIENT")
    return chosen


def _edited(boxes: dict[str, Any], parsed: Parsed) -> dict[str, Any]:
    """Let the user at the terminal edit the names and descriptions of the toolboxes."""
    if not _can_ask(parsed):
        return boxes
    screen = stderr()
    screen.section("Toolboxes", "an agent chooses by their descriptions")
    screen.table(["", ""], [[(name, "name"), box["description"]] for name, box in boxes.items()], indent=2)
    screen.blank()
    screen.flush()
    answer = _needed("Keep them as they are? [Y/n]")
    if answer.lower() in ("", "y", "yes"):
        return boxes
    edited: dict[str, Any] = {}
    for name, box in boxes.items():
        own = _needed(f"Name of {name} [{name}]:") or name
        about = _needed(f"Description of {own} [{box['description']}]:") or box["description"]
        # Two toolboxes with the same name are merged.
        merged_into = edited.setdefault(own, {"description": about, "mcpServers": {}})
        merged_into["mcpServers"] |= box["mcpServers"]
    return edited


def _chosen_face(servers: list[ImportedServer], parsed: Parsed) -> str:
    """Ask the user at the terminal what clients are to see; else the two tools."""
    if not _can_ask(parsed):
        return DEFAULT_FACE
    screen = stderr()
    screen.section("Face", "what your clients see of these servers")
    rows: list[list[Part]] = []
    for face in FACES.values():
        rows.append([(face.name, "name"), face.choice])
        if face.by_client:
            rows.append(["", (f"Here: {_seen_by_clients(servers)}.", "dim")])
    screen.table(["", ""], rows, indent=2)
    screen.blank()
    screen.flush()
    while True:
        answer = _needed(f"Which one? [{DEFAULT_FACE}]").lower() or DEFAULT_FACE
        if answer in FACES:
            return answer


def _seen_by_clients(servers: list[ImportedServer]) -> str:
    """Return what each client of these servers is shown, where that depends on the client."""
    seen: dict[str, list[str]] = {}
    for name in _clients_of(servers):
        # Both kinds of VS Code say the same of themselves.
        known = behaviours().get(name.removesuffix("-insiders"), UNKNOWN_CLIENT)
        limit = f", up to {known.flat_up_to}," if known.flat_up_to else ""
        seen.setdefault(FACES[known.face].shows + limit, []).append(find(name).title)
    return "; ".join(f"{what} for {', '.join(titles)}" for what, titles in seen.items())


def _can_ask(parsed: Parsed) -> bool:
    return not any(map(parsed.has, ("yes", "dry-run", "json"))) and sys.stdin.isatty()


def _needed(question: str) -> str:
    answer = ask(question)
    if answer is None:
        raise ConfigError("nothing was written: the input ended", hint="run the command again, or use --yes")
    return answer


def _list_found(servers: list[ImportedServer], *, of_stranger: bool) -> None:
    """List each server with what it starts or connects to, before any of them is started."""
    rows: list[list[Part]] = []
    for server in servers:
        first, *more = preview(server.entry, of_stranger=of_stranger)
        rows.append([(server.name, "name"), ", ".join(server.sources), first])
        rows += [["", "", (line, "dim")] for line in more]
    screen = stderr()
    screen.section("Found", f"{plural(len(servers), 'server')} in {plural(len(_clients_of(servers)), 'client')}")
    screen.table(["server", "from", "what it is"], rows, indent=2)
    screen.flush()


def _clients_of(servers: list[ImportedServer]) -> list[str]:
    return list(dict.fromkeys(source for server in servers for source in server.sources))


def _report_left_out(imported: Imported, servers: list[ImportedServer]) -> None:
    for where, why in imported.left_out:
        remark("warning", f"{where}: {why}")
    for server in servers:
        for text in server.remarks:
            remark("warning", f"{server.name}: {text}")


def _as_json(target: str, servers: list[ImportedServer], imported: Imported, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": target,
        "servers": [{"name": one.name, "from": one.sources, "remarks": one.remarks} for one in servers],
        "leftOut": [{"what": what, "why": why} for what, why in imported.left_out],
        "config": config,
    }


def _checked(parsed: Parsed, target: str, servers: list[ImportedServer], imported: Imported) -> int:
    names = dict.fromkeys([*_clients_of(servers), *imported.also_in])
    here = [name for name in names if not find(name).import_only] or [client.name for client in present()][:1]
    project = " --project" if parsed.has("project") else ""
    lacking = [name for name in here if name not in imported.having]
    named = f"mcp-workbench install {' '.join(lacking or here) or 'CLIENT'}{project}"
    hint = f"{named} adds the workbench; with --replace, in place of the servers there"
    if here and not lacking:
        hint = f"{named} --replace removes what the workbench serves from there"
    if parsed.has("no-check") or parsed.has("json"):
        _say_next(hint)
        return 0
    from mcp_workbench.cli.dispatch import carry_out
    from mcp_workbench.cli.usage import COMMANDS

    check = COMMANDS["check"]
    stderr().section("Check", "every server is started once")
    try:
        status = carry_out(check, check.parse(["--connect", "--config", target]))
    except KeyboardInterrupt:
        remark("note", f"interrupted; `{target}` is written, and mcp-workbench check --connect starts the servers")
        _say_next(hint)
        raise
    if status:
        adds = f"{named} adds the workbench; " if lacking else ""
        hint = f"{adds}fix the servers that failed before you use --replace"
    _say_next(hint)
    # A missing variable is not wrong usage of this command.
    return FAILED_STATUS if status else 0


def _say_next(hint: str) -> None:
    stderr().section("Next")
    remark("hint", hint)
