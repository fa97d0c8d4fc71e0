"""Podman or Docker as a program that runs the server on this machine. Copied to a folder on PATH under one of their
names.

What it starts belongs to nobody, as with Docker's daemon: it goes on when the program that started it is killed. Beside
itself it leaves `calls` (what it was asked for, a JSON list in each line) and `containers/NAME` (process and label).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONTAINERS = HERE / "containers"
IS_PODMAN = Path(__file__).name == "podman"
SWITCHES = {"--rm", "--interactive", "--init", "--read-only"}


def main() -> int:
    with (HERE / "calls").open("a") as file:
        file.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\n")
    CONTAINERS.mkdir(exist_ok=True)
    action, *rest = sys.argv[1:]
    return {"info": info, "run": run, "rm": remove, "ps": listed}[action](rest)


def info(rest: list[str]) -> int:
    if (HERE / "no-daemon").exists():
        print("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", file=sys.stderr)
        return 1
    # Without a `pids` controller if the file says so.
    controllers = [] if (HERE / "no-limits").exists() else ["memory", "pids"]
    host = {"security": {"rootless": os.getuid() != 0}, "cgroupVersion": "v2", "cgroupControllers": controllers}
    docker = {"ServerVersion": "28.2.2", "MemoryLimit": True, "PidsLimit": bool(controllers), "SecurityOptions": []}
    print(json.dumps({"host": host, "version": {"Version": "5.4.0"}} if IS_PODMAN else docker))
    return 0


def run(rest: list[str]) -> int:
    words = iter(rest)
    options: dict[str, list[str]] = {}
    image = ""
    for word in words:
        if not word.startswith("--"):
            image = word
            break
        options.setdefault(word, []).append("" if word in SWITCHES else next(words))
    if image == "missing":
        print("Error: missing: image not known", file=sys.stderr)
        return 125
    environment = {name: os.environ[name] for name in options.get("--env", ())}
    for path in options["--env-file"]:
        environment |= dict(line.split("=", 1) for line in Path(path).read_text().splitlines())
    folder = options.get("--workdir", ["/"])[0]
    command = [*options.get("--entrypoint", ["/bin/cat"]), *words]
    server = subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True)
    (name,), (label,) = options["--name"], options["--label"]
    (CONTAINERS / name).write_text(json.dumps([server.pid, label]))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: os.killpg(server.pid, received))
    status = server.wait()
    (CONTAINERS / name).unlink(missing_ok=True)
    return status if status >= 0 else 128 - status


def remove(rest: list[str]) -> int:
    name = next(word for word in rest if word.startswith("mcp-workbench-"))
    place = CONTAINERS / name
    if not place.exists():
        return 0 if "--ignore" in rest else 1
    os.killpg(json.loads(place.read_text())[0], signal.SIGKILL)
    place.unlink(missing_ok=True)
    return 0


def listed(rest: list[str]) -> int:
    wanted = rest[rest.index("--filter") + 1].removeprefix("label=")
    for place in CONTAINERS.iterdir():
        if json.loads(place.read_text())[1] == wanted:
            print(place.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
