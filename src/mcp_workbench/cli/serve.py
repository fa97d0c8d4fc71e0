"""`mcp-workbench serve`: be the MCP server. Lean by intent: this is the start-up path."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mcp_workbench import __version__
from mcp_workbench.cli.flags import Flag, Parsed, UsageError, parse
from mcp_workbench.errors import ConfigError

FLAGS = (
    Flag("config", "FILE", "the configuration file"),
    Flag("face", "FACE", "what clients see: proxy"),
    Flag("no-cache", None, "do not remember what servers offer, and ask them each time"),
    Flag("name", "NAME", "the name that clients are told (default: mcp-workbench)"),
    Flag("version", "VALUE", "the version that clients are told; alone, prints ours", optional_value=True),
    Flag("debug", None, "log everything, servers' stderr included"),
    Flag("log-file", "FILE", "log there instead of stderr"),
    Flag("log-format", "FORMAT", "text or json (default: text)"),
)

USAGE = """\
Usage: mcp-workbench [serve] [OPTIONS] [CONFIG]

One MCP server in front of many, over stdin and stdout.

Commands: serve (the default), check, list, open, call, demo, schema; each explains itself with --help.
"""


def run(arguments: Sequence[str]) -> int:
    """Serve until the client goes; the exit status."""
    try:
        parsed = parse(arguments, FLAGS, positionals=1)
    except UsageError as error:
        return _complain(str(error), "mcp-workbench --help lists everything")
    if parsed.wants_help:
        print(parsed.help(USAGE))
        return 0
    if parsed.is_bare("version"):
        print(f"mcp-workbench {__version__}")
        return 0
    from mcp_workbench.config.load import load
    from mcp_workbench.config.locate import locate

    try:
        path = locate(parsed.value("config"), parsed.positional(0), os.environ)
        config = load(path, os.environ)
    except ConfigError as error:
        return _complain(error.message, error.hint)
    return _serve(parsed, config)


def _serve(parsed: Parsed, config: object) -> int:
    from mcp_workbench.config.model import WorkbenchConfig
    from mcp_workbench.config.redact import Redactor
    from mcp_workbench.gateway import Gateway, Options
    from mcp_workbench.observe.log import set_up
    from mcp_workbench.run import run as run_loop

    assert isinstance(config, WorkbenchConfig)
    log_format = parsed.value("log-format") or "text"
    if log_format not in ("text", "json"):
        return _complain(f"--log-format is text or json, not `{log_format}`")
    try:
        set_up(
            debug=parsed.has("debug"),
            file=parsed.value("log-file"),
            format="json" if log_format == "json" else "text",
            redactor=Redactor(config.secrets),
        )
    except OSError as error:
        return _complain(f"log file `{parsed.value('log-file')}` cannot be opened: {error.strerror}")
    options = Options(
        name=parsed.value("name") or "mcp-workbench",
        version=parsed.value("version") or __version__,
        use_cache=not parsed.has("no-cache"),
    )
    run_loop(Gateway(config, options).serve_stdio())
    return 0


def _complain(message: str, hint: str | None = None) -> int:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)
    return 2
