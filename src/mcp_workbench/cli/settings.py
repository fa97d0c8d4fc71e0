"""Options that commands share: which configuration, log output, use of the cache, which clients.

Owns what these options mean; `usage` declares them. Does not know what a command does with the configuration.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.engine.config.choose import choose
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    from mcp_workbench.setup.clients.table import Client


def configuration(parsed: Parsed, argument: str | None = None) -> WorkbenchConfig:
    """Return the configuration that the command line names. Raises `ConfigError`."""
    choice = choose(parsed.value("config"), argument, os.environ)
    if choice.warning is not None:
        remark("warning", choice.warning)
    return choice.config


def log_for(parsed: Parsed, config: WorkbenchConfig) -> Redactor:
    """Set up the log: commands print what matters, so the engine's log is shown only with `--debug`. Returns the
    redactor for the whole command, because what is masked in the log must be masked elsewhere too."""
    redactor = Redactor(config.secrets)
    if parsed.has("debug"):
        from mcp_workbench.engine.observe.log import set_up

        set_up(debug=True, file=None, format="text", redactor=redactor)
        return redactor
    logger = logging.getLogger("mcp_workbench")
    # Without a handler, `logging` would write warnings to stderr, between the lines of the command.
    logger.handlers[:] = [logging.NullHandler()]
    logger.propagate = False
    return redactor


def clients_named(parsed: Parsed, command: str, every: Callable[[], list[Client]]) -> list[Client]:
    """Return the clients that a command line names, or with --all `every` one. Raises `UsageError`, `ConfigError`."""
    from mcp_workbench.setup.client_changes import expire
    from mcp_workbench.setup.clients.table import clients, find

    for client in clients().values():
        # `doctor` and the commands on this client report a record that cannot be read.
        with contextlib.suppress(ConfigError):
            expire(client)
    names = parsed.positionals
    if parsed.has("all") == bool(names):
        raise UsageError("name a client, or use --all", hint=f"for example: mcp-workbench {command} claude-code")
    return every() if parsed.has("all") else [find(name) for name in names]
