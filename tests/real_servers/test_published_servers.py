"""Servers that people run, as they run them: through `npx` and from PyPI, opened, used, and gone afterwards."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import Workbench, error_text, open_toolbox, opened, unavailable
from tests.support.client import Json
from tests.support.processes import alive, command_line, descendants, eventually

pytestmark = [pytest.mark.network, pytest.mark.timeout(400)]

CAPABILITIES: Json = {"sampling": {}, "elicitation": {}, "roots": {}}
GONE_WITHIN = 2.0


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def npx(folder: Path, *arguments: object, **settings: Any) -> Json:
    return {"command": "npx", "args": ["--no", "--prefix", str(folder), *map(str, arguments)], **settings}


def node_toolbox(folder: Path, files: Path) -> dict[str, Json]:
    files.mkdir()
    return {
        "everything": npx(folder, "mcp-server-everything"),
        "files": npx(folder, "mcp-server-filesystem", files),
        "memory": npx(folder, "mcp-server-memory", env={"MEMORY_FILE_PATH": str(files.parent / "memory.json")}),
    }


def text_of(result: Json) -> str:
    assert not result.get("isError"), result
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.requirement("servers.published")
@pytest.mark.node
async def test_servers_behind_npx_are_opened_used_and_leave_nothing(workbench: Workbench, node_servers: Path) -> None:
    files = workbench.path("files")
    boxes = {"node": node_toolbox(node_servers, files)}
    async with workbench.serving(boxes, capabilities=CAPABILITIES) as client:
        result = await open_toolbox(client, "node")
        assert unavailable(result) == {}
        assert {tool["source_server"] for tool in opened(result)["tools"]} == {"everything", "files", "memory"}
        below = descendants(client.pid)
        assert sum("node" in command_line(pid) for pid in below) >= 3

        assert text_of(await client.use_tool("node", "everything", "echo", {"message": "é 事"})) == "Echo: é 事"
        assert "5" in text_of(await client.use_tool("node", "everything", "get-sum", {"a": 2, "b": 3}))
        image = await client.use_tool("node", "everything", "get-tiny-image")
        assert [block["type"] for block in image["content"]] == ["text", "image", "text"]
        weather = await client.use_tool("node", "everything", "get-structured-content", {"location": "New York"})
        assert weather["structuredContent"] == json.loads(text_of(weather))

        steps = {"duration": 1, "steps": 4}
        done = await client.use_tool(
            "node", "everything", "trigger-long-running-operation", steps, _meta={"progressToken": "p"}
        )
        assert "completed" in text_of(done)
        told = client.received("notifications/progress")
        assert [(params["progressToken"], params["progress"]) for params in told] == [("p", n) for n in (1, 2, 3, 4)]

        sampled = {"role": "assistant", "content": {"type": "text", "text": "sampled words"}, "model": "none"}
        client.handlers["sampling/createMessage"] = lambda params: sampled
        asked = {"prompt": "Say something", "maxTokens": 10}
        assert "sampled words" in text_of(
            await client.use_tool("node", "everything", "trigger-sampling-request", asked)
        )

        written = {"path": str(files / "note.txt"), "content": "Hello.\n"}
        text_of(await client.use_tool("node", "files", "write_file", written))
        assert (files / "note.txt").read_text() == "Hello.\n"
        assert "Hello." in text_of(await client.use_tool("node", "files", "read_text_file", {"path": written["path"]}))
        assert error_text(await client.use_tool("node", "files", "read_text_file", {"path": "/etc/passwd"}))

        entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
        text_of(await client.use_tool("node", "memory", "create_entities", {"entities": [entity]}))
        assert "Ada" in text_of(await client.use_tool("node", "memory", "read_graph"))

        client.close_stdin()
        assert await client.wait_exit() == 0
        assert [command_line(pid) for pid in below if alive(pid)] == []


SDK_READER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("reader")


@server.tool()
def read_text_file(path: str) -> str:
    return open(path).read()


@server.tool()
def read_list(path: str) -> list[dict[str, str | int]]:
    import json

    return json.load(open(path))


server.run()
"""


