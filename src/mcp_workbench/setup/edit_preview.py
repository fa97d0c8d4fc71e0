"""What an edit changes in a client's file, shown before it is made.

Owns what is shown: only the lines that change, with secrets anywhere in the file masked.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.setup.client_files import FoundFile
from mcp_workbench.setup.clients.dialects import translated
from mcp_workbench.setup.clients.documents import root_of, servers_in
from mcp_workbench.setup.clients.literal_secrets import secrets_of, secrets_within

# Nobody writes longer lines: it is a file without line breaks, which a diff would show whole, twice.
WIDEST_LINE: Final = 240
_HOW_WE_ARE_STARTED: Final = ("command", "cmd", "args", "type")


def hiding(found: FoundFile, before: bytes | None, name: str, entry: Mapping[str, Any]) -> Redactor:
    """Return a redactor for the secrets in the file, including the user's values in our entry, but not for the command
    that starts us."""
    secrets = secrets_within(root_of(before or b"", found.file, found.path))
    for written in servers_in(before or b"", found.file, found.path).values():
        secrets += secrets_of(translated(written, found.file.dialect).entry or {})
    ours = {name, *_strings([entry.get(member, "") for member in _HOW_WE_ARE_STARTED])}
    # A path or name of ours may also be the value of some secret, and would be masked in the text to read.
    return Redactor(set(secrets) - ours)


def edit_preview(
    found: FoundFile,
    before: bytes | None,
    after: bytes,
    name: str,
    entry: Mapping[str, Any],
    removed: list[str],
    path: str,
) -> str:
    """Return the lines that change, in the format of `diff`, below the path as people write it."""
    lines = list(
        difflib.unified_diff(
            (before or b"").decode(errors="replace").splitlines(),
            after.decode(errors="replace").splitlines(),
            path,
            path,
            lineterm="",
            n=0,
        )
    )
    # Some clients write their file in one line, which a diff would show whole, twice.
    if any(len(line) > WIDEST_LINE for line in lines if line.startswith("-")):
        own = json.dumps({name: entry}, indent=2, ensure_ascii=False).splitlines()[1:-1]
        gone = [f"-  {json.dumps(each, ensure_ascii=False)}: {{…}}" for each in removed]
        lines = [*lines[:2], "@@ members @@", *gone, *(f"+{line}" for line in own)]
    return hiding(found, before, name, entry).text("\n".join(lines))


def _strings(value: object) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in _strings(each)]
    return [value] if isinstance(value, str) else []
