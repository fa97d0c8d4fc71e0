"""What the shared workbench serves a client with: what `serve` would use in the client's place, from its hello."""

from __future__ import annotations

import os

from mcp_workbench.blocking_work import aside
from mcp_workbench.cli.flags import UsageError
from mcp_workbench.cli.serve import SERVE, options_of
from mcp_workbench.config.choose import ConfigSource
from mcp_workbench.errors import ConfigError
from mcp_workbench.front.line_protocol import ALONE
from mcp_workbench.process_context import WITHIN
from mcp_workbench.shared.client import ClientContext
from mcp_workbench.shared.hello import Hello
from mcp_workbench.shared.workbench import Refused


async def context_of(hello: Hello) -> ClientContext:
    """Read the disk, without blocking other clients. Raises `Refused`: the front end reports the error, and serves on
    its own."""
    return await aside(lambda: _context_of(hello))


def _context_of(hello: Hello) -> ClientContext:
    try:
        parsed = SERVE.parse(hello.arguments)
        options = options_of(parsed)
        option, argument = (_from(hello.folder, path) for path in (parsed.value("config"), parsed.positional(0)))
        # The variables and the folder of the client, not ours, so that `${VAR}` and relative paths mean what they would
        # mean there.
        source = ConfigSource(option, argument, hello.environ, hello.folder)
        choice = source.choose()
    except UsageError as error:
        raise Refused(ALONE, str(error)) from None
    except ConfigError as error:
        raise Refused(ALONE, error.message) from None
    config = choice.config
    if config.path in hello.environ.get(WITHIN, "").split(os.pathsep):
        raise Refused(ALONE, f"`{config.path}` is being served by the workbench that started this one")
    notes = [] if choice.warning is None else [choice.warning]
    ignored = [f"--{name}" for name in ("debug", "log-file", "log-format") if parsed.has(name)]
    if ignored:
        what = f"{', '.join(ignored)} {'has' if len(ignored) == 1 else 'have'} no effect"
        notes.append(
            f"{what}: the shared workbench has one log, which `mcp-workbench logs` prints; --private serves alone"
        )
    return ClientContext(
        config=config, source=source, options=options, folder=hello.folder, environ=hello.environ, notes=tuple(notes)
    )


def _from(folder: str, path: str | None) -> str | None:
    """Resolve a path in the client's folder."""
    if path is None or path.startswith("~"):
        return path
    return os.path.join(folder, path)
