"""What a sandbox adds to the start of a server: of any program, and of one in Node.

Owns the starting and its clock. Starts programs as the engine does, without a workbench around it, whose own start
would hide the difference.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

from bench.calls import Effort
from bench.client import BenchError
from bench.findings import Finding, Verdict, share_of, values_of
from bench.startup import spawned_in_turn
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox.of_server import Owner, enforce, sandbox_of
from mcp_workbench.engine.transport.confinement import start_confined

OFF = SandboxConfig(profile="off")
CONTAINED = SandboxConfig(profile="contained")
BWRAP = SandboxConfig(profile="contained", backend="bwrap")


def sandbox_start(effort: Effort) -> Finding:
    """`guard` and `contained` against none."""
    sandboxes = {"off": OFF, "guard": None, "contained": CONTAINED}
    timed: dict[str, Callable[[], float]] = {
        name: partial(started, each, "/bin/true") for name, each in sandboxes.items()
    }
    samples = spawned_in_turn(timed, effort.spawns * 3)
    added = max(median(samples[name]) for name in ("guard", "contained")) - median(samples["off"])
    verdict = Verdict("what `guard` and `contained` add to the start of a program", added, 0.001, False, "s")
    return Finding("sandbox-start", "starting `/bin/true` in each sandbox", values_of(samples, "s"), verdict)


def sandbox_bwrap(effort: Effort) -> Finding:
    """`bwrap` against none, for a program in Node as large as a server: npm, which is there wherever Node is."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("bwrap") is None:
        raise BenchError("`sandbox-bwrap` needs npm and bwrap")
    timed: dict[str, Callable[[], float]] = {
        "off": partial(started, OFF, npm, "--version"),
        "bwrap": partial(started, BWRAP, npm, "--version"),
    }
    samples = spawned_in_turn(timed, effort.spawns)
    verdict = Verdict("the start of a program in Node with `bwrap`", share_of(samples, "bwrap", "off"), 1.1, False, "×")
    return Finding("sandbox-bwrap", "starting a program in Node", values_of(samples, "s"), verdict)


def started(sandbox: SandboxConfig | None, program: str, *args: str) -> float:
    """How long it took until the program had ended, with all that is decided before."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.path.expanduser("~")}
    config = ServerConfig(name="bench", command=program, args=args, sandbox=sandbox)
    start = perf_counter()
    enforced = enforce(sandbox_of(config, environment, None, Owner("/bench.json", "bench")))
    launch = enforced.launch
    command = [*launch.wrapper, program, *args]
    found = enforced.sandbox

    def run() -> None:
        subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            env=found.environment,
            cwd=found.folder,
            pass_fds=launch.descriptors,
            check=True,
        )

    start_confined(launch.confinement, run)
    seconds = perf_counter() - start
    launch.abandon()
    return seconds
