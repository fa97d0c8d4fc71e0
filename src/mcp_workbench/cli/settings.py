"""What the commands have in common: which configuration, how talkative, how fresh.

Owns what these options mean; `usage` declares them. Refuses to know what a command does with the configuration.
"""

from __future__ import annotations

import logging
import os

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.config.choose import choose
from mcp_workbench.config.model import WorkbenchConfig
from mcp_workbench.config.redact import Redactor


def configuration(parsed: Parsed, argument: str | None = None) -> WorkbenchConfig:
    """The configuration that the command line names. Raises `ConfigError`."""
    choice = choose(parsed.value("config"), argument, os.environ)
    if choice.warning is not None:
        remark("warning", choice.warning)
    return choice.config


def log_for(parsed: Parsed, config: WorkbenchConfig) -> Redactor:
    """Commands say themselves what matters; the engine's log is shown only when asked for. What is hidden in the log is
    to be hidden elsewhere too: one redactor for the whole command."""
    redactor = Redactor(config.secrets)
    if parsed.has("debug"):
        from mcp_workbench.observe.log import set_up

        set_up(debug=True, file=None, format="text", redactor=redactor)
        return redactor
    logger = logging.getLogger("mcp_workbench")
    # Without a handler, `logging` writes warnings to stderr by itself, between the lines of the command.
    logger.handlers[:] = [logging.NullHandler()]
    logger.propagate = False
    return redactor
