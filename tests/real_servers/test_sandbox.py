"""Package runners in sandboxes: they install into the private home of the server, and start from there offline."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox.machine import capabilities
from tests.cli import shell
from tests.end_to_end.harness import Workbench, open_toolbox, unavailable
from tests.support.client import Json
from tests.support.packages import Unavailable, python_packages

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        capabilities().landlock_abi < 6 or not capabilities().has_filters, reason="needs Landlock ABI 6 and seccomp"
    ),
]


def with_npx() -> Json:
    if shutil.which("npx") is None:
        pytest.skip("needs Node with npm and npx")
    return {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything@2026.8.31"]}


def with_uvx() -> Json:
    try:
        programs = python_packages(("uv==0.13.7",))
    except Unavailable as reason:
        pytest.skip(str(reason))
    return {"command": str(programs / "uvx"), "args": ["mcp-server-time==2026.10.19"]}


PROFILES: dict[str, Json] = {
    "guard": {"profile": "guard"},
    "contained": {"profile": "contained"},
    "sealed": {"profile": "sealed"},
    "contained by bwrap": {"profile": "contained", "backend": "bwrap"},
    "sealed by bwrap": {"profile": "sealed", "backend": "bwrap"},
}
RUNNERS = {
    "npx": (with_npx, "echo", {"message": "hi"}, "hi"),
    "uvx": (with_uvx, "get_current_time", {"timezone": "UTC"}, "UTC"),
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_tool_of_a_package_can_be_called_cold_and_warm(
    profile: str, runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = PROFILES[profile]
    if "bwrap" in profile and (trouble := capabilities().why_no_bwrap()) is not None:
        pytest.skip(f"needs bwrap to work: {trouble}")
    described, tool, arguments, expected = RUNNERS[runner]
    # Of the user in `guard`, and of the server otherwise: nothing is there yet.
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    inherited = sorted(os.environ.keys() & {"UV_INDEX_URL"})
    entry = {**described(), "startupTimeout": 300, "timeout": 300, "inheritEnv": inherited, "sandbox": sandbox}
    workbench, box = Workbench(tmp_path), {"box": {"s": entry}}
    if sandbox["profile"] == "sealed":
        # Without its packages it cannot start, and says what to do.
        async with workbench.serving(box) as client:
            (found,) = unavailable(await open_toolbox(client, "box")).values()
            assert "mcp-workbench doctor --sandbox prepare box/s" in str(found)
        config = tmp_path / "workbench-config.json"
        with monkeypatch.context() as patient:
            patient.setattr(shell, "TIMEOUT", 300)
            done = shell.run("doctor", "--sandbox", "prepare", "box/s", "--config", config)
        assert done.status == 0, done.stderr
    for temperature in ("cold", "warm"):
        async with workbench.serving(box, "--no-cache") as client:
            result = await client.use_tool("box", "s", tool, arguments)
            assert not result.get("isError") and expected in result["content"][0]["text"], (temperature, result)
