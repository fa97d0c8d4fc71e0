"""Commands as MCP clients: show what servers report while a request is in progress, and ask their questions.

Owns the display while a request is in progress; it is on stderr, and only on a terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from mcp_workbench.cli.elicitation import CAPABILITIES, TerminalAsker, can_ask
from mcp_workbench.cli.engine import Engine, LogMessage, Progress, ToolClient
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stderr
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.shared_engine import engine_for
from mcp_workbench.cli.unlisted_servers import Unlisted, alone, unlisted
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.printable import one_line

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_LOUD_LEVELS: Final = ("warning", "error", "critical", "alert", "emergency")


def engine_of(
    parsed: Parsed, *, takes_pairs: bool = True, only: str | None = None
) -> tuple[Engine, Redactor, Unlisted | None]:
    """Return the engine for the command line: for the servers of the configuration, for `only` one of them, or for an
    unlisted server."""
    named = unlisted(parsed, takes_pairs=takes_pairs)
    if named is None:
        return *configured_engine(parsed, only=only), None
    redactor = log_for(parsed, named.config)
    # Its key will not be asked for again, so nothing is cached.
    return _asking(Engine(named.config, use_cache=False, redactor=redactor)), redactor, named


def configured_engine(parsed: Parsed, *, only: str | None = None) -> tuple[Engine, Redactor]:
    """Return the engine for the servers of the configuration, whatever the positionals are."""
    if only is None:
        config = configuration(parsed)
        redactor = log_for(parsed, config)
        engine = engine_for(parsed, config, use_cache=not parsed.has("no-cache"), redactor=redactor, is_audited=True)
    else:
        config = alone(configuration(parsed), only)
        redactor = log_for(parsed, config)
        # The shared workbench would serve the whole file.
        engine = Engine(config, use_cache=not parsed.has("no-cache"), redactor=redactor, is_audited=True)
    return _asking(engine), redactor


def _asking(engine: Engine) -> Engine:
    if can_ask():
        engine.capabilities = CAPABILITIES
    return engine


@contextlib.asynccontextmanager
async def interactive_client(engine: Engine, where: str) -> AsyncIterator[ToolClient]:
    """A client of the workbench that shows progress and passes questions on to the user at the terminal."""
    client = engine.client()
    client.on_log = _report
    with LiveProgress(where) as live:
        client.on_progress = live.show
        client.on_question = TerminalAsker(where, live.paused).answer
        await client.initialize()
        yield client


def _report(message: LogMessage) -> None:
    if message.level in _LOUD_LEVELS:
        text = message.data if isinstance(message.data, str) else repr(message.data)
        remark("warning", f"the server says: {text}")


class LiveProgress:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> LiveProgress:
        screen = stderr()
        if screen.is_terminal:
            from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            described = TextColumn("{task.description}", markup=False)
            # No percentage: many servers send progress without a total.
            columns = (SpinnerColumn(), described, BarColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=screen.console, transient=True)
            self._task = self._bar.add_task(self._what, total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: Progress) -> None:
        if self._bar is not None and self._task is not None:
            what = f"{self._what}  {one_line(progress.message)}" if progress.message else self._what
            self._bar.update(self._task, completed=progress.progress, total=progress.total, description=what)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the display while the user types."""
        if self._bar is not None:
            self._bar.stop()
        yield
        # Not after an exception: it ends the command, and starting the bar would hide the cursor.
        if self._bar is not None:
            self._bar.start()
