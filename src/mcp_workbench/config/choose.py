"""Which configuration is in force: found by `locate`, permitted by `trust`, read by `load`.

Owns the rule that a file which merely lies in the current folder must be trusted, and what takes its place when it is
not. The content that is judged is the content that is used: the file is read once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.config.load import load, modified_at, parse, read
from mcp_workbench.config.locate import locate, own_file
from mcp_workbench.config.model import WorkbenchConfig
from mcp_workbench.errors import ConfigError

HOW_TO_TRUST = "look at what it starts, then run `mcp-workbench trust` in this folder, or name it with `--config`"


class Choice(Struct, frozen=True):
    """The configuration, and what the user should know of how it was chosen."""

    config: WorkbenchConfig
    warning: str | None = None


def choose(option: str | None, argument: str | None, environ: Mapping[str, str]) -> Choice:
    """The configuration that is named, else that of the project where it is trusted, else the user's own.

    Raises `ConfigError`.
    """
    found = locate(option, argument, environ)
    if not found.is_project:
        return Choice(load(found.path, environ))
    from mcp_workbench.config.trust import Verdict, verdict

    written_at = modified_at(found.path)
    own = own_file()
    try:
        content = read(found.path)
    except ConfigError as error:
        # What somebody left in the folder must not keep the user from what is the user's own.
        if own is None:
            raise
        return Choice(load(own, environ), f"{error.message}\nusing `{own}` instead")
    judged = verdict(found.path, content)
    if judged is Verdict.TRUSTED:
        return Choice(replace(parse(content, found.path, environ), modified_at=written_at))
    refused = f"the configuration `{os.path.abspath(found.path)}` {judged.value}"
    if own is None:
        raise ConfigError(refused, hint=HOW_TO_TRUST)
    return Choice(load(own, environ), f"{refused}; using `{own}` instead\nhint: {HOW_TO_TRUST}")
