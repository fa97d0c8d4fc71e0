"""Starts a victim and, in a sandbox, a program that attacks it. To be called as an ordinary user."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox.server_sandbox import Owner, enforce, home_name, sandbox_of
from mcp_workbench.engine.transport.confinement import start_confined

# One that every user can start.
PYTHON = "/usr/bin/python3"
OWNER = Owner("/config.json", "box", "")
NETLINK_USERSOCK = 2
# How long a signal that was let through may take.
SIGNAL_TIMEOUT = 0.5
SCRIPT = Path(__file__).with_name("attacks.py").read_text(encoding="utf-8")


def attack_in(folder: Path, sandbox: SandboxConfig | None) -> dict[str, bool]:
    """Return which attacks succeed. `folder` is empty, and belongs to the user."""
    os.environ.update(HOME=str(folder / "home"))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        os.environ.pop(name, None)
    home = folder / "home"
    given = folder / "a b\nc" / "data.json"
    for path in (home / ".ssh/id_ed25519", home / ".local/share/mcp-workbench/tokens", home / ".bashrc", given):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret\n")
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    listener, datagrams = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(listener.getsockname())
    named, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    named.bind(str(folder / "s"))
    named.listen()
    abstract.bind(f"\0mcp-workbench-test-{os.getpid()}")
    abstract.listen()
    datagrams.bind(str(folder / "d"))
    # Of a protocol for messages between processes.
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    netlink.bind((0, 0))
    terminal, its_end = os.openpty()
    other = _home_of_another_server(home)
    # Stays until its input ends.
    victim = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={"TOKEN": "secret"})
    told = {
        "home": str(home),
        "victim": victim.pid,
        "other": other,
        "given": str(given),
        "port": listener.getsockname()[1],
        "socket": str(folder / "s"),
        "terminal": os.ttyname(its_end),
        "abstract": f"mcp-workbench-test-{os.getpid()}",
        "datagrams": str(folder / "d"),
        "netlink_protocol": NETLINK_USERSOCK,
        "netlink_port": netlink.getsockname()[0],
    }
    try:
        found = _attack(folder, sandbox, told)
        # Sent is not arrived: in a network of its own it reaches nobody.
        found["send by UDP"] &= _has_arrived(receiver)
        found["end a sibling by a descriptor of its own"] &= _has_ended(victim)
        return found
    finally:
        victim.kill()
        victim.communicate()
        for each in (receiver, listener, datagrams, named, abstract, netlink):
            each.close()
        os.close(terminal)
        os.close(its_end)


def _has_ended(victim: subprocess.Popen[bytes]) -> bool:
    try:
        return victim.wait(SIGNAL_TIMEOUT) == -signal.SIGTERM
    except subprocess.TimeoutExpired:
        return False


def _has_arrived(receiver: socket.socket) -> bool:
    try:
        return bool(receiver.recv(100))
    except BlockingIOError:
        return False


def _home_of_another_server(home: Path) -> str:
    path = home / ".local/share/mcp-workbench/homes" / home_name(ServerConfig(name="other", command="x"), OWNER)
    path.mkdir(parents=True)
    (path / "secret").write_text("secret")
    return str(path)


def _attack(folder: Path, settings: SandboxConfig | None, told: dict[str, Any]) -> dict[str, bool]:
    home, script = Path(told["home"]), folder / "server" / "attacks.py"
    script.parent.mkdir()
    script.write_text(SCRIPT, encoding="utf-8")
    (home / "removable").write_text("x")
    (folder / "tmp").mkdir()
    args = (str(script), json.dumps(told), "--data", told["given"])
    config = ServerConfig(name="hostile", command=PYTHON, args=args, sandbox=settings)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(folder / "tmp")}
    enforced = enforce(sandbox_of(config, environment, "/", OWNER))
    sandbox, launch = enforced.sandbox, enforced.launch
    client = launch.client_environment
    command = [*launch.wrapper, PYTHON, *args] if client is None else [*launch.wrapper, *args]
    done = start_confined(
        launch.confinement,
        lambda: subprocess.run(
            command,
            env=sandbox.environment if client is None else client,
            cwd=sandbox.folder if client is None else None,
            capture_output=True,
            text=True,
            pass_fds=launch.descriptors,
        ),
    )
    launch.abandon()
    assert not done.returncode, done.stderr
    found: dict[str, bool] = json.loads(done.stdout)
    # Podman's containers have a `/var/tmp` of their own.
    found["create a file in the home folder"] &= (home / "planted").exists()
    return found
