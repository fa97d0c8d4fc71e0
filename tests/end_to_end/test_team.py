"""Serving a team, as the command: keys while it runs, Unix sockets, TLS, and the proxies of docs/guides/team.md."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from mcp_workbench.engine.socket_peers import is_confined
from mcp_workbench.engine.transport.confinement import GUARDED, start_confined
from tests.engine.transport.http.server.raw_client import RawConnection, modern, modern_headers
from tests.engine.transport.http.server.test_tls import certificate
from tests.support.client import RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config

pytestmark = pytest.mark.processes

DOCUMENT = (Path(__file__).parents[2] / "docs" / "guides" / "team.md").read_text(encoding="utf-8")
PATIENCE = 60.0


def example(language: str) -> str:
    """The example of the document in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    return str(found)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the address of a Unix socket has hardly more than a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="wb") as name:
        yield Path(name)


class Team:
    """A workbench that is running, and its user's folder."""

    def __init__(self, process: RawClient, folder: Path, environment: dict[str, str]) -> None:
        self.process = process
        self.folder = folder
        self.environment = environment

    async def run(self, *arguments: str) -> str:
        """One of the commands of its user; what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcp_workbench", *arguments), stdout=subprocess.PIPE, env=self.environment
        )
        async with asyncio.timeout(PATIENCE):
            printed, _ = await process.communicate()
        assert process.returncode == 0
        return printed.decode().strip()


@asynccontextmanager
async def serving(folder: Path, *flags: object, **settings: Any) -> AsyncIterator[Team]:
    environment = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    config = write_config(
        folder, {"box": {"server": scripted_entry()}, "other": {"server": scripted_entry()}}, **settings
    )
    async with RawClient.spawn(workbench_command(config, *flags), env=environment, expect_exit=False) as process:
        await process.wait_for(lambda: "serving MCP at" in process.stderr or "error:" in process.stderr, "address")
        yield Team(process, folder, environment)


async def who(connection: RawConnection, **headers: str) -> tuple[int, object]:
    """The status of a call, and the process that answered it."""
    path = {"toolbox": "box", "server": "server", "tool": "pid"}
    call = modern("tools/call", {"name": "use_tool", "arguments": {"tool": path, "arguments": {}}})
    response = await connection.request(body=call, mcp_name="use_tool", **{**modern_headers("tools/call"), **headers})
    if response.status != 200:
        return response.status, None
    return 200, json.loads(response.body)["result"].get("structuredContent", {}).get("pid")


async def tcp(port: int) -> RawConnection:
    return RawConnection(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))


async def called(port: int, **headers: str) -> tuple[int, object]:
    connection = await tcp(port)
    try:
        return await who(connection, **headers)
    finally:
        connection.close()


@pytest.mark.requirement("team.keys", "team.principals")
async def test_keys_are_made_and_revoked_while_it_runs(folder: Path) -> None:
    port = free_port()
    async with serving(folder, "--http", f"127.0.0.1:{port}", "--token", "secret") as team:
        alice, bob = [await team.run("key", "create", name) for name in ("alice", "bob")]
        seen = {}
        for token in ("secret", alice, bob):
            status, seen[token] = await called(port, authorization=f"Bearer {token}")
            assert status == 200
        assert len(set(seen.values())) == 3, "each has a process of their own"
        held = await tcp(port)
        assert (await who(held, authorization=f"Bearer {alice}"))[0] == 200
        await team.run("key", "revoke", "alice")
        # What is under way with it at the moment when it ends is cut off.
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while (await who(held, authorization=f"Bearer {alice}"))[0] == 200:
                    await asyncio.sleep(0.05)
        assert (await called(port, authorization=f"Bearer {alice}"))[0] == 401
        assert await called(port, authorization=f"Bearer {bob}") == (200, seen[bob]), "and nobody else notices"
        limited = await team.run("key", "create", "ci", "--toolboxes", "oth*")
        assert (await called(port, authorization=f"Bearer {limited}"))[1] is None, "for it, the toolbox does not exist"
        assert (await called(port, authorization=f"Bearer {bob}"))[0] == 200
        held.close()
        assert alice not in team.process.stderr and "refused" in team.process.stderr


async def test_keys_alone_are_enough_where_others_can_reach_it(folder: Path) -> None:
    port = free_port()
    async with serving(folder, "--http", f"0.0.0.0:{port}") as team:
        assert "without authentication all of them could use your servers" in team.process.stderr
        token = await team.run("key", "create", "alice")
    async with serving(folder, "--http", f"0.0.0.0:{port}"):
        assert (await called(port, authorization=f"Bearer {token}"))[0] == 200
        assert (await called(port))[0] == 401


@pytest.mark.requirement("team.unix")
async def test_on_a_unix_socket_no_token_is_required(folder: Path) -> None:
    path = folder / "mcp.sock"
    async with serving(folder, "--http", f"unix:{path}") as team:
        assert path.stat().st_mode & 0o777 == 0o600
        token = await team.run("key", "create", "alice")
        seen = []
        for headers in ({}, {"authorization": f"Bearer {token}"}, {}, {"authorization": "Bearer wrong"}):
            connection = RawConnection(*await asyncio.open_unix_connection(str(path), limit=1 << 24))
            seen.append(await who(connection, **headers))
            connection.close()
        assert [status for status, _ in seen] == [200, 200, 200, 401]
        assert seen[0] == seen[2] != seen[1], "a key that is shown counts instead"
        assert "warning" not in team.process.stderr
    async with serving(folder, "--http", f"unix:{path}") as again:
        assert "serving MCP at unix:" in again.process.stderr, "what was left of it is in nobody's way"


REQUEST = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect(sys.argv[1])
head = ("POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Content-Length: 2", "", "{}")
s.sendall("\\r\\n".join(head).encode())
print(s.makefile("rb").readline().split()[1].decode())
"""