@pytest.mark.node
async def test_same_selection_gives_the_same_answer_from_every_server(workbench: Workbench, node_servers: Path) -> None:
    files = workbench.path("files")
    reader = workbench.path("reader.py")
    reader.write_text(SDK_READER)
    box = {
        "files": npx(node_servers, "mcp-server-filesystem", files),
        "sdk": {"command": sys.executable, "args": [str(reader)]},
    }
    files.mkdir()
    cities = files / "cities.json"
    cities.write_text(json.dumps([{"name": f"City {n}", "people": 1000 * n} for n in range(200)]))
    async with workbench.serving({"box": box}) as client:
        for server, tool in (("files", "read_text_file"), ("sdk", "read_text_file"), ("sdk", "read_list")):
            asked = {"tool": {"toolbox": "box", "server": server, "tool": tool}, "arguments": {"path": str(cities)}}
            start = text_of(await client.call_tool("use_tool", {**asked, "max_tokens": 300}))
            assert "Shape: 200 × {name: string, people: integer}" in start, server
            kept = re.search(r"workbench://results/[\w-]+", start)
            assert kept is not None
            for expression, expected in (
                ("[?people > `197000`].name", '["City 198","City 199"]'),
                ("length(@)", "200"),
            ):
                wanted = {"tool": kept[0], "arguments": {"select": expression}}
                assert text_of(await client.call_tool("use_tool", wanted)).splitlines()[1] == expected, server


@pytest.mark.node
async def test_servers_behind_npx_are_gone_soon_after_we_are_killed(workbench: Workbench, node_servers: Path) -> None:
    boxes = {"node": node_toolbox(node_servers, workbench.path("files"))}
    async with workbench.serving(boxes, expect_exit=False) as client:
        await open_toolbox(client, "node")
        below = descendants(client.pid)
        assert len(below) >= 7, "npx, a shell and node for each server, some of them replaced by the next"
        client.process.kill()
        await client.wait_exit()
        await eventually(lambda: not any(map(alive, below)), GONE_WITHIN, "the end of every server")


@pytest.mark.requirement("servers.published")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_servers_from_pypi_are_opened_and_used(workbench: Workbench, python_servers: Path, era: str) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    repository = workbench.path("repository")
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "file.txt").write_text("content\n")
    box = {
        "git": {"command": str(python_servers / "mcp-server-git"), "args": ["--repository", str(repository)]},
        "time": {"command": str(python_servers / "mcp-server-time"), "args": ["--local-timezone", "UTC"]},
    }
    async with workbench.serving({"python": box}, era=era) as client:
        result = await open_toolbox(client, "python")
        assert unavailable(result) == {}
        assert {"git_status", "get_current_time"} <= {tool["name"] for tool in opened(result)["tools"]}
        below = descendants(client.pid)

        status = await client.use_tool("python", "git", "git_status", {"repo_path": str(repository)})
        assert "file.txt" in text_of(status)
        moment = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in text_of(await client.use_tool("python", "time", "convert_time", moment))
        wrong = {**moment, "target_timezone": "Nowhere/At_All"}
        assert error_text(await client.use_tool("python", "time", "convert_time", wrong))

        client.close_stdin()
        assert await client.wait_exit() == 0
        assert [command_line(pid) for pid in below if alive(pid)] == []


@pytest.mark.node
async def test_a_tool_that_requires_a_task_works_for_a_client_without_tasks(
    workbench: Workbench, node_servers: Path
) -> None:
    boxes = {"node": {"everything": npx(node_servers, "mcp-server-everything")}}
    async with workbench.serving(boxes) as client:
        done = await client.use_tool(
            "node", "everything", "simulate-research-query", {"topic": "bees"}, _meta={"progressToken": "p"}
        )
        assert "# Research Report: bees" in text_of(done)
        progress = [params["progress"] for params in client.received("notifications/progress")]
        assert progress and progress == sorted(set(progress))
