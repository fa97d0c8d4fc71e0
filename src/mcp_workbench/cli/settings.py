"""Options that commands share: which configuration, log output, use of the cache.

Owns what these options mean; `usage` declares them. Does not know what a command does with the configuration.
"""

from __future__ import annotations

import logging
import os

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.config.choose import choose
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor


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
