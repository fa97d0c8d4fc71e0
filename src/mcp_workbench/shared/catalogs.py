"""What clients of the shared workbench are served by: a gateway for each, on the one runtime of the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcp_workbench.config.model import ServerContext
from mcp_workbench.gateway import Gateway
from mcp_workbench.runtime import Runtime
from mcp_workbench.shared.client import ClientContext


class Catalogs:
    """All gateways that are in use."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.gateways: list[Gateway] = []

    @contextmanager
    def serving(self, context: ClientContext) -> Iterator[Gateway]:
        """The gateway for a client with this context, for as long as the client is there."""
        where = ServerContext(environ=context.environ, folder=context.folder)
        gateway = Gateway(context.config, context.options, runtime=self.runtime, context=where)
        gateway.serving = "shared"
        gateway.open()
        self.gateways.append(gateway)
        try:
            yield gateway
        finally:
            self.gateways.remove(gateway)
            gateway.close()
