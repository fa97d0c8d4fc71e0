"""Starts each server of `published_servers.txt` without a sandbox, in `guard` and in `contained`, and says where they
differ: `python -m tests.real_servers.many_servers TABLE`. Run it as a user without rights: it runs strangers' programs.

Each is installed once, alone, and deleted afterwards; what TABLE has already is not tried again.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.end_to_end.harness import Workbench, open_toolbox, opened, unavailable
from tests.support.client import Json
from tests.support.packages import python_packages

LIST = Path(__file__).with_name("published_servers.txt")
PROFILES = ("off", "guard", "contained")
INSTALL_TIMEOUT = 400
STARTUP_TIMEOUT = 60
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")


class Published(NamedTuple):
    registry: str
    package: str
    program: str
    args: tuple[str, ...]
    env: dict[str, str]


def published_servers() -> Iterator[Published]:
    for line in LIST.read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        registry, package, program, *rest = line.split()
        env = dict(word.split("=", 1) for word in rest if _VARIABLE.match(word))
        yield Published(registry, package, program, tuple(word for word in rest if not _VARIABLE.match(word)), env)


def install(server: Published, folder: Path) -> Path:
    """The server's program. Raises `CalledProcessError` or `TimeoutExpired`."""
    if server.registry == "npm":
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), server.package]
        programs = folder / "node_modules" / ".bin"
    else:
        uv = str(python_packages(("uv==0.13.7",)) / "uv")
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        programs = folder / "bin"
        command = [uv, "pip", "install", "--quiet", "--python", str(programs / "python"), server.package]
    _run(command)
    return programs / server.program


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT, stdin=subprocess.DEVNULL)


async def outcome(server: Published, program: Path, profile: str) -> str:
    """How many tools it lists in this profile, or why it does not."""
    with tempfile.TemporaryDirectory() as path:
        work = Path(path) / "work"
        work.mkdir()

        def filled(text: str) -> str:
            return text.replace("{folder}", str(work))

        entry: Json = {
            "command": str(program),
            "args": [filled(word) for word in server.args],
            "env": {name: filled(value) for name, value in server.env.items()},
            "startupTimeout": STARTUP_TIMEOUT,
            "sandbox": profile,
        }
        async with Workbench(Path(path)).serving({"box": {"s": entry}}, "--no-cache") as client:
            result = await open_toolbox(client, "box")
            failed = unavailable(result)
            if failed:
                return f"fails: {' '.join(failed['s']['reason'].split())[:600]}"
            return str(len(opened(result)["tools"]))


async def tried(server: Published) -> Json:
    with tempfile.TemporaryDirectory(prefix="census-") as folder:
        try:
            program = install(server, Path(folder))
        except (subprocess.SubprocessError, OSError) as error:
            said = getattr(error, "stderr", None) or str(error).encode()
            return {"package": server.package, "install": said.decode(errors="replace")[-300:]}
        found: Json = {"package": server.package}
        for profile in PROFILES:
            try:
                async with asyncio.timeout(2 * STARTUP_TIMEOUT):
                    found[profile] = await outcome(server, program, profile)
            except Exception as error:
                found[profile] = f"fails: {error!r}"[:600]
        shutil.rmtree(folder, ignore_errors=True)
        return found


def summary(rows: list[Json]) -> str:
    def starts(row: Json, profile: str) -> bool:
        return str(row.get(profile)).isdecimal()

    installed = [row for row in rows if "install" not in row]
    counts = ", ".join(f"{profile} {sum(starts(row, profile) for row in installed)}" for profile in PROFILES)
    different = [row for row in installed if len({starts(row, profile) for profile in PROFILES}) > 1]
    different += [
        row
        for row in installed
        if row not in different and starts(row, "off") and len({row[profile] for profile in PROFILES}) > 1
    ]
    lines = [f"{len(rows)} tried, {len(installed)} installed; list their tools: {counts}"]
    lines += [f"differs: {json.dumps(row)}" for row in different]
    lines += [
        f"starts nowhere: {row['package']}: {row['off'][:200]}"
        for row in installed
        if not any(starts(row, profile) for profile in PROFILES)
    ]
    lines += [f"not installed: {row['package']}: {row['install']}" for row in rows if "install" in row]
    return "\n".join(lines)


def main() -> None:
    table = Path(sys.argv[1])
    rows = [json.loads(line) for line in table.read_text().splitlines()] if table.exists() else []
    known = {row["package"] for row in rows}
    for server in published_servers():
        if server.package not in known:
            rows.append(asyncio.run(tried(server)))
            with table.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    print(summary(rows))


if __name__ == "__main__":
    main()
