"""A user in these tests: a folder of their own, the command line, workbenches that serve them, and a browser."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from mcp_workbench.signin.store import SignInRecord, TokenStore
from tests.real_authorities.browser import visit
from tests.real_authorities.servers import environment
from tests.support.client import Json, RawClient
from tests.support.workbench import workbench_command, write_config

# A sign-in starts a browser and two programs.
COMMAND_SECONDS = 90.0


class User:
    """One server, `greeter`, in one configuration."""

    def __init__(self, folder: Path, url: str, **settings: object) -> None:
        self.folder = folder
        self.url = url
        self.config = write_config(folder, {"box": {"greeter": {"url": url, **settings}}})
        self.environment = environment(folder)
        self.store = TokenStore(str(folder / "mcp-workbench" / "sign-ins"))

    async def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """A command: its exit status, what it printed, and what it said."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcp_workbench", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self.environment, **environment},
        )
        async with asyncio.timeout(COMMAND_SECONDS):
            out, said = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), said.decode()

    async def log_in(self, *flags: str) -> str:
        """Sign in with the browser; what was printed."""
        status, out, said = await self.run("login", "greeter", "--config", str(self.config), *flags)
        assert status == 0, said
        return out

    @asynccontextmanager
    async def workbench(self, *, modern: bool = False) -> AsyncIterator[Workbench]:
        """One that serves this user over stdio."""
        command = workbench_command(self.config)
        async with RawClient.spawn(command, env=self.environment, modern=modern) as client:
            if not modern:
                await client.initialize()
            yield Workbench(client)

    @property
    def record(self) -> SignInRecord:
        (found,) = self.store.read().records
        return found

    async def change(self, change: Callable[[SignInRecord], SignInRecord]) -> None:
        changed = change(self.record)
        await self.store.change(lambda contents: contents.put(changed))

    async def expire(self) -> None:
        """The token at hand is over, as far as anybody here knows: the next call comes at that very moment."""
        await self.change(lambda record: replace(record, obtained_at=time.time() - 900, expires_at=time.time() - 1))


class Workbench:
    def __init__(self, client: RawClient) -> None:
        self.client = client

    async def greet(self) -> Json:
        return await self.client.use_tool("box", "greeter", "greet")

    async def said(self) -> str:
        """What a call says, whether it worked or not."""
        return said_in(await self.greet())


def said_in(result: Json) -> str:
    text = " ".join(block.get("text", "") for block in result["content"])
    return f"error: {text}" if result.get("isError") else text


async def open_page(url: str) -> str:
    """In a browser; what it showed last."""
    return await asyncio.to_thread(visit, url)
