"""What clients had when their servers were last taken over, so that `init --update` can say what has changed since.

Owns the record: for each server its clients, the names of its members and a salted hash of its entry, never the entry,
which may hold keys; and which of two twins the user keeps.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.setup.clients.toolbox_proposals import TREATMENT, ImportedServer
from mcp_workbench.setup.file_replacement import write_whole

# Members that hold others, which a user may have added to.
NESTED: Final = ("env", "headers")
BOTH: Final = "both"
_IMPORTED_FOLDER: Final = "imported"
# Thousands of servers; anything larger is not ours.
_MAX_RECORD_BYTES: Final = 4 << 20


class SeenServer(Struct, frozen=True):
    sources: tuple[str, ...]
    mark: str
    # What its clients say of it, each as a hash: `command`, `env/KEY` …
    members: dict[str, str] = {}


class ImportRecord(Struct):
    """The servers of all clients at some time, by name. Without a salt, there is no record."""

    salt: str = ""
    servers: dict[str, SeenServer] = {}
    # Which of two twins is kept, by their places: the place of one, or `BOTH`.
    twins: dict[str, str] = {}

    def mark(self, value: object) -> str:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(f"{self.salt}\0{text}".encode(errors="surrogatepass")).hexdigest()


def place_of(server: ImportedServer) -> str:
    """Where a server was read: its client, and its name there."""
    return f"{server.sources[0]}/{server.name}"


def pair_of(one: ImportedServer, other: ImportedServer) -> str:
    return "\0".join(sorted((place_of(one), place_of(other))))


def known_as(record: ImportRecord, server: ImportedServer) -> str | None:
    """Return the name that a server of this client was taken over under, or None."""
    names = (f"{server.name}-{server.sources[0]}", server.name)
    return next((name for name in names if name in record.servers and _is_from(record.servers[name], server)), None)


def kept_of(record: ImportRecord, one: ImportedServer, other: ImportedServer) -> list[ImportedServer]:
    """Return which of two twins the user has chosen to keep; none if they were not asked."""
    kept = record.twins.get(pair_of(one, other))
    return [each for each in (one, other) if kept in (BOTH, place_of(each))]


def kept_before(record: ImportRecord, one: ImportedServer, other: ImportedServer) -> list[ImportedServer]:
    """Return which of two twins the configuration has; the first if it has neither."""
    names = [known_as(record, each) for each in (one, other)]
    if None not in names and names[0] != names[1]:
        return [one, other]
    is_other = names[1] is not None and (
        names[0] is None or record.servers[names[1]].mark == record.mark(started(other.entry))
    )
    return [other] if is_other else [one]


def kept_elsewhere(record: ImportRecord, server: ImportedServer, read: Collection[str]) -> bool:
    """Whether the user keeps a twin of this server instead, in a client that is not among those `read` in full."""
    place = place_of(server)
    return any(
        kept not in (BOTH, place) and place in pair.split("\0") and kept.partition("/")[0] not in read
        for pair, kept in record.twins.items()
    )


def _is_from(seen: SeenServer, server: ImportedServer) -> bool:
    return not {*seen.sources}.isdisjoint(server.sources)


def started(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an entry says of the server. How it is treated is merged from all clients, so it differs if some are
    not read."""
    return {key: value for key, value in entry.items() if key not in TREATMENT}


def members_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an entry, and those of `env` and `headers` one by one."""
    found: dict[str, Any] = {}
    for key, value in entry.items():
        found |= {f"{key}/{name}": each for name, each in value.items()} if key in NESTED else {key: value}
    return found


def read_record(target: str) -> ImportRecord:
    """Return the record for a configuration; an empty one if there is none that can be read."""
    path = _path(target)
    try:
        with open(path or os.devnull, "rb") as file:
            return decode(file.read(_MAX_RECORD_BYTES), type=ImportRecord)
    except (OSError, MsgspecError):
        return ImportRecord()


def write_record(
    target: str,
    servers: Sequence[ImportedServer],
    clients: Collection[str],
    twins: Mapping[str, str],
    left: Collection[str] = (),
) -> None:
    """Remember what these clients have now, and which twins are kept; what is known of others stays. Of servers that
    were `left` as they are, what they were when they were taken over. Best effort: without a record, everything
    unknown counts as new."""
    path = _path(target)
    if path is None:
        return
    record = read_record(target)
    record.salt = record.salt or os.urandom(16).hex()
    base = {name: seen.members for name, seen in record.servers.items() if name in left}
    record.servers = {name: seen for name, seen in record.servers.items() if not set(seen.sources) <= set(clients)}
    record.servers |= {
        each.name: SeenServer(
            tuple(each.sources),
            record.mark(started(each.entry)),
            base.get(each.name) or {name: record.mark(value) for name, value in members_of(each.entry).items()},
        )
        for each in servers
    }
    record.twins |= twins
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_whole(path, encode(record))
        os.chmod(path, 0o600)
    except OSError:
        return


def _path(target: str) -> str | None:
    folder = state_path(_IMPORTED_FOLDER)
    name = hashlib.sha256(os.path.realpath(target).encode(errors="surrogateescape")).hexdigest()[:32]
    return None if folder is None else os.path.join(folder, f"{name}.json")
