"""Lines of the audit for the page. Everything here may block."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.team.audit.audit_chain import OpenedFiles, verify


def read_audits(
    paths: Sequence[str], query: str, before: Sequence[int], limit: int, principal: str | None, most_verified: int
) -> dict[str, Any]:
    """The last lines of all these audits by time, as `read_audit`; of several, their numbers have that of their file.
    `before`: what the page before these lines has as `from`."""
    bounds = [*before, *(0 for _ in paths[len(before) :])]
    if len(paths) == 1:
        found = read_audit(paths[0], query, bounds[0], limit, principal, most_verified)
        return found | {"from": str(found["lines"][0]["number"] if found["lines"] else 0)}
    audits = [
        _read_if_possible(path, query, bound, limit, principal, most_verified)
        for path, bound in zip(paths, bounds, strict=True)
    ]
    numbered = [(file, each) for file, audit in enumerate(audits) for each in audit["lines"]]
    numbered.sort(key=lambda each: str(each[1].get("time", "")))
    for file, line in reversed(numbered[-limit:]):
        bounds[file] = line["number"]
    verdicts = [audit["verified"] for audit in audits]
    return {
        "lines": [line | {"number": f"{file + 1}:{line['number']}"} for file, line in numbered[-limit:]],
        "from": ",".join(map(str, bounds)),
        "verified": False if False in verdicts else None if None in verdicts else True,
        "why": "; ".join(f"{path}: {audit['why']}" for path, audit in zip(paths, audits, strict=True) if audit["why"]),
        "more": len(numbered) > limit or any(audit["more"] for audit in audits),
    }


def _read_if_possible(
    path: str, query: str, before: int, limit: int, principal: str | None, most_verified: int
) -> dict[str, Any]:
    try:
        return read_audit(path, query, before, limit, principal, most_verified)
    except OSError as error:
        # The others can be read all the same.
        return {"lines": [], "verified": None, "why": f"it cannot be read ({error.strerror})", "more": False}


def read_audit(
    path: str, query: str, before: int, limit: int, principal: str | None, most_verified: int
) -> dict[str, Any]:
    """The last lines that contain `query`, oldest first. `before`: of those with a lower number, unless it is 0; only
    without it the chain is verified. `principal`: of this one alone. Raises `OSError`."""
    wanted, found = query.casefold(), deque[dict[str, Any]](maxlen=limit + 1)
    opened = OpenedFiles(path)
    # With those that were rotated.
    size = sum(each for _, _, each in opened.files)
    try:
        for number, (_, _, line) in enumerate(opened.lines(), 1):
            if 0 < before <= number:
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
    verified, why = (None, "") if before or principal is not None else _verified(path, size, most_verified)
    lines = list(found)
    return {"lines": lines[-limit:], "verified": verified, "why": why, "more": len(lines) > limit}


def _verified(path: str, size: int, most: int) -> tuple[bool | None, str]:
    if size > most:
        return None, "it is too long to be verified for a page: run `mcp-workbench team audit verify`"
    report = verify(path)
    if report.findings:
        return False, report.findings[0]
    return True, f"nothing was edited, inserted, moved or removed in {report.lines} lines, as far as can be known"
