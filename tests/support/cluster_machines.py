"""Several instances on folders of their own, as if on machines of their own, with a real state server and HAProxy.

Owns their processes. Valkey and Redis are the same to us: Valkey is used if it is installed, and the one that the
environment variable `STATE_SERVER` names.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_workbench.cluster.seal import SEAL_FORMAT, Seal, new_key
from mcp_workbench.cluster.state import ClusterState
from mcp_workbench.cluster.valkey_link import StateAway, ValkeyLink
from mcp_workbench.engine.lasting_state import StateKind
from mcp_workbench.signin.store import TokenStore
from mcp_workbench.team.identity.named_keys import KeyFolder
from tests.support.client import RawClient
from tests.support.workbench import workbench_command, write_config

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PATIENCE = 60.0
# The environment may name another one, such as `redis-server` or the path of a program.
STATE_SERVERS = [named] if (named := os.environ.get("STATE_SERVER")) else ["valkey-server", "redis-server"]
STATE_SERVER = next(filter(None, map(shutil.which, STATE_SERVERS)), None)
needs_state_server = pytest.mark.skipif(STATE_SERVER is None, reason=f"here is no {' or '.join(STATE_SERVERS)}")
HAPROXY = shutil.which("haproxy")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")


# Starts a workbench that writes another format of values, as a later version may.
_OTHER_FORMAT = (
    "import sys; import mcp_workbench.cluster.seal as seal; seal.SEAL_FORMAT = {};"
    "from mcp_workbench.__main__ import main; sys.exit(main())"
)


def free_port() -> int:
    """Below those that the kernel gives to connections and to port 0: there, somebody else's would often be first."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


