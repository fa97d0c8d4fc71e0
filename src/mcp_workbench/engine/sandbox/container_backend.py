"""`podman` and `docker`: a server in an image, with what is granted mounted at the path that it has here.

The image replaces the system and the program's own files; the rest of a sandbox is the same. The container is not our
child (Docker's belongs to a daemon), so a small process removes it when the server has ended, and also when we have
been killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from typing import Final

from mcp_workbench.engine.config.environment import server_environment
from mcp_workbench.engine.sandbox.bwrap_backend import kept_read_only, memory_file, outermost_mounts
from mcp_workbench.engine.sandbox.container_engine import DOCKER, PODMAN, ContainerEngine
from mcp_workbench.engine.sandbox.created_paths import hold_created
from mcp_workbench.engine.sandbox.sandbox import Capabilities, OnRefused, Sandbox
from mcp_workbench.engine.sandbox.thread_backend import make_private_folders
from mcp_workbench.engine.transport.confinement import UNCONFINED, Launch
from mcp_workbench.errors import DownstreamError

# Containers of this user's workbenches on this machine, for the one that finds them left over.
CONTAINER_LABEL: Final = "mcp-workbench"
# What the engines' own programs need of our environment, besides what is harmless.
CLIENT_VARIABLES: Final = (
    *("DOCKER_*", "CONTAINER*", "CONTAINERS_*", "STORAGE_*", "REGISTRY_AUTH_FILE", "DBUS_SESSION_BUS_ADDRESS"),
    *(
        "LD_*",
        "GO*",
        "BUILDAH_*",
        "SSH_AUTH_SOCK",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    ),
)
# The container's own first process (`--init`).
_INIT_PROCESSES: Final = 1
# Until a container has been removed; what takes longer goes on without us.
REMOVAL_TIMEOUT: Final = 1.0
# Podman's has 30 kilobytes.
_MAX_FILTER_BYTES: Final = 1 << 20
_HAS_ENDED: Final = b"ended\n"

# Removes what workbenches that are gone have left, waits until ours says that the server has ended or is gone itself,
# and removes its container. One that is being created at that moment appears a little later.
_REMOVER: Final = """
trap '' INT TERM HUP QUIT PIPE
program=$1 label=$2 name=$3
shift 3
remove() { "$program" rm --force "$@" >/dev/null 2>&1 || "$program" rm --force "$1" >/dev/null 2>&1; }
for found in $("$program" ps --all --filter "label=$label" --format '{{.Names}}' 2>/dev/null); do
  owner=${found#mcp-workbench-} owner=${owner%%-*}
  kill -0 "$owner" 2>/dev/null || [ -d "/proc/$owner" ] || remove "$found" "$@"
done
read -r said
remove "$name" "$@"
[ "$said" = ended ] || for pause in 1 3; do sleep $pause; remove "$name" "$@"; done
"""


class ContainerBackend:
    def __init__(self, name: str) -> None:
        self.name = name

    def trouble(self, machine: Capabilities) -> str | None:
        return machine.engine(self.name).trouble

    def missing(self, sandbox: Sandbox, machine: Capabilities) -> list[str]:
        found = []
        if isinstance(sandbox.network, tuple):
            found.append("cannot limit the network of a container to hosts")
        if sandbox.processes is not None and not machine.engine(self.name).limits_processes:
            found.append(f"cannot limit the processes of a container ({self.name} has no `pids` controller)")
        return found

    def keeps_read_only(self) -> bool:
        return True

    def launch(self, sandbox: Sandbox, refused: OnRefused) -> Launch:
        from mcp_workbench.engine.sandbox.machine import capabilities

        engine = capabilities().engine(self.name)
        make_private_folders(sandbox)
        client = server_environment(os.environ, CLIENT_VARIABLES, {})
        lines, inherited = _variables(sandbox.environment, client)
        name = f"mcp-workbench-{os.getpid()}-{os.urandom(6).hex()}"
        with contextlib.ExitStack() as undoing:
            descriptors = [memory_file(lines)]
            undoing.callback(os.close, descriptors[0])
            if (held := hold_created(sandbox.read_only, sandbox.created)) is not None:
                undoing.callback(held.abandon)
            words = [*run_words(sandbox, engine, name), "--env-file", f"/dev/fd/{descriptors[0]}"]
            words += (word for each in inherited for word in ("--env", each))
            if (filters := _filter(engine)) is not None:
                descriptors.append(memory_file(filters))
                undoing.callback(os.close, descriptors[1])
                words += ("--security-opt", f"seccomp=/dev/fd/{descriptors[1]}")
            remover = ContainerRemover(engine, name, client)
            undoing.pop_all()
        return Launch(
            # Without rights, a rootless engine cannot map users.
            UNCONFINED,
            (engine.program, *words, *_program(sandbox)),
            tuple(descriptors),
            remover if held is None else held.beside(remover),
            client_environment=client | inherited,
        )


def _filter(engine: ContainerEngine) -> bytes | None:
    """The engine's filter of system calls without what `guard` refuses; None: as it is, where it cannot be read."""
    from mcp_workbench.engine.sandbox.container_filter import narrowed

    try:
        with open(engine.filter_path, "rb") as file:
            return json.dumps(narrowed(json.loads(file.read(_MAX_FILTER_BYTES)))).encode()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def run_words(sandbox: Sandbox, engine: ContainerEngine, name: str) -> list[str]:
    """The arguments of the engine's program up to the image. Pure but for looking whether what is granted was
    replaced by a link."""
    words = ["run", "--rm", "--interactive", "--init", "--read-only", "--name", name, "--label", _label()]
    words += ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    # What passes between client and server does not belong into the engine's log.
    words += ("--log-driver", "none")
    words += ("--user", "0:0" if engine.maps_root else f"{os.getuid()}:{os.getgid()}")
    if engine.name == PODMAN and engine.is_rootless:
        words += ("--userns", "keep-id")
    if sandbox.network == "none":
        words += ("--network", "none")
    if sandbox.profile == "sealed":
        words += ("--pull", "never")
    if sandbox.processes is not None and engine.limits_processes:
        words += ("--pids-limit", str(sandbox.processes + _INIT_PROCESSES))
    if sandbox.memory is not None:
        # Of each process, as in the other backends.
        words += ("--ulimit", f"data={sandbox.memory}:{sandbox.memory}")
        if engine.limits_memory:
            words += ("--memory", str(sandbox.memory))
    if sandbox.cpu_seconds is not None:
        words += ("--ulimit", f"cpu={sandbox.cpu_seconds}:{sandbox.cpu_seconds}")
    mounts = _mounts(sandbox)
    if "/tmp" not in mounts:
        words += ("--tmpfs", "/tmp")
    for path, is_written in mounts.items():
        words += ("--mount", _mount(path, is_written=is_written))
    for path in sandbox.unix_sockets:
        if path not in mounts:
            words += ("--mount", _mount(path, is_written=True))
    for path in sandbox.write:
        if path.startswith("/dev/"):
            words += ("--device", path)
    if sandbox.folder is not None:
        words += ("--workdir", sandbox.folder)
    return words


def _program(sandbox: Sandbox) -> tuple[str, ...]:
    """What is run, up to its arguments."""
    entry = ("--entrypoint", sandbox.command) if sandbox.command else ()
    return (*entry, sandbox.image or "")


def _mounts(sandbox: Sandbox) -> dict[str, bool]:
    """The paths that are mounted, and whether they can be written; each comes after what it is in."""
    write, read = outermost_mounts(sandbox)
    found = dict.fromkeys(write, True) | dict.fromkeys(read, False)
    found = {path: found[path] for path in sorted(found) if os.path.realpath(path) == path}
    return found | dict(kept_read_only(sandbox, write))


def _mount(path: str, *, is_written: bool) -> str:
    """One mount, as a line of comma-separated values."""

    def field(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(each in text for each in ',"\n\r') else text

    fields = ["type=bind", field(f"source={path}"), field(f"target={path}")]
    return ",".join(fields if is_written else [*fields, "readonly"])


def _variables(environment: Mapping[str, str], client: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Those of the server's variables that the engine's program would take for its own, as a file for it, and the
    others, which it has and passes on by name. Neither is on a command line, which everybody can read."""
    lines: list[str] = []
    inherited: dict[str, str] = {}
    own = server_environment(environment, CLIENT_VARIABLES, {})
    for name, value in environment.items():
        if name not in own and name not in client:
            inherited[name] = value
        elif "\n" in value or "\r" in value:
            raise DownstreamError(
                f"sandbox: the variable `{name}` cannot be given to a container: its value has several lines",
                hint="give it another name: this one means something to the program that starts containers",
            )
        else:
            lines.append(f"{name}={value}\n")
    return "".join(lines).encode(errors="surrogateescape"), inherited


def _label() -> str:
    """The same for all workbenches that can see each other's processes."""
    parts: list[str] = [str(os.getuid()), platform.node()]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts.append(file.read())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return f"{CONTAINER_LABEL}={hashlib.sha256(':'.join(parts).encode()).hexdigest()[:16]}"


class ContainerRemover:
    """The process that removes a container. It waits for us to end, however we do."""

    def __init__(self, engine: ContainerEngine, name: str, environment: Mapping[str, str]) -> None:
        flags: Iterable[str] = () if engine.name == DOCKER else ("--ignore", "--time", "0")
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            ("/bin/sh", "-c", _REMOVER, "sh", engine.program, _label(), name, *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(environment),
            bufsize=0,
        )

    def begin(self) -> None:
        """Nothing: it waits already."""

    def abandon(self) -> None:
        self.process.kill()
        self._let_go()
        # It was killed, and only has to be reaped.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REMOVAL_TIMEOUT)

    async def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(_HAS_ENDED)
        self._let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, REMOVAL_TIMEOUT)

    def _let_go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
