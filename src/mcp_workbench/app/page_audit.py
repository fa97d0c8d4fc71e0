"""Lines of the audit for the page. Everything here may block."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.team.audit.audit_chain import OpenedFiles, verify


def read_audit(
    path: str, query: str, before: int | None, limit: int, principal: str | None, most_verified: int
) -> dict[str, Any]:
    """The last lines that contain `query`, oldest first; `before`: of those with a lower number. `principal`: of this
    one alone. Raises `OSError`."""
    wanted, found = query.casefold(), deque[dict[str, Any]](maxlen=limit + 1)
    opened = OpenedFiles(path)
    size = 0
    try:
        for number, (_, _, line) in enumerate(opened.lines(), 1):
            size += len(line)
            if before is not None and number >= before:
                break
            if wanted and wanted not in line.decode(errors="replace").casefold():
                continue
            try:
                read = decode(line[max(line.find(b"{"), 0) :])
            except DecodeError:
                read = {"unreadable": line.decode(errors="backslashreplace")[:1000]}
            if not isinstance(read, dict) or (principal is not None and read.get("principal") != principal):
                continue
            found.append({**read, "number": number})
    finally:
        opened.close()
    verified, why = _verified(path, most_verified) if principal is None else (None, "")
    lines = list(found)
    return {"lines": lines[-limit:], "verified": verified, "why": why, "more": len(lines) > limit}


def _verified(path: str, most: int) -> tuple[bool | None, str]:
    if os.path.getsize(path) > most:
        return None, "it is too long to be verified for a page: run `mcp-workbench team audit verify`"
    report = verify(path)
    if report.findings:
        return False, report.findings[0]
    return True, f"nothing was edited, inserted, moved or removed in {report.lines} lines, as far as can be known"