async def wait_for_port(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            await writer.wait_closed()
            return


async def wait_for_refusal(port: int) -> None:
    """Until nobody listens there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class StateServer:
    """Redis or Valkey, which keeps nothing on the disk."""

    def __init__(self, port: int, *options: str, config: Path | None = None) -> None:
        """`config`: of a Sentinel, which writes into it."""
        self.port = port
        self._options = options
        self._config = config
        self.process: asyncio.subprocess.Process | None = None

    @staticmethod
    def speaks_tls() -> bool:
        """Whether it was built with TLS: then it misses a certificate, and not TLS."""
        assert STATE_SERVER is not None
        command = [STATE_SERVER, "--port", "0", "--tls-port", str(free_port())]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        return "No tls-cert-file" in done.stdout + done.stderr

    async def start(self) -> None:
        assert STATE_SERVER is not None
        command = [STATE_SERVER, *([] if self._config is None else [str(self._config)])]
        command += ["--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", *self._options] if self._config is None else ["--sentinel"]
        quiet = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=quiet)
        await wait_for_port(self.port)
        assert self.process.returncode is None, f"somebody else has port {self.port}"

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def command(self, *words: str | bytes) -> Any:
        """Ask it something directly, as one who may look into it would."""
        from valkey.asyncio import Valkey

        async with Valkey(port=self.port) as client:
            return await client.execute_command(*words)  # type: ignore[no-untyped-call]


class Instance:
    """One workbench, with the folder of its user."""

    def __init__(self, name: str, process: RawClient, folder: Path, port: int, environment: dict[str, str]) -> None:
        self.name = name
        self.process = process
        self.folder = folder
        self.port = port
        self.environment = environment

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def sign_ins(self) -> TokenStore:
        return TokenStore(str(self.folder / "data" / "mcp-workbench" / "sign-ins"))

    @property
    def keys(self) -> KeyFolder:
        return keys_of(self.folder)

    async def kill(self) -> None:
        self.process.process.kill()
        await self.process.process.wait()
        # A server's process that was just being started has our socket until it runs its program. Connections are
        # accepted until then, and end with it.
        await wait_for_refusal(self.port)

    def signal(self, number: signal.Signals) -> None:
        self.process.process.send_signal(number)

    async def stop(self) -> None:
        """As a service manager does, with time to drain."""
        self.signal(signal.SIGTERM)
        async with asyncio.timeout(2 * PATIENCE):
            await self.process.process.wait()

    async def run(self, *arguments: str) -> str:
        """A command on this machine; what it printed."""
        status, printed, complaint = await self._run(*arguments)
        assert status == 0, complaint
        return printed

    async def fail(self, *arguments: str) -> str:
        """A command that finds something wrong; everything that it printed."""
        status, printed, complaint = await self._run(*arguments)
        assert status, printed
        return f"{printed}\n{complaint}"

    async def _run(self, *arguments: str) -> tuple[int | None, str, str]:
        import sys

        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcp_workbench", *arguments), stdout=pipe, stderr=pipe, env=self.environment
        )
        async with asyncio.timeout(PATIENCE):
            printed, complaint = await process.communicate()
        return process.returncode, printed.decode().strip(), complaint.decode()


def keys_of(folder: Path) -> KeyFolder:
    return KeyFolder(str(folder / "state" / "mcp-workbench" / "keys"))


class Machines:
    def __init__(self, folder: Path, state: StateServer, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.state = state
        self.key = new_key()
        self._stack = stack
        self._instances: list[Instance] = []
        self.balancers: dict[str, asyncio.subprocess.Process] = {}
        # By token, the id of the last legacy session.
        self.session_ids: dict[str, str] = {}

    async def start(
        self,
        name: str,
        boxes: dict[str, Any],
        *flags: object,
        port: int = 0,
        key: str | None = None,
        is_alone: bool = False,
        format: int = SEAL_FORMAT,
        **settings: Any,
    ) -> Instance:
        """Start an instance on the machine with this name. `is_alone`: it is none of the cluster; `format`: of what it
        leaves for others."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        key_file = folder / "cluster.key"
        key_file.write_text(key or self.key)
        key_file.chmod(0o600)
        cluster = {"state": f"valkey://127.0.0.1:{self.state.port}/0", "key": {"file": "cluster.key"}}
        if not is_alone:
            settings["cluster"] = {**cluster, **settings.get("cluster", {})}
        config = write_config(folder, boxes, **settings)
        environment = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        environment |= {"XDG_RUNTIME_DIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        environment["XDG_DATA_HOME"] = str(folder / "data")
        command = workbench_command(config, "--http", f"127.0.0.1:{port or free_port()}", "--token", "operator", *flags)
        if format != SEAL_FORMAT:
            at = command.index("-m")
            command[at : at + 2] = ["-c", _OTHER_FORMAT.format(format)]
        spawned = RawClient.spawn(command, env=environment, expect_exit=False)
        process = await self._stack.enter_async_context(spawned)
        await process.wait_for(lambda: "serving MCP at" in process.stderr or "error:" in process.stderr, "address")
        assert "error:" not in process.stderr, process.stderr
        served = int(process.stderr.partition("serving MCP at http://127.0.0.1:")[2].partition("/")[0])
        instance = Instance(name, process, folder, served, environment)
        self._instances.append(instance)
        return instance

    def give_key(self, name: str, *machines: str) -> str:
        """Give a user a named key, and copy it to these machines."""
        first, *others = (self.folder / each for each in machines)
        first.mkdir(exist_ok=True)
        token = keys_of(first).create(name)
        for other in others:
            shutil.copytree(keys_of(first).path, keys_of(other).path, dirs_exist_ok=True)
        return token

    @asynccontextmanager
    async def client(self, url: str, token: str, mode: str, **options: Any) -> AsyncIterator[Client]:
        """The official client of either era."""

        async def note(response: httpx2.Response) -> None:
            if (id := response.headers.get("mcp-session-id")) is not None:
                self.session_ids[token] = id

        many = httpx2.Limits(max_connections=None)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(
            headers=headers, timeout=30, limits=many, event_hooks={"response": [note]}
        ) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=mode, **{"read_timeout_seconds": 30, **options}) as client:
                yield client

    async def until_left(
        self, kind: StateKind, principal: str, name: str, part: bytes = b"", *, format: int = SEAL_FORMAT
    ) -> None:
        """Until an instance has left this for others: it writes behind, a moment after it has answered."""
        link = ValkeyLink(f"valkey://127.0.0.1:{self.state.port}/0")
        key = base64.urlsafe_b64decode(self.key)
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    if link.is_away:
                        # We were busy ourselves.
                        with suppress(StateAway):
                            await link.run([("PING",)], is_probe=True)
                    # One that has seen nothing yet.
                    seal = Seal(key, "mcp-workbench")
                    seal.format = format
                    state = ClusterState(link, seal, "mcp-workbench")
                    state.follow_keys(self.holder_of)
                    found = None
                    with suppress(StateAway):
                        if kind.most:
                            found = (await state.find_all(kind, principal)).get(name)
                        else:
                            found = await state.find(kind, principal, name)
                    if found is not None and part in found:
                        return
                    await asyncio.sleep(0.02)
        finally:
            await link.close()

    def holder_of(self, principal: str) -> str:
        """The same as instances say, which have all keys."""
        for folder in self.folder.iterdir():
            for record in keys_of(folder).records() if folder.is_dir() else ():
                if record.name == principal:
                    return f"{principal} {record.sha256}"
        return principal

    async def until_listening(self, count: int) -> None:
        """Until this many instances hear what others tell."""
        async with asyncio.timeout(PATIENCE):
            while (await self.state.command("PUBSUB", "NUMSUB", "mcp-workbench:{mcp-workbench}:notices"))[1] < count:
                await asyncio.sleep(0.02)

    async def balance(self, *instances: Instance, name: str = "haproxy", port: int = 0) -> str:
        """Put HAProxy in front of these, with the file of deploy/; the address to use."""
        port = port or free_port()
        servers = "".join(f"    server {each.name} 127.0.0.1:{each.port}\n" for each in instances)
        written = (DEPLOY / "haproxy.cfg").read_text()
        written = re.sub(r"(    server .*\n)+", servers, written).replace("8419", str(free_port()))
        told = f"    bind 127.0.0.1:{port}\n    http-response set-header X-Instance %s\n"
        control = f"global\n    stats socket {self.folder / name}.sock level admin\n"
        config = self.folder / f"{name}.cfg"
        config.write_text(control + written.replace("    bind :8420\n", told))
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *("haproxy", "-db", "-f", str(config)), stdin=quiet, stdout=quiet, stderr=quiet
        )
        self.balancers[name] = process
        self._stack.push_async_callback(end, process)
        await wait_for_port(port)
        return f"http://127.0.0.1:{port}/mcp"

    async def instance_of(self, url: str, token: str) -> str:
        """The name of the instance that this user is sent to."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].partition("/")[0]))
        writer.write(f"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.close()
        await writer.wait_closed()
        return head.partition("x-instance: ")[2].partition("\r\n")[0]

    async def until_up(self, *names: str, balancer: str = "haproxy") -> None:
        """Until the balancer sends users to exactly these."""
        async with asyncio.timeout(PATIENCE):
            while {name for name, state in (await self.states(balancer)).items() if state == "UP"} != set(names):
                await asyncio.sleep(0.05)

    async def states(self, balancer: str = "haproxy") -> dict[str, str]:
        """What the balancer thinks of each instance: `UP`, `NOLB` if it gets nothing new, `DOWN`."""
        try:
            reader, writer = await asyncio.open_unix_connection(self.folder / f"{balancer}.sock")
        except OSError:
            # It comes after the port.
            return {}
        writer.write(b"show stat\n")
        rows = [line.split(",") for line in (await reader.read()).decode().splitlines()]
        writer.close()
        await writer.wait_closed()
        return {row[1]: row[17] for row in rows if row[0] == "workbench" and row[1] != "BACKEND"}


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


@asynccontextmanager
async def machines(folder: Path) -> AsyncIterator[Machines]:
    state = StateServer(free_port())
    await state.start()
    try:
        async with AsyncExitStack() as stack:
            yield Machines(folder, state, stack)
    finally:
        if state.process is not None and state.process.returncode is None:
            state.signal(signal.SIGCONT)
        await state.kill()
