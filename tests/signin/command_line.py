"""The commands for people, run as processes of a user whose folder is the test's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp_workbench.signin.store import SignInRecord, TokenStore
from tests.signin.authority import Authority

# Opens every address at once, as a browser whose user agrees.
BROWSER = f"{sys.executable} -m conformance.browser %s"
NO_BROWSER_HERE = "/nonexistent/browser"
SECONDS = 60.0


class CommandLine:
    """One server, `files`, in one configuration."""

    def __init__(
        self, folder: Path, authority: Authority, *, file: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        """`file`: settings of the file; the others are the server's."""
        self.config = folder / "workbench-config.json"
        toolbox = {"description": "Files", "mcpServers": {"files": {"url": authority.url, **settings}}}
        self.config.write_text(json.dumps({"toolboxes": {"box": toolbox}, **(file or {})}))
        self.store = TokenStore(str(folder / "mcp-workbench" / "sign-ins"))
        self._authority = authority
        self.environment = {**os.environ, "XDG_DATA_HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "250"}

    @property
    def record(self) -> SignInRecord:
        (found,) = self.store.read().records
        return found

    async def run(self, *arguments: str, browser: str = BROWSER) -> tuple[int, str, str]:
        """Its exit status, what it printed and what it said beside."""
        async with self.started(*arguments, browser=browser) as process, asyncio.timeout(SECONDS):
            out, said = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), said.decode()

    @contextlib.asynccontextmanager
    async def started(self, *arguments: str, browser: str = BROWSER) -> AsyncIterator[asyncio.subprocess.Process]:
        """The command, under way."""
        flags = () if arguments[0] in ("auth", "status") else ("--config", str(self.config))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcp_workbench", *arguments, *flags),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**self.environment, "BROWSER": browser},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