@pytest.mark.requirement("team.unix")
@pytest.mark.skipif(sys.platform != "linux" or is_confined(), reason="servers are recognised by no_new_privs")
async def test_on_a_unix_socket_a_server_is_not_taken_for_its_user(folder: Path) -> None:
    path = folder / "mcp.sock"

    def ask() -> str:
        return subprocess.run([sys.executable, "-c", REQUEST, str(path)], capture_output=True, text=True).stdout

    async with serving(folder, "--http", f"unix:{path}"):
        assert (await asyncio.to_thread(ask)).strip() == "400", "a malformed request of somebody who may connect"
        assert (await asyncio.to_thread(start_confined, GUARDED, ask)).strip() == "401"


@pytest.mark.requirement("team.tls")
async def test_the_official_client_over_tls_and_a_renewed_certificate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = certificate(folder, "first")
    port = free_port()
    flags = ("--http", f"127.0.0.1:{port}", "--no-token", "--tls-cert", chain, "--tls-key", key)
    async with serving(folder, *flags) as team:
        assert "serving MCP at https://" in team.process.stderr
        for name in ("first", "second"):
            if name == "second":
                certificate(folder, name)
                await team.process.wait_for(
                    lambda: "reloaded the certificate" in team.process.stderr, "the new certificate"
                )
            monkeypatch.setenv("SSL_CERT_FILE", str(chain))
            async with Client(f"https://localhost:{port}/mcp", read_timeout_seconds=30) as client:
                assert (await client.list_tools()).tools


async def through_proxy(port: int, user: str, password: str, **headers: str) -> tuple[int, object]:
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    connection = await tcp(port)
    try:
        return await who(connection, authorization=f"Basic {credentials}", **headers)
    finally:
        connection.close()


async def check_proxy(front: int, back: int) -> None:
    """Two users behind a proxy, and everybody who would like to be one of them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                (await tcp(front)).close()
                break
            except ConnectionError:
                await asyncio.sleep(0.05)
    alice = await through_proxy(front, "alice", "correct-horse")
    bob = await through_proxy(front, "bob", "battery-staple")
    assert alice[0] == bob[0] == 200 and alice[1] != bob[1]
    assert await through_proxy(front, "alice", "correct-horse") == alice
    forged = await through_proxy(front, "bob", "battery-staple", x_forwarded_user="alice", x_proxy_secret="change-me")
    assert forged == bob, "what a client writes there does not count"
    assert (await through_proxy(front, "alice", "wrong"))[0] == 401
    assert (await called(back, x_forwarded_user="alice"))[0] == 401
    assert (await called(back, x_forwarded_user="alice", x_proxy_secret="guess"))[0] == 401


@asynccontextmanager
async def program(*command: object) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


PROXY = {"peers": "127.0.0.1", "secret": "change-me", "groupsHeader": "x-forwarded-groups"}


@pytest.mark.requirement("team.proxy")
@pytest.mark.skipif(shutil.which("nginx", path="/usr/sbin:/usr/bin") is None, reason="needs nginx")
async def test_the_example_for_nginx(folder: Path) -> None:
    front, back = free_port(), free_port()
    hashed = [
        f"{name}:{{PLAIN}}{password}" for name, password in (("alice", "correct-horse"), ("bob", "battery-staple"))
    ]
    (folder / "users").write_text("\n".join(hashed) + "\n")
    server = example("nginx").replace("8080", str(front)).replace("8420", str(back))
    server = server.replace("/etc/nginx/users", str(folder / "users"))
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{server}\n}}\n"
    )
    # Workers of a proxy that root has started run as somebody else.
    folder.chmod(0o755)
    (folder / "users").chmod(0o644)
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    async with serving(folder, "--http", f"127.0.0.1:{back}", trustedProxy=PROXY):
        async with program(nginx, "-c", folder / "nginx.conf", "-e", folder / "error.log"):
            await check_proxy(front, back)


@pytest.mark.requirement("team.proxy")
@pytest.mark.skipif(shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None, reason="needs HAProxy")
async def test_the_example_for_haproxy(folder: Path) -> None:
    front, back = free_port(), free_port()
    text = example("haproxy").replace("8080", str(front)).replace("8420", str(back))
    (folder / "haproxy.cfg").write_text(text)
    haproxy = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    async with serving(folder, "--http", f"127.0.0.1:{back}", trustedProxy=PROXY):
        async with program(haproxy, "-f", folder / "haproxy.cfg"):
            await check_proxy(front, back)
