"""The bundle for Claude Desktop in the hands of the official tool, and started as its manifest says: by uv, with an
almost empty environment. Claude Desktop itself cannot be had here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import build_bundle
from tests.support.packages import Unavailable, node_packages, python_packages

pytestmark = [pytest.mark.node, pytest.mark.network]

# It makes a virtual environment and downloads what we depend on, on a machine that is busy.
TIMEOUT = 100


@pytest.fixture
def mcpb() -> Path:
    try:
        return node_packages(("@anthropic-ai/mcpb@2.1.2",)) / "node_modules" / ".bin" / "mcpb"
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def uv() -> Path:
    try:
        return python_packages(("uv==0.13.7",)) / "uv"
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_official_tool_accepts_the_bundle_and_its_server_answers(mcpb: Path, uv: Path, tmp_path: Path) -> None:
    bundle, folder = tmp_path / "one.mcpb", tmp_path / "extension"
    build_bundle.build(bundle)
    for words in (("info", bundle), ("unpack", bundle, folder), ("validate", folder / "manifest.json")):
        done = subprocess.run([mcpb, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stdout + done.stderr
    server = json.loads((folder / "manifest.json").read_text())["server"]["mcp_config"]
    filled_in = {"${__dirname}": str(folder), "${user_config.configuration}": ""}

    def said(word: str) -> str:
        for placeholder, value in filled_in.items():
            word = word.replace(placeholder, value)
        return word

    # What a desktop gives to programs; and where a machine has certificates of its own, which ones.
    kept = {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **kept, **{k: said(v) for k, v in server["env"].items()}}
    assert server["command"] == "uv"
    client = {"name": "claude-ai", "version": "0.1.0"}
    requests: list[dict[str, Any]] = [
        {"method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}},
        {"method": "tools/call", "params": {"name": "use_tool", "arguments": {"tool": "desk/clock/now"}}},
    ]
    with subprocess.Popen(
        [uv, *map(said, server["args"])], cwd="/", env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        answers = []
        for number, request in enumerate(requests):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **request}).encode() + b"\n")
            process.stdin.flush()
            while (answer := json.loads(process.stdout.readline())).get("id") != number:
                pass
            answers.append(answer["result"])
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert answers[0]["serverInfo"]["name"] == "mcp-workbench"
    assert not answers[1].get("isError") and "weekday" in json.dumps(answers[1])
