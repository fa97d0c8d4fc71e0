"""What clients had when their servers were last taken over, so that `init --update` can say what has changed since.

Owns the record: for each server its clients and a salted hash of its entry, never the entry, which may hold keys.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.setup.clients.toolbox_proposals import ImportedServer
from mcp_workbench.setup.file_replacement import write_whole

_FOLDER: Final = "imported"
# Thousands of servers; anything larger is not ours.
_MAX_RECORD_BYTES: Final = 4 << 20


class SeenServer(Struct, frozen=True):
    sources: tuple[str, ...]
    mark: str


class ImportRecord(Struct):
    """The servers of all clients at some time, by name. Without a salt, there is no record."""

    salt: str = ""
    servers: dict[str, SeenServer] = {}

    def mark(self, entry: dict[str, Any]) -> str:
        text = json.dumps(entry, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(f"{self.salt}\0{text}".encode(errors="surrogatepass")).hexdigest()


def read_record(target: str) -> ImportRecord:
    """Return the record for a configuration; an empty one if there is none that can be read."""
    path = _path(target)
    try:
        with open(path or os.devnull, "rb") as file:
            return decode(file.read(_MAX_RECORD_BYTES), type=ImportRecord)
    except (OSError, MsgspecError):
        return ImportRecord()


def write_record(target: str, servers: Sequence[ImportedServer], clients: Collection[str]) -> None:
    """Remember what these clients have now; what is known of others stays. Best effort: without a record, everything
    unknown counts as new."""
    path = _path(target)
    if path is None:
        return
    record = read_record(target)
    record.salt = record.salt or os.urandom(16).hex()
    record.servers = {name: seen for name, seen in record.servers.items() if not set(seen.sources) <= set(clients)}
    record.servers |= {each.name: SeenServer(tuple(each.sources), record.mark(each.entry)) for each in servers}
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_whole(path, encode(record))
        os.chmod(path, 0o600)
    except OSError:
        return


def _path(target: str) -> str | None:
    folder = state_path(_FOLDER)
    name = hashlib.sha256(os.path.realpath(target).encode(errors="surrogateescape")).hexdigest()[:32]
    return None if folder is None else os.path.join(folder, f"{name}.json")
