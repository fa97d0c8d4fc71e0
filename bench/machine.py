"""Where the numbers were taken: processor, what else kept it busy, system, versions.

Owns nothing but reading them. Refuses to tell names of machines, users or folders.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("mcp-workbench", "msgspec", "uvloop", "orjson")


def describe_machine() -> dict[str, str]:
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def doubt() -> str | None:
    """Why numbers that are taken now should not be trusted; None when there is no reason."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"the machine was busy (load {load:.1f} on {cores} cores): do not trust this" if load > cores else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(from source)" if package == "mcp-workbench" else "(not installed)"
