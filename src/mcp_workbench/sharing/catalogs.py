"""The gateways of the shared workbench: one for each client context, on the single runtime of the process.

Clients with the same file, folder, environment and options have one gateway. Different gateways still share servers
that are equal for both (`engine/catalog/registry.py`). An unused gateway stays for a while, because most clients that
leave come back, and commands come and go with each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.app.live import LiveConfig
from mcp_workbench.app.runtime import Runtime
from mcp_workbench.engine.config.model import ServerContext
from mcp_workbench.engine.file_watch import FileWatch
from mcp_workbench.sharing.client import ClientContext

# As long as a server runs that nobody has open: until then its process is there for clients that come back.
UNUSED_GATEWAY_LIFETIME: Final = 600.0
# Unused gateways. A person works in a few folders; a script that goes through hundreds must not fill the memory.
MAX_UNUSED_GATEWAYS: Final = 16
# The same while there is another for the same file and folder, which only has other variables: for a command between
# two calls, but not for the client of a session that is over, whose variables nobody will have again.
UNUSED_COPY_LIFETIME: Final = 30.0


# The environment is the last part.
ClientKey = tuple[object, ...]


class ServedCatalog:
    """A gateway, and how many clients use it."""

    def __init__(self, gateway: Gateway, live: LiveConfig) -> None:
        self.gateway = gateway
        self.live = live
        # Done when it may be used; an exception if it cannot be.
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.users = 0
        self.timer: asyncio.TimerHandle | None = None


class Catalogs:
    """All gateways that are in use, or were recently."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.unused_seconds = UNUSED_GATEWAY_LIFETIME
        self.unused_copy_seconds = UNUSED_COPY_LIFETIME
        # Watches the files of all configurations, and whatever else the workbench depends on.
        self.watch = FileWatch()
        self._served: dict[ClientKey, ServedCatalog] = {}
        # The one that stays without clients.
        self._kept: ClientKey | None = None
        # Problems of files, which are logged once, however many clients use them.
        self._reported: dict[str, str] = {}

    @property
    def gateways(self) -> list[Gateway]:
        """All gateways that have been opened, those that clients use first."""
        opened = [served for served in self._served.values() if served.opened.done()]
        return [served.gateway for served in sorted(opened, key=lambda each: not each.users)]

    def rejected(self) -> list[str]:
        """What is wrong with changed files that somebody uses. One whose clients have left is nobody's to correct."""
        used = [each.gateway for key, each in self._served.items() if each.users or key == self._kept]
        return sorted({each.reloads.rejected for each in used if each.reloads.rejected})

    @asynccontextmanager
    async def serving(self, context: ClientContext) -> AsyncIterator[Gateway]:
        """Provide the gateway for a client with this context, while the client is connected. Raises `ConfigError`."""
        key = _key(context)
        served = self._served.get(key)
        if served is None:
            served = self._served[key] = self._make(context)
            self._hurry_copies(key)
            _ = self.runtime.start_task(self._open(key, served))
        elif served.timer is not None:
            served.timer.cancel()
            served.timer = None
        served.users += 1
        try:
            # One of several waiting clients may disconnect; the others keep waiting.
            await asyncio.shield(served.opened)
            yield served.gateway
        finally:
            served.users -= 1
            if not served.users and self._served.get(key) is served and key != self._kept:
                self._keep_a_while(key, served)

    async def keep(self, context: ClientContext) -> None:
        """Have the gateway for this context, with or without clients, instead of the one kept before. Raises
        `ConfigError`."""
        async with self.serving(context):
            before, self._kept = self._kept, _key(context)
        if before is not None and before != self._kept and not self._served[before].users:
            self._keep_a_while(before, self._served[before])

    async def reload(self) -> list[str]:
        """Reread every configuration in use. Returns what is wrong with those that cannot be used."""
        await asyncio.gather(*(served.live.reload() for served in list(self._served.values()) if served.opened.done()))
        return self.rejected()

    async def read_manifests(self) -> None:
        """Read the cached manifests of all servers."""
        await asyncio.gather(*(gateway.lists.load(gateway.catalog.entries()) for gateway in self.gateways))

    def close(self) -> None:
        """Stop watching configurations."""
        self.watch.close()
        for served in self._served.values():
            if served.timer is not None:
                served.timer.cancel()

    async def stop_recording(self) -> None:
        """Write the last lines of audit logs, after every call has ended."""
        overseen = [each.gate.oversight for each in self.gateways if each.gate.oversight is not None]
        for oversight in overseen:
            oversight.stop_recording()
        await asyncio.gather(*(oversight.wait_recorded() for oversight in overseen))

    def _make(self, context: ClientContext) -> ServedCatalog:
        where = ServerContext(environ=context.environ, folder=context.folder, programs=context.programs)
        gateway = Gateway(context.config, context.options, runtime=self.runtime, context=where)
        gateway.serve_at("stdio")
        return ServedCatalog(gateway, LiveConfig(gateway, context.source, self.watch, self._reported))

    async def _open(self, key: ClientKey, served: ServedCatalog) -> None:
        try:
            await served.gateway.open()
        except BaseException as error:
            # It has already registered its servers and secrets.
            del self._served[key]
            served.gateway.close()
            if not isinstance(error, Exception):
                served.opened.cancel()
                raise
            served.opened.set_exception(error)
            # Its waiting clients may be gone, so mark the exception as retrieved.
            served.opened.exception()
        else:
            served.opened.set_result(None)
            await served.live.start()

    def _keep_a_while(self, key: ClientKey, served: ServedCatalog) -> None:
        is_copy = any(_is_copy(key, other) for other in self._served)
        seconds = min(self.unused_seconds, self.unused_copy_seconds) if is_copy else self.unused_seconds
        served.timer = asyncio.get_running_loop().call_later(seconds, self._drop, key)
        # Moved to the end, so that the one unused for longest comes first.
        self._served[key] = self._served.pop(key)
        unused = [
            each
            for each, other in self._served.items()
            if not other.users and other.opened.done() and each != self._kept
        ]
        for each in unused[:-MAX_UNUSED_GATEWAYS]:
            self._drop(each)

    def _hurry_copies(self, key: ClientKey) -> None:
        """Keep unused copies of this gateway only for a moment longer."""
        loop = asyncio.get_running_loop()
        for other, served in self._served.items():
            if served.timer is not None and _is_copy(key, other):
                if served.timer.when() <= loop.time() + self.unused_copy_seconds:
                    continue
                served.timer.cancel()
                served.timer = loop.call_later(self.unused_copy_seconds, self._drop, other)

    def _drop(self, key: ClientKey) -> None:
        """Drop a gateway, with all servers that no other gateway uses."""
        served = self._served.pop(key)
        if served.timer is not None:
            served.timer.cancel()
        served.live.close()
        served.gateway.close()


def _is_copy(key: ClientKey, other: ClientKey) -> bool:
    """Whether they differ in variables alone."""
    return key != other and key[:-1] == other[:-1]


def _key(context: ClientContext) -> ClientKey:
    """Return a key that is equal for clients that are served alike, however their configuration changes. The whole
    environment counts: a future version of the file may refer to any variable."""
    source, environ = context.source, frozenset(context.environ.items())
    return context.config.path, context.folder, context.options, source.option, source.argument, environ
