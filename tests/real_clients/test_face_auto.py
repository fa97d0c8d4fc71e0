"""What a published client makes of the face `auto`: which tools it puts before its model, which is scripted here."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real_clients.test_published_clients import PACKAGES
from tests.support.packages import Unavailable, node_packages
from tests.support.workbench import workbench_command

pytestmark = [pytest.mark.node, pytest.mark.network]
# A program on Node, on a machine that is busy, that starts the workbench in turn.
TIMEOUT = 100
EVENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("message_start", {"message": {"id": "1", "type": "message", "role": "assistant", "content": [], "usage": {}}}),
    ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "done"}}),
    ("content_block_stop", {"index": 0}),
    ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
    ("message_stop", {}),
)


class ScriptedModel(http.server.BaseHTTPRequestHandler):
    """Says `done` to whatever it is asked, and keeps that."""

    asked: list[dict[str, Any]]

    def log_message(self, format: str, *args: object) -> None:
        """stderr is for failures."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(body)
        written = "".join(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in EVENTS)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(written.encode())


@pytest.fixture
def model() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a model, and what it is asked."""
    asked: list[dict[str, Any]] = []
    handler = type("Handler", (ScriptedModel,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_claude_code_sees_the_tools_as_they_are(model: tuple[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("needs Node with npm")
    try:
        programs = node_packages((PACKAGES["claude-code"],)) / "node_modules" / ".bin"
    except Unavailable as reason:
        pytest.skip(str(reason))
    address, asked = model
    clock = {"command": sys.executable, "args": ["-m", "mcp_workbench", "demo", "clock"]}
    config = tmp_path / "workbench-config.json"
    boxes = {"desk": {"description": "Time", "mcpServers": {"clock": clock}}}
    config.write_text(json.dumps({"face": "auto", "toolboxes": boxes}))
    command, *arguments = workbench_command(config, "--list-timeout", "60")
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"workbench": {"command": command, "args": arguments}}}))
    own = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "none"}
    done = subprocess.run(
        [str(programs / "claude"), "-p", "hello", "--mcp-config", str(servers), "--strict-mcp-config"],
        env={**os.environ, **own, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Declared, or named where it defers them: in both cases under the names that it made of ours.
    shown = json.dumps(asked)
    assert all(f"mcp__workbench__desk__clock__{tool}" in shown for tool in ("now", "convert_time", "wait"))
    assert "open_toolbox" not in shown
