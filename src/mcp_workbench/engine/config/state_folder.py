"""Where we store what outlives a run: keys, records of trust, tokens, backups. One folder per user."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcp_workbench.engine.config.environment import folder_of_client


def state_path(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of a file or folder of this name there; None if the user has no home folder."""
    if environ is not os.environ and (kept := folder_of_client(environ, "XDG_STATE_HOME", ".local/state")) is not None:
        return os.path.join(kept, "mcp-workbench", name)
    # Imported here because it takes 8 ms, and serving over stdio does not need it.
    from platformdirs import user_state_dir

    try:
        state = user_state_dir("mcp-workbench", appauthor=False)
    except (OSError, RuntimeError, KeyError):
        return None
    # A user without HOME and without an entry in the user database, as in many containers, gets an unexpanded `~`.
    return os.path.join(state, name) if os.path.isabs(state) else None
