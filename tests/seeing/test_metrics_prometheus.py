"""A real Prometheus scrapes a real workbench with its token, and every graph of our dashboard has something to show."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.processes import PATIENCE, wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs `prometheus`: apt-get install prometheus"),
]

ROOT = Path(__file__).resolve().parent.parent.parent
TOKEN = "token-of-the-workbench"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "scraped", "version": "1"}}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Scraped(NamedTuple):
    """The ports of both, and what the workbench is asked to do."""

    workbench: int
    prometheus: int

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.prometheus}/api/v1/{path}", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query?query=" + urllib.parse.quote(expression))["result"]
        return found


class Client:
    """A legacy client over HTTP."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/mcp"
        self._session: dict[str, str] = {}
        self._id = 0
        self.request("initialize", HELLO)

    def request(self, method: str, params: dict[str, Any]) -> Any:
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        headers = {
            "authorization": f"Bearer {TOKEN}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **self._session,
        }
        asked = urllib.request.Request(self._url, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            if (session := answer.headers.get("mcp-session-id")) is not None:
                self._session = {"mcp-session-id": session}
            body = answer.read().decode()
        # The answer of a server that takes long to start comes as a stream.
        data = [line.removeprefix("data:") for line in body.splitlines() if line.startswith("data: {")]
        return json.loads(data[-1] if data else body)

    def use(self, server: str, tool: str, arguments: dict[str, Any]) -> None:
        named = {"tool": {"toolbox": "demo", "server": server, "tool": tool}, "arguments": arguments}
        self.request("tools/call", {"name": "use_tool", "arguments": named})


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[Scraped]:
    folder = tmp_path
    ports = Scraped(free_port(), free_port())
    servers = {"clock": {"command": sys.executable, "args": ["-m", "mcp_workbench.cli.demo.clock"]}}
    config = folder / "workbench.json"
    config.write_text(json.dumps({"toolboxes": {"demo": {"description": "d", "mcpServers": servers}}}))
    (folder / "token").write_text(TOKEN)
    scrape = {"job_name": "workbench", "authorization": {"credentials_file": str(folder / "token")}}
    targets = {"static_configs": [{"targets": [f"127.0.0.1:{ports.workbench}"]}]}
    # YAML is a superset of JSON.
    settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{**scrape, **targets}]}
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    workbench = [sys.executable, "-m", "mcp_workbench", "serve", "--http", f"127.0.0.1:{ports.workbench}"]
    prometheus = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("wb") as log:
        started = [
            subprocess.Popen([*workbench, "--token-file", str(folder / "token"), str(config)], stdout=log, stderr=log),
            subprocess.Popen(
                [*prometheus, f"--web.listen-address=127.0.0.1:{ports.prometheus}"], stdout=log, stderr=log
            ),
        ]
        try:
            wait_until(lambda: is_up(f"http://127.0.0.1:{ports.workbench}/healthz"), what="the workbench")
            wait_until(lambda: is_up(f"http://127.0.0.1:{ports.prometheus}/-/ready"), what="Prometheus")
            yield ports
        finally:
            for each in started:
                each.terminate()
            for each in started:
                each.wait(PATIENCE)


def expressions() -> list[str]:
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    written = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    # What Grafana puts in: at least four scrapes.
    return [each.replace("$__rate_interval", "1m") for each in written]


def test_the_target_is_up_and_every_graph_of_the_dashboard_has_a_series(scraped: Scraped) -> None:
    client, wanted = Client(scraped.workbench), expressions()
    assert len(wanted) > 15

    def lacking() -> list[str]:
        # Rates need two scrapes between which something happens.
        client.use("clock", "now", {"zone": "UTC"})
        client.use("clock", "now", {"zone": "Moon"})
        client.use("clock", "no such tool", {})
        return [each for each in wanted if not scraped.query(each)]

    left = wanted

    def is_complete() -> bool:
        nonlocal left
        left = lacking()
        return not left

    try:
        wait_until(is_complete)
    except AssertionError:
        assert not left, "these have no series"
    (up,) = scraped.query("up")
    assert up["value"][1] == "1"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{scraped.workbench}/metrics", timeout=PATIENCE)
    assert refused.value.code == 401, "without the token"
    refused.value.close()
