"""The members of `audit`: where the audit log is written. Loaded only for a file that has it."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from mcp_workbench.engine.config.kinds import Boolean, Schema, Text, Whole, one_of
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import Declared, setting

DESTINATIONS: Final = ("file", "syslog", "stdout")


class AuditConfig(Declared, frozen=True, kw_only=True):
    """Where the audit log is written. Exactly one of the three is set."""

    # Made absolute.
    file: str | None = setting(Text(), "The file to append to. A relative path starts at the folder of this file.")
    syslog: str | None = setting(Text(), "The socket of the system log, such as `/dev/log`, or `host:port` for UDP.")
    stdout: bool = setting(
        Boolean(), "`true`: write to stdout, which only `serve --http` leaves free.", False, shown=None
    )
    arguments: Literal["none", "shape", "redacted"] = setting(
        one_of("none", "shape", "redacted"),
        "What is recorded of arguments: nothing, the types of their values, or the values without secrets.",
        "none",
    )
    when_full: Literal["count", "wait"] = setting(
        one_of("count", "wait"),
        "When lines come faster than they can be written: `count` those that are lost, or have calls `wait`, for a "
        "bounded time.",
        "count",
    )
    # About 200,000 lines in each file; a gigabyte in all.
    max_file_bytes: int = setting(
        Whole("bytes", 4096, 1 << 40), "Rotate the file when it has reached this size.", 64 * 1024 * 1024
    )
    keep_files: int = setting(Whole("files", 1, 10_000), "How many rotated files to keep; older ones are deleted.", 16)


class _Audit(Members[AuditConfig]):
    def read(self, value: object, path: Path, reader: Reader) -> AuditConfig | None:
        found = self.read_fields(value, path, reader)
        return None if found is None else self.made(found, value, path, reader)

    def made(self, found: dict[str, Any], value: object, path: Path, reader: Reader) -> AuditConfig | None:
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
        return AuditConfig(**{name: member for name, member in found.items() if member is not None})

    def schema(self) -> Schema:
        return {**super().schema(), "oneOf": [{"required": [name]} for name in DESTINATIONS]}


AUDIT: Final = _Audit(AuditConfig, 'an object such as `{"file": "audit.jsonl"}`')


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65_536
