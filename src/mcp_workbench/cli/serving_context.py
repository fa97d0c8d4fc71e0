"""What the shared workbench serves a client with: what `serve` would use in the client's place, from its hello."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from mcp_workbench.cli.flags import UsageError
from mcp_workbench.cli.serve import SERVE, options_of
from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.config.choose import ChosenConfig, ConfigSource
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.problems import ConfigProblems
from mcp_workbench.engine.config.program_paths import ProgramPaths
from mcp_workbench.engine.process_context import WITHIN
from mcp_workbench.errors import ConfigError
from mcp_workbench.sharing.client import ClientContext
from mcp_workbench.sharing.front.line_protocol import ALONE
from mcp_workbench.sharing.hello import Hello
from mcp_workbench.sharing.workbench import Refused

# Files whose last valid content is remembered. A person has a few; a script that goes through hundreds of folders must
# not fill the memory.
MAX_FILES_REMEMBERED: Final = 32


class Contexts:
    """Reads what clients are served with, and remembers the last valid content of each file: a mistake in a file that
    is being edited must not keep new clients away while others are served."""

    def __init__(self) -> None:
        # By path, with the time of its last modification then. Not as values, which may hold a client's secrets.
        self._valid: dict[str, tuple[bytes, int]] = {}

    async def of(self, hello: Hello) -> ClientContext:
        """Read the disk, without blocking other clients. Raises `Refused`: the front end reports the error, and serves
        on its own."""
        return await aside(lambda: _context_of(hello, self._choose))

    def _choose(self, source: ConfigSource) -> ChosenConfig:
        """Raises `ConfigError`."""
        try:
            choice = source.choose()
        except ConfigProblems as error:
            return self._last_valid(error, source)
        config = choice.config
        # As the newest.
        self._valid.pop(config.path, None)
        self._valid[config.path] = choice.content, config.modified_at
        if len(self._valid) > MAX_FILES_REMEMBERED:
            self._valid.pop(next(iter(self._valid)), None)
        return choice

    def _last_valid(self, error: ConfigProblems, source: ConfigSource) -> ChosenConfig:
        path = os.path.abspath(error.path)
        if path not in self._valid:
            raise error
        content, modified_at = self._valid[path]
        try:
            # Again, because this client may have other variables.
            config = parse(content, path, source.environ)
        except ConfigProblems:
            raise error from None
        warning = f"{error.first_line}\nuntil it is corrected, the last valid version of this file is used"
        # With the time of what was read, so that the correction is noticed.
        return ChosenConfig(replace(config, modified_at=modified_at), warning)


def _context_of(hello: Hello, choose: Callable[[ConfigSource], ChosenConfig]) -> ClientContext:
    try:
        parsed = SERVE.parse(hello.arguments)
        options = options_of(parsed)
        option, argument = (_from(hello.folder, path) for path in (parsed.value("config"), parsed.positional(0)))
        # The variables and the folder of the client, not ours, so that `${VAR}` and relative paths mean what they would
        # mean there.
        source = ConfigSource(option, argument, hello.environ, hello.folder)
        choice = choose(source)
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
    programs = ProgramPaths(hello.environ, hello.folder)
    programs.look_up(server.command for _, server in config.servers())
    return ClientContext(
        config=config,
        source=source,
        options=options,
        folder=hello.folder,
        environ=hello.environ,
        programs=programs,
        notes=tuple(notes),
    )


def _from(folder: str, path: str | None) -> str | None:
    """Resolve a path in the client's folder."""
    if path is None or path.startswith("~"):
        return path
    return os.path.join(folder, path)
