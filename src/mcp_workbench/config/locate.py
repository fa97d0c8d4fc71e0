"""Where the configuration is.

Owns the order of the places and the message when there is none. Refuses to read the file (`load`), and to say whether
it may be used (`choose`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from mcp_workbench.errors import ConfigError

VARIABLE = "WORKBENCH_CONFIG"
FILE_NAME = "workbench-config.json"
_APPLICATION = "mcp-workbench"


class Located(Struct, frozen=True):
    """A file. `is_project`: nobody named it, it lies in the current folder, and anybody may have put it there."""

    path: str
    is_project: bool = False


def locate(option: str | None, argument: str | None, environ: Mapping[str, str]) -> Located:
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
            return Located(_named(path, source))
    own = own_file()
    here = os.path.join(".", FILE_NAME)
    # A link that leads nowhere is a file too; `load` says what is wrong with it.
    if os.path.lexists(here) and not (own is not None and os.path.realpath(here) == os.path.realpath(own)):
        return Located(here, is_project=True)
    if own is not None:
        return Located(own)
    folders = [os.path.abspath("."), *filter(None, [_user_folder()])]
    places = "\n".join(f"  {os.path.join(folder, FILE_NAME)}" for folder in folders)
    raise ConfigError(
        f"there is no configuration; looked at `--config`, an argument, the variable `{VARIABLE}` and\n{places}",
        hint="create one of these files, or name any client's `mcpServers` file with `--config`",
    )


def own_file() -> str | None:
    """The file in the user's folder for settings, where there is one."""
    folder = _user_folder()
    path = os.path.join(folder, FILE_NAME) if folder is not None else ""
    return path if path and os.path.lexists(path) else None


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
