"""What a process does once for several gateways: each server gets what its own client refers to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.config.load import parse
from mcp_workbench.config.model import ServerContext
from mcp_workbench.config.redact import Redactor
from mcp_workbench.gateway import Gateway, Options
from mcp_workbench.runtime import Runtime

pytestmark = pytest.mark.processes

FILE = b"""{"mcpServers": {"server": {"command": "x", "env": {"T": "${cmd:printenv WHO}", "F": "${file:~/token}"}}}}"""


@pytest.mark.requirement("secrets.references")
async def test_secrets_are_fetched_in_the_environment_of_the_client(tmp_path: Path) -> None:
    runtime = Runtime(Redactor(()))
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
            found = await gateway.resolve(entry)
            seen[name] = found.env
            assert runtime.resolved(entry) == found
    assert seen == {name: {"T": name, "F": f"token of {name}"} for name in ("anna", "bert")}
    assert runtime.redactor.text("anna and token of bert") == "*** and ***"
