"""Package runners in sandboxes: they install into the private home of the server, and start from there offline."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox.machine import capabilities
from tests.end_to_end.harness import Workbench, open_toolbox, opened, unavailable
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


@pytest.mark.parametrize("runner", [with_npx, with_uvx], ids=["npx", "uvx"])
async def test_a_package_runner_works_cold_then_warm_then_without_the_network(
    runner: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert callable(runner)
    entry: Json = {**runner(), "startupTimeout": 300, "inheritEnv": sorted(os.environ.keys() & {"UV_INDEX_URL"})}
    # Without its packages it cannot start, and says what to do.
    async with Workbench(tmp_path).serving({"box": {"s": {**entry, "sandbox": "sealed"}}}) as client:
        (found,) = unavailable(await open_toolbox(client, "box")).values()
        assert "mcp-workbench doctor --sandbox prepare box/s" in str(found)
    for profile in ("contained", "contained", "sealed", "guard"):
        box = {"s": {**entry, "sandbox": profile}}
        async with Workbench(tmp_path).serving({"box": box}, "--no-cache") as client:
            result = await open_toolbox(client, "box")
            assert unavailable(result) == {}, profile
            assert opened(result)["tools"], profile
