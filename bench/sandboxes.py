"""What a sandbox adds to the start of a server: of any program, and of one in Node.

Owns the starting and its clock. Starts programs as the engine does, without a workbench around it, whose own start
would hide the difference.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from time import perf_counter

from bench.calls import Effort
from bench.client import EXIT_DEADLINE, BenchError
from bench.findings import Finding, Verdict, added_in_rounds, share_in_rounds, values_of
from bench.startup import spawned_in_turn
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.sandbox.server_sandbox import Owner, enforce, sandbox_of
from mcp_workbench.engine.transport import landlock
from mcp_workbench.engine.transport.confinement import start_confined
from tests.support.packages import Unavailable, node_packages

OFF = SandboxConfig(profile="off")
CONTAINED = SandboxConfig(profile="contained")
BWRAP = SandboxConfig(profile="contained", backend="bwrap")
# What the start of a server in Node is judged by.
PACKAGE = "@modelcontextprotocol/server-filesystem@2026.8.31"
PROGRAM = "mcp-server-filesystem"
# Of ten lines, with the modules of Node that servers made with the official SDK load: what is added to it is the same,
# and a larger part of it.
SMALL_SERVER = """
for (const name of ["fs", "path", "url", "http", "https", "crypto", "child_process", "stream", "zlib"]) require(name);
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, params } = JSON.parse(line);
  const serverInfo = { name: "bench", version: "1" };
  const result = { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
});
"""
HELLO = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}\n'
)


def left_out(name: str) -> str | None:
    """Why this machine cannot be measured; None: it can."""
    machine = capabilities()
    if machine.landlock_abi < landlock.RENAMES_ABI or not machine.has_filters:
        return "this machine has no Landlock, or no seccomp"
    if name == "sandbox-bwrap":
        return machine.why_no_bwrap() or _why_no_server()
    return None


def _why_no_server() -> str | None:
    try:
        node_packages((PACKAGE,))
    except Unavailable as reason:
        return str(reason)
    return None


def sandbox_start(effort: Effort) -> Finding:
    """`guard` and `contained` against none."""
    sandboxes = {"off": OFF, "guard": None, "contained": CONTAINED}
    timed: dict[str, Callable[[], float]] = {
        name: partial(started, each, "/bin/true") for name, each in sandboxes.items()
    }
    samples = spawned_in_turn(timed, effort.spawns * 3)
    added = max(added_in_rounds(samples, name, "off") for name in ("guard", "contained"))
    verdict = Verdict("what `guard` and `contained` add to the start of a program", added, 0.001, False, "s")
    return Finding("sandbox-start", "starting `/bin/true` in each sandbox", values_of(samples, "s"), verdict)


def sandbox_bwrap(effort: Effort) -> Finding:
    """Every sandbox against none, for servers in Node: from their start to their answer to `initialize`."""
    node = shutil.which("node") or "node"
    server = str(node_packages((PACKAGE,)) / "node_modules" / ".bin" / PROGRAM)
    sandboxes = {"off": OFF, "guard": None, "contained": CONTAINED, "bwrap": BWRAP}
    with tempfile.TemporaryDirectory() as folder:
        timed: dict[str, Callable[[], float]] = {
            name: partial(started, each, server, folder, said=HELLO) for name, each in sandboxes.items()
        }
        for name in ("off", "bwrap"):
            timed[f"{name}, small"] = partial(started, sandboxes[name], node, "-e", SMALL_SERVER, said=HELLO)
        samples = spawned_in_turn(timed, effort.spawns)
    share = share_in_rounds(samples, "bwrap", "off")
    verdict = Verdict("the start of `server-filesystem` with `bwrap`, to its first answer", share, 1.1, False, "×")
    return Finding("sandbox-bwrap", "starting a server in Node, to its first answer", values_of(samples, "s"), verdict)


def started(sandbox: SandboxConfig | None, program: str, *args: str, said: bytes = b"") -> float:
    """How long it took until the program had ended, or answered what was `said` to it, with all that is decided
    before."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.path.expanduser("~")}
    config = ServerConfig(name="bench", command=program, args=args, sandbox=sandbox)
    start = perf_counter()
    enforced = enforce(sandbox_of(config, environment, None, Owner("/bench.json", "bench")))
    launch = enforced.launch
    command = [*launch.wrapper, program, *args]
    found = enforced.sandbox
    seconds = 0.0

    def run() -> None:
        nonlocal seconds
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=found.environment,
            cwd=found.folder,
            pass_fds=launch.descriptors,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            if said:
                process.stdin.write(said)
                process.stdin.flush()
                answer = process.stdout.readline()
                seconds = perf_counter() - start
                if b'"result"' not in answer:
                    raise BenchError(f"`{program}` did not answer in this sandbox: {answer!r}")
            process.stdin.close()
            if process.wait(EXIT_DEADLINE):
                raise BenchError(f"`{program}` failed in this sandbox: {process.returncode}")
        seconds = seconds or perf_counter() - start

    start_confined(launch.confinement, run)
    launch.abandon()
    return seconds
