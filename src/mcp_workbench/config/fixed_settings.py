"""What cannot change while clients are connected: they rely on it, or it was opened for all of them at the start."""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from mcp_workbench.config.model import WorkbenchConfig

log = logging.getLogger(__name__)

# What clients that are connected rely on, by the names of their fields, and what the user calls them.
FIXED: Final = {
    "separator": "separator",
    "max_message_bytes": "maxMessageBytes",
    "max_pending_body_bytes": "maxPendingBodyBytes",
    "keychain": "keychain",
    "splits_use_tool": "useTool",
    # The endpoint is built around them (docs/design.md).
    "auth": "auth",
    "trusted_proxy": "trustedProxy",
}


def within_what_is_fixed(before: WorkbenchConfig, after: WorkbenchConfig) -> tuple[WorkbenchConfig, list[str]]:
    """The new configuration with what cannot change while clients are connected left as it is, and what that is."""
    changed = [name for field, name in FIXED.items() if getattr(before, field) != getattr(after, field)]
    # Compared as it takes effect: a file that now names the default has changed nothing.
    if before.face_in_force != after.face_in_force:
        changed.append("face")
    for name in changed:
        log.warning("`%s` has changed in `%s`: restart the workbench to apply it", name, after.path)
    face = after.face if after.face_in_force == before.face_in_force else before.face_in_force
    return replace(after, face=face, **{field: getattr(before, field) for field in FIXED}), changed
