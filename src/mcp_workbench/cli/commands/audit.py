"""`mcp-workbench team audit`: show who did what, as a table, and verify that the record is complete."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, Screen, stdout
from mcp_workbench.cli.settings import configuration
from mcp_workbench.engine.printable import one_line, plural
from mcp_workbench.team.audit.audit_chain import OpenedFiles, verify

LAST_LINES: Final = 200
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AUDIT_HEADER: Final = ("time", "who", "from", "client", "what", "decision", "outcome", "ms")


def run(parsed: Parsed) -> int:
    words = list(parsed.positionals)
    verifies = words[:1] == ["verify"]
    if verifies:
        words.pop(0)
    if len(words) > 1:
        raise UsageError(f"unexpected argument `{words[1]}`")
    path = words[0] if words else _configured(parsed)
    if path is None:
        return complain(
            "there is no audit file to read",
            'set `"audit": {"file": …}` in the configuration, or name a FILE',
            status=FAILED_STATUS,
        )
    try:
        return _verify(parsed, path) if verifies else _print(parsed, path)
    except OSError as error:
        return complain(f"`{path}` cannot be read: {error.strerror}", status=FAILED_STATUS)


def _configured(parsed: Parsed) -> str | None:
    audit = configuration(parsed).audit
    return None if audit is None else audit.file


def _verify(parsed: Parsed, path: str) -> int:
    report = verify(path, _expected(parsed.value("expect")))
    if parsed.has("json"):
        stdout().json(report._asdict())
        return FAILED_STATUS if report.findings else 0
    screen = stdout()
    for finding in report.findings:
        screen.line(("broken  ", "bad"), one_line(finding))
    for note in report.notes:
        remark("note", one_line(note))
    if report.lines:
        # Meant to be stored elsewhere: anyone who can rewrite the file can rewrite the whole chain, but not that copy.
        lines = plural(report.lines, "line")
        print(f"{lines}, {report.first} to {report.last}; the last one is {report.last}:{report.hash}")
    else:
        print("no lines")
    if not report.findings:
        screen.line(("ok", "good"), "  nothing was edited, inserted, moved or removed, as far as can be known")
    return FAILED_STATUS if report.findings else 0


def _expected(given: str | None) -> tuple[int, str] | None:
    if given is None:
        return None
    number, _, digest = given.partition(":")
    if not number.isdecimal() or len(digest) != 64:
        raise UsageError(f"--expect is NUMBER:HASH as verify prints it, not `{given}`")
    return int(number), digest.lower()


def _print(parsed: Parsed, path: str) -> int:
    given = parsed.value("lines")
    if given is not None and not given.isdecimal():
        raise UsageError(f"--lines is a number, not `{given}`")
    count = LAST_LINES if given is None else int(given)
    # Keep only as many as are shown: the files may be gigabytes long.
    found = list(deque(_matching(parsed, path), maxlen=count or None))
    screen = stdout()
    if parsed.has("json"):
        screen.json(found)
        return 0
    if not found:
        remark("note", "no line matches")
        return 0
    rows = [_row(line) for line in found]
    # Names of principals are long (`https://issuer#subject`) and cannot be copied when folded into columns.
    if screen.fits(_AUDIT_HEADER, rows):
        screen.table(_AUDIT_HEADER, rows, right=(7,))
    else:
        for row in rows:
            _show(screen, row)
    return 0


def _show(screen: Screen, row: list[Part]) -> None:
    """Two lines, if a table would break words: when and who, then what."""
    when, who, peer, client, what, decision, outcome, took = row
    origin = " from ".join(str(each) for each in (client, peer) if each)
    screen.line(*_spaced(when, who, origin))
    screen.line(*_spaced(what, decision, outcome, f"{took} ms" if took else ""), indent=2)


def _spaced(*parts: Part) -> list[Part]:
    """Join the non-empty parts with spaces."""
    shown = [part for part in parts if (part if isinstance(part, str) else part[0])]
    return [each for part in shown for each in ("  ", part)][1:]


def _matching(parsed: Parsed, path: str) -> Iterator[dict[str, Any]]:
    who, tool, since = parsed.value("who"), parsed.value("tool"), parsed.value("since")
    earliest = "" if since is None else _moment(since)
    opened = OpenedFiles(path)
    try:
        for _, _, line in opened.lines():
            try:
                read = decode(line[max(line.find(b"{"), 0) :])
            except DecodeError:
                continue
            if not isinstance(read, dict) or str(read.get("time", "")) < earliest:
                continue
            if who is not None and not fnmatchcase(str(read.get("principal", "")), who):
                continue
            if tool is not None and not _is_about(read, tool):
                continue
            yield read
    finally:
        opened.close()


def _is_about(line: dict[str, Any], tool: str) -> bool:
    item = str(line.get("item", ""))
    if not item and not line.get("server"):
        return False
    return fnmatchcase(_path(line), tool) or fnmatchcase(item, tool)


def _path(line: dict[str, Any]) -> str:
    return "/".join(str(line[key]) for key in ("toolbox", "server", "item") if line.get(key))


def _moment(since: str) -> str:
    """Return a time in the format of the audit lines, which sorts as text."""
    number, unit = since[:-1], since[-1:]
    if number.isdecimal() and unit in _UNIT_SECONDS:
        at = datetime.fromtimestamp(max(time.time() - int(number) * _UNIT_SECONDS[unit], 0), UTC)
    else:
        try:
            at = datetime.fromisoformat(since)
        except ValueError:
            raise UsageError(f"--since is 30m, 12h, 7d or a date, not `{since}`") from None
        # A time without a zone is local time.
        at = at.astimezone(UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _row(line: dict[str, Any]) -> list[Part]:
    kind = str(line.get("kind", ""))
    what = _path(line) or str(line.get("event", ""))
    if kind not in ("call", ""):
        what = f"{line.get('method') or kind} {what}".strip()
    if reason := line.get("reason"):
        what = f"{what}: {reason}"
    decision = str(line.get("decision", ""))
    if rule := line.get("rule"):
        decision = f"{decision} ({rule})"
    outcome = str(line.get("outcome", ""))
    took = line.get("ms")
    return [
        (str(line.get("time", "")), "dim"),
        (str(line.get("principal", "")), "name"),
        str(line.get("peer", "")),
        str(line.get("client", "")),
        what,
        (decision, "bad" if decision.startswith("denied") else "plain"),
        (outcome, "plain" if outcome == "result" else "warn"),
        "" if took is None else f"{took:.1f}",
    ]
