"""Where we keep what outlives a run: keys, records of trust, tokens, backups. One folder of the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcp_workbench.config.environment import folder_of_client


def state_path(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """A file or folder of this name there; None where the user has no home."""
    if environ is not os.environ and (kept := folder_of_client(environ, "XDG_STATE_HOME", ".local/state")) is not None:
        return os.path.join(kept, "mcp-workbench", name)
    # Imported here: it takes 8 ms, and serving over stdio does without.
    from platformdirs import user_state_dir

    try:
        state = user_state_dir("mcp-workbench", appauthor=False)
    except (OSError, RuntimeError, KeyError):
        return None
    # A user without HOME who is in no user database, as in many containers, gets an unexpanded `~`.
    return os.path.join(state, name) if os.path.isabs(state) else None
