"""`mcp-workbench` alone at a terminal: what is set up, what is running, and what to do next.

A client starts the same command without a terminal, and is served.
"""

from __future__ import annotations

import os

from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.server_copies import grouped
from mcp_workbench.engine.config.choose import CONFIG_FILE_NAME, CONFIG_VARIABLE, choose, own_file
from mcp_workbench.engine.config.problems import ConfigProblems
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.printable import one_line, plural
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.engine.version import full_version
from mcp_workbench.errors import ConfigError


def run() -> int:
    screen = stdout()
    screen.line(("mcp-workbench ", "strong"), f"{full_version()}, one MCP server in front of many")
    screen.blank()
    configuration, step = _configuration()
    running = [_about(status) for status in run_loop(running_workbenches())]
    if running and not step:
        step = "mcp-workbench status shows every server, mcp-workbench top watches them"
    if not step:
        step = "mcp-workbench install --all adds the workbench to your clients, mcp-workbench list shows what is in it"
    for text in (configuration, *(running or ["nothing is running"])):
        screen.line(one_line(text), indent=2)
    screen.blank()
    screen.line(("next: ", "name"), step)
    screen.line("mcp-workbench --help lists all commands")
    return 0


def _configuration() -> tuple[str, str]:
    """What is to be said about the configuration, and what to do about it, if anything."""
    if not os.environ.get(CONFIG_VARIABLE) and own_file() is None and not os.path.lexists(CONFIG_FILE_NAME):
        return "no configuration yet", "mcp-workbench init creates one from the servers that your clients have"
    try:
        config = choose(None, None, os.environ).config
    except ConfigProblems as error:
        return error.first_line, "mcp-workbench doctor, once this is corrected"
    except ConfigError as error:
        return error.message.partition("\n")[0], error.hint or "mcp-workbench doctor"
    boxes = len(config.toolboxes)
    toolboxes = f"{boxes} toolbox{'es' * (boxes != 1)}"
    return f"{config.path}: {toolboxes}, {plural(len(config.servers()), 'server')}", ""


def _about(status: dict[str, object]) -> str:
    servers = status["servers"]
    assert isinstance(servers, list)
    used = [each for each in grouped(servers) if each.is_used]
    failed = sum(bool(each.reasons(("backoff", "failed"))) for each in used)
    clients = status.get("clients")
    parts = [f"process {status['pid']}", str(status.get("serving") or "")]
    parts += [plural(len(clients), "client")] if isinstance(clients, list) else []
    parts += [f"{plural(len(used), 'server')} in use"]
    parts += [f"{failed} failed"] if failed else []
    return ", ".join(filter(None, parts))
