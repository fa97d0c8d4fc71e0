"""Following the configuration: watched, reloaded when it has changed, applied as a difference.

Owns when a changed file counts, and what happens if it cannot be used: the previous configuration remains. Knows
nothing about what a difference does to servers and clients (`Gateway.apply`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.config.load import has_changed
from mcp_workbench.engine.config.problems import ConfigProblems, in_one_line
from mcp_workbench.engine.file_watch import FileWatch, Fingerprint, Watched, fingerprint
from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    from mcp_workbench.app.gateway import Gateway
    from mcp_workbench.engine.catalog.replacement import Changes, Difference
    from mcp_workbench.engine.config.choose import ChosenConfig, ConfigSource

log = logging.getLogger(__name__)

# Reading takes milliseconds. A disk that does not answer must not block a reload forever.
RELOAD_READ_TIMEOUT: Final = 10.0
# How many names fit into a log line.
MAX_LOGGED_NAMES: Final = 5


class LiveConfig:
    """Keeps one gateway up to date with its file."""

    def __init__(
        self,
        gateway: Gateway,
        source: ConfigSource,
        watch: FileWatch,
        reported: dict[str, str] | None = None,
    ) -> None:
        """`reported`: the last reported problem of each file. Shared by gateways of the same file."""
        self._gateway = gateway
        self._reported = {} if reported is None else reported
        # Accesses the disk, so it is called in a thread.
        self._source = source
        self._watch = watch
        self._watched: Watched | None = None
        self._is_started = False
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Start watching, also noticing changes made since the configuration was read."""
        self._is_started = True
        before = self._watched
        files, known = await aside(self._look)
        # A later call may have been faster.
        if not self._is_closed and self._watched is before:
            # Only now: if the disk does not answer, the previous files remain watched.
            self._stop_watching()
            self._watched = Watched(files, known, self._on_changed)
            self._watch.add(self._watched)

    def _look(self) -> tuple[Sequence[str], Fingerprint | None]:
        files = self._files()
        known = fingerprint(files)
        oversight = self._gateway.gate.oversight
        is_outdated = has_changed(self._gateway.config) or (oversight is not None and oversight.has_lock_changed())
        return files, None if is_outdated else known

    def _files(self) -> list[str]:
        config = self._gateway.config
        lock = [config.lock_path] if config.lock is not None else []
        return [
            *self._source.files(),
            *lock,
            *dict.fromkeys(file for _, server in config.servers() for file in server.env_files),
        ]

    def close(self) -> None:
        """Stop watching."""
        self._is_closed = True
        self._stop_watching()

    def _stop_watching(self) -> None:
        if self._watched is not None:
            self._watch.discard(self._watched)
            self._watched = None

    def _on_changed(self, seen: Fingerprint) -> None:
        # Called from the watching thread. The loop may have been closed meanwhile.
        try:
            self._loop.call_soon_threadsafe(self._reload_soon, seen)
        except RuntimeError:
            self._watch.close()

    def _reload_soon(self, seen: Fingerprint) -> None:
        if self._watched is not None:
            _ = self._gateway.runtime.start_task(self.reload(seen))

    async def reload(self, seen: Fingerprint | None = None) -> None:
        """Reload the configuration and apply it. `seen`: the fingerprint of its files when they had settled."""
        async with self._lock:
            try:
                async with asyncio.timeout(RELOAD_READ_TIMEOUT):
                    chosen, after = await aside(self._read)
            except TimeoutError:
                problem = f"the configuration could not be read within {RELOAD_READ_TIMEOUT:.0f} s"
                self._reject(problem, problem)
                return
            except ConfigError as error:
                problems = in_one_line(error.problems) if isinstance(error, ConfigProblems) else error.message
                self._reject(error.message if error.hint is None else f"{error.message}\nhint: {error.hint}", problems)
                return
            if self._is_closed:
                # The gateway has been closed meanwhile.
                return
            if seen is not None and after != seen:
                # It changed while it was read. The watch reports again when it has settled.
                return
            if chosen.warning is not None and chosen.config.path != self._gateway.config.path:
                # Another file would replace one that cannot be used in its current state.
                self._reject(chosen.warning, chosen.warning.partition("\n")[0])
                return
            try:
                difference = await self._gateway.apply(chosen.config)
            except ConfigError as error:
                # What the file requires is not available, such as an audit on a missing disk.
                self._reject(
                    error.message if error.hint is None else f"{error.message}\nhint: {error.hint}", error.message
                )
                return
            self._reported.pop(self._gateway.config.path, None)
            if difference is None:
                return
            if difference:
                about = {"reason": summary(difference), "config": chosen.config.path}
                self._gateway.gate.record("configuration", decision="applied", **about)
            await self._follow()
            if difference:
                log.info("now using the configuration `%s`: %s", chosen.config.path, summary(difference))

    async def _follow(self) -> None:
        """Watch the files of the new configuration, which may be different."""
        try:
            async with asyncio.timeout(RELOAD_READ_TIMEOUT):
                files = await aside(self._files)
                if self._is_started and (self._watched is None or tuple(files) != self._watched.files):
                    await self.start()
        except TimeoutError:
            log.warning("changes to `%s` may go unnoticed: the disk does not respond", self._gateway.config.path)

    def _read(self) -> tuple[ChosenConfig, Fingerprint]:
        chosen = self._source.choose()
        self._gateway.catalog.look_up_programs(chosen.config)
        return chosen, fingerprint(self._watched.files if self._watched is not None else ())

    def _reject(self, problem: str, in_short: str) -> None:
        path = self._gateway.config.path
        if problem not in (self._gateway.reloads.rejected, self._reported.get(path)):
            self._reported[path] = problem
            log.error("the changed configuration is invalid; the previous one stays in effect\n%s", problem)
        self._gateway.reject(problem, in_short)


def summary(difference: Difference) -> str:
    """What has changed, in one line."""
    settings = f"settings: {', '.join(difference.settings)}" if difference.settings else ""
    parts = [_changes("toolboxes", difference.toolboxes), _changes("servers", difference.servers), settings]
    return "; ".join(filter(None, parts))


def _changes(what: str, changes: Changes[str] | Changes[tuple[str, str]]) -> str:
    said = []
    for how in ("added", "removed", "changed", "adjusted"):
        names = [name if isinstance(name, str) else "/".join(name) for name in getattr(changes, how)]
        if names:
            more = f" and {len(names) - MAX_LOGGED_NAMES} more" if len(names) > MAX_LOGGED_NAMES else ""
            said.append(f"{how} {', '.join(names[:MAX_LOGGED_NAMES])}{more}")
    return f"{what} {', '.join(said)}" if said else ""
