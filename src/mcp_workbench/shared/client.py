"""One client of the shared workbench: from its hello to its end."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mcp_workbench.config.choose import ConfigSource
from mcp_workbench.config.model import WorkbenchConfig
from mcp_workbench.errors import DownstreamError
from mcp_workbench.gateway import Gateway, Options
from mcp_workbench.serving import FLUSH_SECONDS, LOCAL_PRINCIPAL, STDIO_DRAIN_SECONDS, UNFINISHED, wait_until
from mcp_workbench.shared.hello import Hello
from mcp_workbench.shared.link import FrontEndLink

if TYPE_CHECKING:
    from mcp_workbench.session.session import Session

log = logging.getLogger(__name__)

# What a front end is told to do when we are gone.
COME_AGAIN: Final = b"bye again"
SERVE_ALONE: Final = b"bye down"


class ClientContext(Struct, frozen=True, kw_only=True):
    """What a client is served with: everything that it would have if it were alone."""

    config: WorkbenchConfig
    # To follow its changes.
    source: ConfigSource
    options: Options
    folder: str
    environ: dict[str, str]
    # What its user should know, on the stderr of the front end.
    notes: tuple[str, ...] = ()


class SharedClient:
    """A client that was accepted. Owns both copies of its descriptor."""

    def __init__(self, hello: Hello, context: ClientContext, gateway: Gateway, descriptor: int) -> None:
        self.hello = hello
        self.context = context
        self.gateway = gateway
        self.session: Session | None = None
        self._descriptor = descriptor
        self._ended = asyncio.Event()
        self._reason = ""
        # What the front end is told at the end; empty where it is the client that goes.
        self.goodbye = b""

    async def serve(self, first: bytes, is_urgent: asyncio.Event) -> None:
        """Serve it until it goes or we do. `first` is what came after its hello."""
        gateway = self.gateway
        assert gateway.batch is not None
        link = FrontEndLink(gateway.batch, gateway.config.max_message_bytes, self._descriptor, os.dup(self._descriptor))
        session = self.session = gateway.make_session(link, LOCAL_PRINCIPAL, self._on_closed)
        try:
            link.start(session, first)
            await self._ended.wait()
            log.info("client of process %d leaves: %s", self.hello.pid, self._reason)
            session.is_draining = True
            link.stop_reading()
            await wait_until(lambda: not session.calls or is_urgent.is_set(), STDIO_DRAIN_SECONDS)
            session.end(DownstreamError(UNFINISHED))
            if self.goodbye:
                link.say(self.goodbye)
            await wait_until(lambda: not link.unsent_bytes or is_urgent.is_set(), FLUSH_SECONDS)
        finally:
            session.leave()
            link.close()

    def end(self, reason: str, goodbye: bytes) -> None:
        """We go; the front end is told what to do."""
        self.goodbye = goodbye
        self._on_closed(reason)

    def _on_closed(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._ended.set()
