"""Which configuration is used: where it is, and whether it may be used.

Owns the order of the places, the message if there is none, and the rule that a file merely found in the current folder
must be trusted (`trust`), including what is used instead if it is not. The file is read only once (`load`), so that the
content that was judged is the content that is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.engine.config.load import parse, read
from mcp_workbench.engine.config.model import WorkbenchConfig, modified_at
from mcp_workbench.errors import ConfigError

CONFIG_VARIABLE = "WORKBENCH_CONFIG"
CONFIG_FILE_NAME = "workbench-config.json"
_APPLICATION = "mcp-workbench"
HOW_TO_TRUST = "look at what it starts, then run `mcp-workbench team trust` in this folder, or name it with `--config`"


class ChosenConfig(Struct, frozen=True):
    """The configuration, and what the user should know about how it was chosen."""

    config: WorkbenchConfig
    warning: str | None = None
    # What the file held.
    content: bytes = b""


def choose(
    option: str | None, argument: str | None, environ: Mapping[str, str], folder: str = os.curdir
) -> ChosenConfig:
    """Return the configuration that is named, or else the project's if it is trusted, or else the user's own. `folder`
    and `environ` are the client's.

    Raises `ConfigError`.
    """
    found = locate(option, argument, environ, folder)
    if not found.is_project:
        return _loaded(found.path, environ)
    from mcp_workbench.engine.config.trust import TrustVerdict, verdict

    written_at = modified_at(found.path)
    own = own_file(environ)
    try:
        content = read(found.path)
    except ConfigError as error:
        # A file that others left in the folder must not keep the user from using their own.
        if own is None:
            raise
        return _loaded(own, environ, f"{error.message}\nusing `{own}` instead")
    judged = verdict(found.path, content, environ)
    if judged is TrustVerdict.TRUSTED:
        return ChosenConfig(replace(parse(content, found.path, environ), modified_at=written_at), None, content)
    refused = f"the configuration `{os.path.abspath(found.path)}` {judged.value}"
    if own is None:
        raise ConfigError(refused, hint=HOW_TO_TRUST)
    return _loaded(own, environ, f"{refused}; using `{own}` instead\nhint: {HOW_TO_TRUST}")


def _loaded(path: str, environ: Mapping[str, str], warning: str | None = None) -> ChosenConfig:
    # Before reading, so that a write in between counts as a change.
    written_at = modified_at(path)
    content = read(path)
    return ChosenConfig(replace(parse(content, path, environ), modified_at=written_at), warning, content)


class ConfigSource(Struct, frozen=True):
    """What a user specified about the configuration, to choose it again when files have changed. Both methods read the
    disk."""

    option: str | None
    argument: str | None
    environ: Mapping[str, str]
    folder: str = os.curdir

    def choose(self) -> ChosenConfig:
        """Raises `ConfigError`."""
        return choose(self.option, self.argument, self.environ, self.folder)

    def files(self) -> list[str]:
        """Return the files that affect the choice, whether they exist or not."""
        named = self.option or self.argument or self.environ.get(CONFIG_VARIABLE)
        if named:
            return [os.path.abspath(_without_tilde(named, self.environ))]
        from mcp_workbench.engine.config.trust import record_of

        here, own = os.path.abspath(os.path.join(self.folder, CONFIG_FILE_NAME)), user_folder(self.environ)
        files = (here, None if own is None else os.path.join(own, CONFIG_FILE_NAME), record_of(here, self.environ))
        return [path for path in files if path is not None]


class Located(Struct, frozen=True):
    """A file. `is_project`: it was not named but found in the current folder, where anyone may have put it."""

    path: str
    is_project: bool = False


def locate(option: str | None, argument: str | None, environ: Mapping[str, str], folder: str = os.curdir) -> Located:
    """Return the path from `--config`, the positional argument or `WORKBENCH_CONFIG`, or else the first default
    location that has a file.

    Raises `ConfigError` if a named file does not exist, or if no default location has one.
    """
    # The option does not silently win: users who give both would look for the mistake elsewhere.
    if option and argument and os.path.abspath(option) != os.path.abspath(argument):
        raise ConfigError(
            f"the configuration is named twice: `{option}` with `--config` and `{argument}` as an argument",
            hint="keep one of them",
        )
    for path, source in (
        (option, "`--config`"),
        (argument, "the argument"),
        (environ.get(CONFIG_VARIABLE), f"`{CONFIG_VARIABLE}`"),
    ):
        if path:
            return Located(_named(path, source, environ))
    own = own_file(environ)
    here = os.path.join(folder, CONFIG_FILE_NAME)
    # A dangling link counts as a file too; `load` reports what is wrong with it. In the user's folder for settings, the
    # file is the user's own, which needs no trust.
    if os.path.lexists(here) and not (own is not None and os.path.realpath(here) == os.path.realpath(own)):
        return Located(here, is_project=True)
    if own is not None:
        return Located(own)
    folders = [os.path.abspath(folder), *filter(None, [user_folder(environ)])]
    places = "\n".join(f"  {os.path.join(each, CONFIG_FILE_NAME)}" for each in folders)
    raise ConfigError(
        f"no configuration found; looked at `--config`, an argument, the variable `{CONFIG_VARIABLE}` and\n{places}",
        hint="`mcp-workbench init` creates one from the servers that your clients have; or name a file with `--config`",
    )


def own_file(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the file in the user's folder for settings, if there is one."""
    folder = user_folder(environ)
    path = os.path.join(folder, CONFIG_FILE_NAME) if folder is not None else ""
    return path if path and os.path.lexists(path) else None


def _named(path: str, source: str, environ: Mapping[str, str]) -> str:
    path = _without_tilde(path, environ)
    try:
        missing = not os.path.lexists(path)
    except ValueError:
        missing = True
    if missing and _folder_is_readable(path):
        raise ConfigError(f"the configuration `{path}`, named by {source}, does not exist", hint="check the path")
    return path


def _without_tilde(path: str, environ: Mapping[str, str]) -> str:
    """Expand `~`: clients start us without a shell, so no shell has done it."""
    try:
        if not path.startswith("~") or os.path.lexists(path):
            return path
        home = environ.get("HOME", "")
        if path.startswith("~/") and os.path.isabs(home):
            return os.path.join(home, path[2:])
        return os.path.expanduser(path)
    except ValueError:
        # A NUL character. No such file exists, which is reported elsewhere.
        return path


def _folder_is_readable(path: str) -> bool:
    """Whether "does not exist" can be believed: without access to its folder, every file seems to be missing."""
    folder = os.path.dirname(path) or "."
    try:
        return os.access(folder, os.X_OK) or not os.path.lexists(folder)
    except ValueError:
        return True


def user_folder(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the user's folder for settings; None if there is none: no `HOME` and no entry in the user database."""
    from platformdirs import user_config_dir

    from mcp_workbench.engine.config.environment import folder_of_client

    if environ is not os.environ and (folder := folder_of_client(environ, "XDG_CONFIG_HOME", ".config")) is not None:
        return os.path.join(folder, _APPLICATION)
    try:
        folder = user_config_dir(_APPLICATION, appauthor=False)
    except (OSError, RuntimeError, KeyError):
        return None
    return folder if os.path.isabs(folder) else None
