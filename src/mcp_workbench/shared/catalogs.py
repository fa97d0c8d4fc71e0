"""What clients of the shared workbench are served by: a gateway for each, on the one runtime of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from mcp_workbench.config.model import ServerContext
from mcp_workbench.file_watch import FileWatch
from mcp_workbench.gateway import Gateway
from mcp_workbench.live import LiveConfig
from mcp_workbench.runtime import Runtime
from mcp_workbench.shared.client import ClientContext


class Catalogs:
    """All gateways that are in use."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.gateways: list[Gateway] = []
        self._watch = FileWatch()
        self._live: dict[Gateway, LiveConfig] = {}

    @contextmanager
    def serving(self, context: ClientContext) -> Iterator[Gateway]:
        """The gateway for a client with this context, for as long as the client is there."""
        where = ServerContext(environ=context.environ, folder=context.folder)
        gateway = Gateway(context.config, context.options, runtime=self.runtime, context=where)
        gateway.serving = "shared"
        gateway.open()
        self.gateways.append(gateway)
        live = self._live[gateway] = LiveConfig(gateway, context.source, self._watch)
        _ = self.runtime.start_task(live.start())
        try:
            yield gateway
        finally:
            del self._live[gateway]
            live.close()
            self.gateways.remove(gateway)
            gateway.close()

    async def reload(self) -> list[str]:
        """Read every configuration again that somebody uses; what is wrong with those that cannot be used."""
        await asyncio.gather(*(live.reload() for live in list(self._live.values())))
        return sorted({gateway.rejected for gateway in self.gateways if gateway.rejected is not None})

    def close(self) -> None:
        """Changes of configurations are of no interest any more."""
        self._watch.close()
