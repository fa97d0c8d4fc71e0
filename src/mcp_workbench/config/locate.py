"""Which file is the configuration.

Owns the order of the places and the message when there is none. Refuses to read the file (`load`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcp_workbench.errors import ConfigError

VARIABLE = "WORKBENCH_CONFIG"
FILE_NAME = "workbench-config.json"
_APPLICATION = "mcp-workbench"


def locate(option: str | None, argument: str | None, environ: Mapping[str, str]) -> str:
    """The path from `--config`, the positional argument or `WORKBENCH_CONFIG`, else the first usual place that has one.

    Raises `ConfigError` when a named file does not exist, or when there is none in any of the places.
    """
    if option and argument and os.path.abspath(option) != os.path.abspath(argument):
        raise ConfigError(
            f"the configuration is named twice: `{option}` with `--config` and `{argument}` as an argument",
            hint="keep one of them",
        )
    for path, source in ((option, "`--config`"), (argument, "the argument"), (environ.get(VARIABLE), f"`{VARIABLE}`")):
        if path:
            return _named(path, source)
    looked_at = []
    for folder in (".", _user_folder()):
        if folder is None:
            continue
        path = os.path.join(folder, FILE_NAME)
        # A link that leads nowhere is the user's file too; `load` says what is wrong with it.
        if os.path.lexists(path):
            return path
        looked_at.append(os.path.abspath(path) if folder == "." else path)
    places = "\n".join(f"  {place}" for place in looked_at)
    raise ConfigError(
        f"there is no configuration; looked at `--config`, an argument, the variable `{VARIABLE}` and\n{places}",
        hint="create one of these files, or name any client's `mcpServers` file with `--config`",
    )


def _named(path: str, source: str) -> str:
    # Clients start us without a shell, so nobody else has replaced the `~` in their settings.
    if path.startswith("~") and not os.path.lexists(path):
        path = os.path.expanduser(path)
    try:
        missing = not os.path.lexists(path)
    except ValueError:
        missing = True
    if missing and _folder_is_readable(path):
        raise ConfigError(f"the configuration `{path}`, named by {source}, does not exist", hint="check the path")
    return path


def _folder_is_readable(path: str) -> bool:
    """Whether "does not exist" can be believed: without access to its folder every file seems to be missing."""
    folder = os.path.dirname(path) or "."
    return os.access(folder, os.X_OK) or not os.path.lexists(folder)


def _user_folder() -> str | None:
    """The user's folder for settings, or None where there is none: no `HOME` and no entry for the user."""
    from platformdirs import user_config_dir

    try:
        folder = user_config_dir(_APPLICATION, appauthor=False)
    except (OSError, RuntimeError, KeyError):
        return None
    return folder if os.path.isabs(folder) else None
