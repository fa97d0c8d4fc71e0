"""Published servers of different kinds start, and list their tools, with what every server is denied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.harness import Workbench, open_toolbox, opened, unavailable
from tests.support.client import Json
from tests.support.packages import Unavailable, node_packages, python_packages
from tests.support.processes import available, descendants

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

NODE_PACKAGES = (
    "@brave/brave-search-mcp-server@2.1.4",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
    "@notionhq/notion-mcp-server@2.5.2",
    "@playwright/mcp@0.0.83",
    "@sentry/mcp-server@0.36.0",
    "@upstash/context7-mcp@4.1.1",
    "chrome-devtools-mcp@1.11.0",
    "figma-developer-mcp@0.13.2",
    "tavily-mcp@0.2.22",
)
PYTHON_PACKAGES = (
    "awslabs.aws-documentation-mcp-server==1.2.3",
    "duckduckgo-mcp-server==0.7.0",
    "mcp-server-fetch==2026.10.24",
    "mcp-server-git==2026.10.19",
    "mcp-server-time==2026.10.19",
    "wikipedia-mcp==2.0.1",
)
# These fail at import with the SDK's second version.
OLDER_PYTHON_PACKAGES = (
    "arxiv-mcp-server==0.8.2",
    "mcp==1.30.0",
    "mcp-server-calculator==0.2.1",
    "mcp-server-sqlite==2025.4.25",
    "mcp-shell-server==1.1.14",
)


def entry(programs: Path, name: str, *arguments: object, **env: str) -> Json:
    # All start at once, on a machine that may be busy.
    return {"command": str(programs / name), "args": list(map(str, arguments)), "env": env, "startupTimeout": 180}


def of_npm(programs: Path, folder: Path) -> dict[str, Json]:
    return {
        "brave": entry(programs, "brave-search-mcp-server", "--transport", "stdio", BRAVE_API_KEY="none"),
        "chrome": entry(programs, "chrome-devtools-mcp", "--headless"),
        "context7": entry(programs, "context7-mcp"),
        "everything": entry(programs, "mcp-server-everything"),
        "figma": entry(programs, "figma-developer-mcp", "--stdio", "--figma-api-key=none"),
        "filesystem": entry(programs, "mcp-server-filesystem", folder),
        "memory": entry(programs, "mcp-server-memory", MEMORY_FILE_PATH=str(folder / "memory.json")),
        "notion": entry(programs, "notion-mcp-server", NOTION_TOKEN="none"),
        "playwright": entry(programs, "playwright-mcp", "--headless"),
        "sentry": entry(programs, "sentry-mcp", "--access-token=none"),
        "tavily": entry(programs, "tavily-mcp", TAVILY_API_KEY="none"),
        "thinking": entry(programs, "mcp-server-sequential-thinking"),
    }


def of_pypi(programs: Path, folder: Path) -> dict[str, Json]:
    return {
        "aws": entry(programs, "awslabs.aws-documentation-mcp-server"),
        "duckduckgo": entry(programs, "duckduckgo-mcp-server"),
        "fetch": entry(programs, "mcp-server-fetch"),
        "git": entry(programs, "mcp-server-git"),
        "time": entry(programs, "mcp-server-time"),
        "wikipedia": entry(programs, "wikipedia-mcp"),
    }


def of_pypi_with_the_older_sdk(programs: Path, folder: Path) -> dict[str, Json]:
    return {
        "arxiv": entry(programs, "arxiv-mcp-server", "--storage-path", folder / "papers"),
        "calculator": entry(programs, "mcp-server-calculator"),
        "shell": entry(programs, "mcp-shell-server", ALLOW_COMMANDS="ls,cat"),
        "sqlite": entry(programs, "mcp-server-sqlite", "--db-path", folder / "data.db"),
    }


def node_programs() -> Path:
    return node_packages(NODE_PACKAGES) / "node_modules" / ".bin"


@pytest.mark.requirement("servers.published")
@pytest.mark.parametrize("profile", [None, "contained", "sealed"], ids=["guard", "contained", "sealed"])
@pytest.mark.parametrize(
    ("install", "servers"),
    [
        pytest.param(node_programs, of_npm, marks=pytest.mark.node),
        (lambda: python_packages(PYTHON_PACKAGES), of_pypi),
        (lambda: python_packages(OLDER_PYTHON_PACKAGES), of_pypi_with_the_older_sdk),
    ],
    ids=["npm", "PyPI", "PyPI-older"],
)
async def test_published_servers_start_in_a_sandbox(
    tmp_path: Path,
    install: Callable[[], Path],
    servers: Callable[[Path, Path], dict[str, Json]],
    profile: str | None,
) -> None:
    try:
        programs = install()
    except Unavailable as reason:
        pytest.skip(str(reason))
    # Not in the home folder, where a file that does not exist yet cannot be granted.
    work = tmp_path / "work"
    work.mkdir()
    box = servers(programs, work)
    if profile is not None:
        box = {name: {**each, "sandbox": profile} for name, each in box.items()}
    async with Workbench(tmp_path).serving({"box": box}) as client:
        result = await open_toolbox(client, "box")
        assert unavailable(result) == {}
        assert {tool["source_server"] for tool in opened(result)["tools"]} == box.keys()
        if available():
            marked = [pid for pid in descendants(client.pid) if has_no_new_privileges(pid)]
            assert len(marked) >= len(box)


def has_no_new_privileges(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "NoNewPrivs:\t1" in status
