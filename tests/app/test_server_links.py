"""How a server is started."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.app import server_links
from mcp_workbench.app.server_links import open_link
from mcp_workbench.engine.config.model import ServerConfig


def connection() -> Any:
    context = SimpleNamespace(environ={}, path="/c.json", folder=None, max_message_bytes=1, redact_results=None)
    entry = SimpleNamespace(context=context, toolbox="box", name="s")
    return SimpleNamespace(entry=entry, principal="local", traffic=SimpleNamespace(), sandbox=None)


def means() -> Any:
    redactor = SimpleNamespace(text=str, has_news=lambda: False)
    processes = SimpleNamespace(is_prepared=True, prepare=lambda: None, mark=lambda: "mark/1;", strays=lambda mark: [])
    return SimpleNamespace(batch=object(), processes=processes, redactor=redactor)


async def test_a_disk_that_does_not_answer_holds_up_its_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network drive: looking at the folders of a sandbox takes forever."""
    answers, looked, abandoned = threading.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def sandbox_of(*args: object) -> Any:
        loop.call_soon_threadsafe(looked.set)
        answers.wait()
        return SimpleNamespace(folder=None, image=None)

    monkeypatch.setattr(server_links, "sandbox_of", sandbox_of)
    launch = SimpleNamespace(abandon=abandoned.set)
    monkeypatch.setattr(server_links, "enforce", lambda *args: SimpleNamespace(launch=launch))
    monkeypatch.setattr(server_links, "spawn", lambda *args, **named: pytest.fail("it was started"))
    config = ServerConfig(name="s", command="/bin/cat")
    starting = asyncio.ensure_future(open_link(means(), connection(), config, SimpleNamespace()))
    # The loop still runs.
    await looked.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    answers.set()
    await abandoned.wait()
