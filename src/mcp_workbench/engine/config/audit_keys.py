"""The settings in `audit`: the allowed values, for validation and for editors.

Loaded only for a file that has it.
"""

from __future__ import annotations

import os
from typing import Final

from mcp_workbench.engine.config.keys import field_of
from mcp_workbench.engine.config.kinds import Boolean, Choice, Kind, Schema, Text, Whole
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.model import AuditConfig
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader

DESTINATIONS: Final = ("file", "syslog", "stdout")

MEMBERS: Final = Members(
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
    ("maxFileBytes", Whole("bytes", 4096, 1 << 40), "Rotate the file when it has reached this size."),
    ("keepFiles", Whole("files", 1, 10_000), "How many rotated files to keep; older ones are deleted."),
)


class AuditSettings(Kind[AuditConfig]):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> AuditConfig | None:
        found = MEMBERS.read_object(value, path, reader, 'an object such as `{"file": "audit.jsonl"}`')
        if found is None:
            return None
        assert isinstance(value, dict)
        given = [name for name in DESTINATIONS if name in value and value[name] is not False]
        if len(given) != 1:
            what = "no destination" if not given else f"{len(given)} destinations"
            reader.problem(path, f"found {what}", "exactly one of `file`, `syslog`, `stdout`", at_key=True)
            return None
        syslog = found.get("syslog")
        if isinstance(syslog, str) and not syslog.startswith("/") and not _is_host_and_port(syslog):
            reader.wrong(value["syslog"], (*path, "syslog"), "a path such as `/dev/log`, or `host:port`")
            return None
        if found.get("file") is not None:
            found["file"] = os.path.join(reader.folder, os.path.expanduser(found["file"]))
        return AuditConfig(**{field_of(name): member for name, member in found.items() if member is not None})

    def schema(self) -> Schema:
        return {**MEMBERS.schema(), "oneOf": [{"required": [name]} for name in DESTINATIONS]}


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65_536
