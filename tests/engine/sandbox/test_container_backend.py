"""What an engine is told to mount, and what is left when the server has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox import machine
from mcp_workbench.engine.sandbox.container_engine import ContainerEngine
from mcp_workbench.engine.sandbox.sandbox import Capabilities
from mcp_workbench.engine.sandbox.server_sandbox import Owner, enforce, sandbox_of

pytestmark = pytest.mark.processes


def test_placeholders_of_trusted_files_exist_read_only_and_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ContainerEngine("podman", "/bin/true")
    here = Capabilities(engine=lambda name: engine)
    for module in ("machine", "server_sandbox"):
        monkeypatch.setattr(f"mcp_workbench.engine.sandbox.{module}.capabilities", lambda: here)
    assert machine.capabilities() is here
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path.resolve() / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".git" / "config").write_text("[core]\n")
    sandbox = SandboxConfig(image="docker.io/library/x:1", write=(str(work),))
    config = ServerConfig(name="s", command="x", sandbox=sandbox)
    launch = enforce(sandbox_of(config, {"HOME": str(tmp_path)}, None, Owner("/c.json", "box"))).launch
    names = (".vscode", ".claude", ".git/hooks", ".git/commondir", ".git/config")
    try:
        mounts = [word for word in launch.wrapper if word.startswith("type=bind") and word.endswith(",readonly")]
        assert all(any(f"target={work}/{name}," in mount for mount in mounts) for name in names)
    finally:
        launch.abandon()
    assert [path.name for path in work.iterdir()] == [".git"] and len(list((work / ".git").iterdir())) == 1
