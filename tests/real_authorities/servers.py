"""Authorization servers that others wrote, MCP servers that accept their tokens, and how each is started and ended.

Each is a process of its own that prints its address and goes when its standard input is closed. Owns the versions.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.packages import node_packages, python_packages

HERE = Path(__file__).parent
NODE_PACKAGES = (
    "oidc-provider@9.13.3",
    "oauth2-mock-server@9.3.0",
    "@cloudflare/workers-oauth-provider@1.2.3",
    "miniflare@4.20260426.0",
    "esbuild@0.28.2",
)
PYTHON_PACKAGES = ("fastmcp==4.1.2",)
WORKBENCH_START_TIMEOUT = 60.0
END_SECONDS = 10.0


@dataclass(frozen=True)
class Authority:
    """An authorization server."""

    origin: str

    def seen(self, grant: str | None = None) -> list[dict[str, Any]]:
        """What its token endpoint was asked for, with its answers; of one grant type alone, where that is named."""
        found: list[dict[str, Any]] = self.ask("/_seen")
        asked = [each for each in found if each["path"] == "/token"]
        return [each for each in asked if grant in (None, each["grant"])]

    @property
    def refreshes(self) -> list[int]:
        """The status of every answer to a refresh."""
        return [each["status"] for each in self.seen("refresh_token")]

    def end_grants(self) -> None:
        """The user, at the authorization server, takes back what they allowed."""
        assert self.ask("/_end_grants")

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.origin + path, timeout=WORKBENCH_START_TIMEOUT) as answer:
            return json.loads(answer.read())


@contextmanager
def started(command: list[str], **environment: str) -> Iterator[str]:
    """Run it for as long as the context lasts; what it printed first."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], WORKBENCH_START_TIMEOUT)
        address = process.stdout.readline().decode().strip() if ready else ""
        if not address.startswith("http://"):
            raise RuntimeError(f"`{' '.join(command)}` did not start")
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def oidc_provider(ttl: int, token_format: str = "jwt") -> Iterator[Authority]:
    with _node("oidc_provider.mjs", TTL=str(ttl), FORMAT=token_format) as origin:
        yield Authority(origin)


@contextmanager
def workers_provider(upstream: str, ttl: int = 3600) -> Iterator[Authority]:
    """Is also the MCP server, at `/mcp`: requests with a good token are handed to `upstream`."""
    with _node("workers_provider.mjs", TTL=str(ttl), UPSTREAM=upstream) as origin:
        yield Authority(origin)


@contextmanager
def mock_server() -> Iterator[Authority]:
    with _node("mock_server.mjs") as origin:
        yield Authority(origin)


@contextmanager
def _node(script: str, **environment: str) -> Iterator[str]:
    packages = node_packages(NODE_PACKAGES)
    with started(["node", str(HERE / script)], PACKAGES=str(packages), **environment) as origin:
        yield origin


@contextmanager
def resource_server(kind: str, issuer: str = "") -> Iterator[str]:
    """An MCP server that accepts tokens of this issuer; its address. Its kind is `sdk` or `fastmcp`; the latter without
    an issuer accepts everybody."""
    python = sys.executable if kind == "sdk" else str(python_packages(PYTHON_PACKAGES) / "python")
    with started([python, str(HERE / "resource_server.py"), kind, issuer]) as url:
        _wait_until_it_answers(url)
        yield url


def _wait_until_it_answers(url: str) -> None:
    """It listens before its application has started."""
    until = time.monotonic() + WORKBENCH_START_TIMEOUT
    while True:
        try:
            with urllib.request.urlopen(url, timeout=WORKBENCH_START_TIMEOUT):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            if time.monotonic() > until:
                raise


def environment(folder: Path, **more: str) -> Mapping[str, str]:
    """For a workbench whose user keeps everything in this folder, and agrees to every page."""
    browser = f"{sys.executable} {HERE / 'browser.py'} %s"
    return {**os.environ, "XDG_DATA_HOME": str(folder), "BROWSER": browser, **more}
