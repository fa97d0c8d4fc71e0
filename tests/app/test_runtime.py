"""What a process does once for several gateways: each server gets what its own client refers to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.app.runtime import ProcessOwner, Runtime
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.model import ServerContext
from mcp_workbench.engine.config.redact import Redactor

pytestmark = pytest.mark.processes

FILE = b"""{"mcpServers": {"server": {"command": "x", "env": {"T": "${cmd:printenv WHO}", "F": "${file:~/token}"}}}}"""


@pytest.mark.requirement("secrets.references")
async def test_secrets_are_fetched_in_the_environment_of_the_client(tmp_path: Path) -> None:
    runtime = Runtime(Redactor(()), ProcessOwner())
    seen = {}
    async with runtime.running():
        for name in ("anna", "bert"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "token").write_text(f"token of {name}")
            environ = {"PATH": os.environ["PATH"], "WHO": name, "HOME": str(tmp_path / name)}
            config = parse(FILE, str(tmp_path / "config.json"), environ)
            context = ServerContext(environ=environ)
            gateway = Gateway(config, Options(use_cache=False), runtime=runtime, context=context)
            (entry,) = gateway.catalog.entries()
            found = await gateway.runtime.resolve(entry)
            seen[name] = found.env
            assert runtime.resolved(entry) == found
    assert seen == {name: {"T": name, "F": f"token of {name}"} for name in ("anna", "bert")}
    assert runtime.redactor.text("anna and token of bert") == "*** and ***"


@pytest.mark.parametrize(
    ("error", "said", "has_traceback"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "an operation failed: no more files can be opened", False),
        (MemoryError(), "an operation failed: ", False),
        (ValueError("a defect"), "internal error; please report it", True),
    ],
)
async def test_a_failing_task_ends_alone_and_a_shortage_is_logged_in_one_line(
    caplog: pytest.LogCaptureFixture, error: Exception, said: str, has_traceback: bool
) -> None:
    """Summaries are worked out, and lists fetched, in tasks that nobody waits for."""

    async def work() -> None:
        raise error

    runtime = Runtime(Redactor(()), ProcessOwner())
    async with runtime.running():
        await runtime.start_task(work())
    (record,) = caplog.records
    assert record.getMessage().startswith(said) and (record.exc_info is not None) == has_traceback
