"""Settings that cannot change while clients are connected: clients rely on them, or they were set up for all at the
start."""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from mcp_workbench.engine.config.model import WorkbenchConfig

log = logging.getLogger(__name__)

# Settings that connected clients rely on: field of the model, and name in the file.
FIXED: Final = {
    "separator": "separator",
    "max_message_bytes": "maxMessageBytes",
    "max_pending_body_bytes": "maxPendingBodyBytes",
    "keychain": "keychain",
    "splits_use_tool": "useTool",
    # The endpoint is built around them (docs/internals/design.md).
    "auth": "auth",
    "trusted_proxy": "trustedProxy",
}


def with_fixed_settings(before: WorkbenchConfig, after: WorkbenchConfig) -> tuple[WorkbenchConfig, list[str]]:
    """Return the new configuration, with settings that cannot change now left unchanged, and the names of those."""
    changed = [name for field, name in FIXED.items() if getattr(before, field) != getattr(after, field)]
    # Compared by effect: a file that now names the default has changed nothing.
    if before.face_in_force != after.face_in_force:
        changed.append("face")
    for name in changed:
        log.warning("`%s` has changed in `%s`: restart the workbench to apply it", name, after.path)
    face = after.face if after.face_in_force == before.face_in_force else before.face_in_force
    return replace(after, face=face, **{field: getattr(before, field) for field in FIXED}), changed
