"""The settings in `audit`: what each may be, for reading and for editors.

Loaded only for a file that has it.
"""

from __future__ import annotations

import os
from typing import Any, Final

from mcp_workbench.config.kinds import Boolean, Choice, Kind, Schema, Text, Whole
from mcp_workbench.config.model import DEFAULT_AUDIT_BYTES, DEFAULT_AUDIT_FILES, AuditConfig
from mcp_workbench.config.problems import Path
from mcp_workbench.config.reading import Reader

DESTINATIONS: Final = ("file", "syslog", "stdout")

# Name, kind, and what it is for.
MEMBERS: Final[tuple[tuple[str, Kind[Any], str], ...]] = (
    ("file", Text(), "The file to append to. A relative path starts at the folder of this file."),
    ("syslog", Text(), "The socket of the system log, such as `/dev/log`, or `host:port` for UDP."),
    ("stdout", Boolean(), "`true`: write to stdout, which only `serve --http` leaves free."),
    (
        "arguments",
        Choice({word: word for word in ("none", "shape", "redacted")}),
        "What is recorded of arguments: nothing, the types of their values, or the values without secrets.",
    ),
    (
        "whenFull",
        Choice({word: word for word in ("count", "wait")}),
        "When lines come faster than they can be written: `count` those that are lost, or have calls `wait`, for a "
        "bounded time.",
    ),
    (
        "maxFileBytes",
        Whole("bytes", 4096, 1 << 40),
        "Rotate the file when it has reached this size.",
    ),
    ("keepFiles", Whole("files", 1, 10_000), "How many rotated files to keep; older ones are deleted."),
)


def read(value: object, path: Path, reader: Reader) -> AuditConfig | None:
    """The settings, or None after reporting the problems with them to the reader."""
    if not isinstance(value, dict):
        reader.wrong(value, path, 'an object such as `{"file": "audit.jsonl"}`')
        return None
    kinds = {name: kind for name, kind, _ in MEMBERS}
    found: dict[str, Any] = {}
    for name, member in value.items():
        if name in kinds:
            found[name] = kinds[name].read(member, (*path, name), reader)
        else:
            reader.unknown_key((*path, name), kinds)
    given = [name for name in DESTINATIONS if name in value and value[name] is not False]
    if len(given) != 1:
        what = "no destination" if not given else f"{len(given)} destinations"
        reader.problem(path, f"found {what}", "exactly one of `file`, `syslog`, `stdout`", at_key=True)
        return None
    file, syslog = found.get("file"), found.get("syslog")
    if isinstance(syslog, str) and not syslog.startswith("/") and not _is_host_and_port(syslog):
        reader.wrong(value["syslog"], (*path, "syslog"), "a path such as `/dev/log`, or `host:port`")
        return None
    return AuditConfig(
        file=None if file is None else os.path.join(reader.folder, os.path.expanduser(file)),
        syslog=syslog,
        stdout=found.get("stdout") is True,
        arguments=found.get("arguments") or "none",
        when_full=found.get("whenFull") or "count",
        max_file_bytes=found.get("maxFileBytes") or DEFAULT_AUDIT_BYTES,
        keep_files=found.get("keepFiles") or DEFAULT_AUDIT_FILES,
    )


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65_536


def schema() -> Schema:
    members = {name: {**kind.schema(), "title": _title(name), "description": about} for name, kind, about in MEMBERS}
    return {
        "type": "object",
        "properties": members,
        "oneOf": [{"required": [name]} for name in DESTINATIONS],
        "additionalProperties": False,
    }


def _title(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()
