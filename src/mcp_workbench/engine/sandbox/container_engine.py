"""What `podman` and `docker` on this machine can do: whether they work at all, and which limits they enforce."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

PODMAN: Final = "podman"
DOCKER: Final = "docker"
# A daemon that has just been woken takes a while.
_INFO_TIMEOUT: Final = 10.0


class ContainerEngine(NamedTuple):
    name: str
    program: str = ""
    # What is in the way of using it; None: nothing.
    trouble: str | None = None
    version: str = ""
    is_rootless: bool = False
    limits_memory: bool = False
    limits_processes: bool = False
    # The file with its filter of system calls, if it names one.
    filter_path: str = ""

    @property
    def maps_root(self) -> bool:
        """Whether root in a container is this user, and nobody else is."""
        return self.name == DOCKER and self.is_rootless


def look(name: str, environ: Mapping[str, str] = os.environ, seconds: float = _INFO_TIMEOUT) -> ContainerEngine:
    """Ask an engine about itself."""
    program = shutil.which(name, path=environ.get("PATH"))
    if program is None:
        return ContainerEngine(name, trouble=f"{name} is not installed")
    try:
        said = subprocess.run(
            (program, "info", "--format", "{{json .}}"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            env=dict(environ),
        )
    except subprocess.TimeoutExpired:
        return ContainerEngine(name, program, f"{name} did not answer within {seconds:g} s")
    except OSError as error:
        return ContainerEngine(name, program, f"{name}: {error.strerror}")
    if said.returncode:
        lines = said.stderr.decode(errors="replace").strip().splitlines()
        return ContainerEngine(name, program, f"{name}: {lines[-1] if lines else f'exit status {said.returncode}'}")
    try:
        return described(name, program, json.loads(said.stdout))
    except (ValueError, TypeError, AttributeError, KeyError):
        return ContainerEngine(name, program, f"{name} does not say what it can do (`{name} info`)")


def described(name: str, program: str, info: Mapping[str, Any]) -> ContainerEngine:
    """What an engine's `info` says. `docker` may be Podman under another name. Pure."""
    host = info.get("host")
    if host is None:
        options = info.get("SecurityOptions") or ()
        return ContainerEngine(
            name,
            program,
            version=info["ServerVersion"],
            is_rootless=any("rootless" in each for each in options),
            limits_memory=info.get("MemoryLimit") is True,
            limits_processes=info.get("PidsLimit") is True,
        )
    # With the first version of control groups, a rootless Podman ignores limits.
    is_rootless = host["security"]["rootless"] is True
    controllers = host.get("cgroupControllers") or ()
    is_limiting = not is_rootless or host["cgroupVersion"] == "v2"
    return ContainerEngine(
        PODMAN,
        program,
        version=info["version"]["Version"],
        is_rootless=is_rootless,
        limits_memory=is_limiting and "memory" in controllers,
        limits_processes=is_limiting and "pids" in controllers,
        filter_path=host["security"].get("seccompProfilePath") or "",
    )
