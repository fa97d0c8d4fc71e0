"""Settings that cannot change while clients are connected: clients rely on them, or they were set up for all at the
start."""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from mcp_workbench.engine.config.model import WorkbenchConfig

log = logging.getLogger(__name__)

# By their field, the names of the settings that connected clients rely on.
FIXED: Final = {each.field: name for name, each in WorkbenchConfig.SETTINGS.items() if each.needs_restart}


def with_fixed_settings(before: WorkbenchConfig, after: WorkbenchConfig) -> tuple[WorkbenchConfig, list[str]]:
    """Return the new configuration, with settings that cannot change now left unchanged, and the names of those."""
    changed = [name for field, name in FIXED.items() if _in_force(before, field) != _in_force(after, field)]
    for name in changed:
        log.warning("`%s` has changed in `%s`: restart the workbench to apply it", name, after.path)
    kept = {field: getattr(before, field) for field, name in FIXED.items() if name in changed}
    if "face" in kept:
        kept["face"] = before.face_in_force
    return replace(after, **kept), changed


def _in_force(config: WorkbenchConfig, field: str) -> object:
    # By effect: a file that now names the default has changed nothing.
    return config.face_in_force if field == "face" else getattr(config, field)
