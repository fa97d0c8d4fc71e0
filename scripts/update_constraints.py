"""Resolve every dependency again and write the constraints files: versions and hashes, and no address of an index.

`constraints.txt` holds what the program and its build need, `constraints-dev.txt` what the `dev` extra adds to that,
`constraints-release.txt` what uploads a release, which needs nothing of the two.

pip resolves (`--dry-run --report`), once for each interpreter given with `--python`, since only the interpreter that
runs pip evaluates environment markers rightly. The hashes come from the index that pip is configured for: those of
every wheel of the chosen version that Linux or macOS and CPython 3.11 to 3.14 can use, whichever machine runs this.
"""

from __future__ import annotations

import argparse
import html.parser
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = (11, 12, 13, 14)
# Where people run us; a pin without a wheel for one of these is reported.
PLATFORMS = ("manylinux.*x86_64", "manylinux.*aarch64", "macosx.*(arm64|universal2)")
# One wheel without dependencies, which does trusted publishing: less to pin than an action with an image behind it.
RELEASE = ["uv"]
# The site needs more than the tests do: Debian 12 has Python 3.11.2, where everything else has to work.
MARKERS = dict.fromkeys(("pymdown-extensions", "zensical"), " ; python_full_version >= '3.11.5'")
# Needed there alone, by `valkey`.
MARKERS["async-timeout"] = " ; python_full_version < '3.11.3'"

HEADER = """\
# {what}, by version and sha256. Written by `make constraints`; do not edit.
# The hashes are those of the wheels for Linux and macOS, CPython 3.11 to 3.14. Which index serves them is pip's matter.
"""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(python: str, requirements: list[str]) -> dict[str, str]:
    """The versions that pip would install into an empty environment of this interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--only-binary", ":all:"]
        options = ["--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*command, *options, *requirements], check=True)
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {normalized(item["metadata"]["name"]): item["metadata"]["version"] for item in installed}


class Links(html.parser.HTMLParser):
    """The files on one project page of the simple repository API: name and sha256."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = urlsplit(dict(attrs).get("href") or "")
        if tag == "a" and target.fragment.startswith("sha256="):
            self.files[unquote(target.path.rpartition("/")[2])] = target.fragment.removeprefix("sha256=")


def index_address() -> str:
    """What pip is configured for, else pip's own default; so that no address needs to be written here."""
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    if configured.returncode == 0:
        return configured.stdout.strip().rstrip("/")
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url)


def usable(python: str, abi: str, platform: str) -> bool:
    """Whether the tags of a wheel fit any system we support."""
    if platform != "any" and not re.search("linux|macosx", platform):
        return False
    for minor in PYTHONS:
        if f"cp3{minor}" in python.split(".") and abi in (f"cp3{minor}", "none"):
            return True
    stable = re.fullmatch(r"cp3(\d+)", python)
    if abi == "abi3" and stable and int(stable[1]) <= PYTHONS[-1]:
        return True
    return abi == "none" and "py3" in python.split(".")


def wheels(address: str, name: str, version: str) -> dict[str, str]:
    """File name to sha256, for every usable wheel of one version."""
    with urllib.request.urlopen(f"{address}/{name}/", timeout=60) as page:
        links = Links()
        links.feed(page.read().decode("utf-8"))
    found: dict[str, str] = {}
    for file, digest in links.files.items():
        parts = file.removesuffix(".whl").split("-")
        if file.endswith(".whl") and parts[1] == version and usable(*parts[-3:]):
            found[file] = digest
    return found


def gaps(files: Iterable[str]) -> list[str]:
    """The supported combinations of interpreter and platform for which no wheel exists."""
    tags = [file.removesuffix(".whl").split("-")[-3:] for file in files]
    missing = []
    for minor in PYTHONS:
        for platform in PLATFORMS:
            for python, abi, where in tags:
                fits = f"cp3{minor}" in python or abi in ("abi3", "none")
                if fits and (where == "any" or re.search(platform, where)):
                    break
            else:
                missing.append(f"3.{minor} on {platform}")
    return missing


def resolve_all(pythons: list[str], requirements: list[str]) -> dict[str, str]:
    """One version for each package, the same for every interpreter, or an exit that names the two."""
    pins: dict[str, str] = {}
    for python in pythons:
        for name, version in resolve(python, requirements).items():
            if pins.setdefault(name, version) != version:
                sys.exit(f"`{name}`: {python} resolves to {version}, another one to {pins[name]}")
    return pins


def write(path: Path, what: str, pins: dict[str, str], address: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        offered = dict(zip(pins, pool.map(lambda pin: wheels(address, *pin), pins.items()), strict=True))
    lines = [HEADER.format(what=what)]
    for name in sorted(pins):
        if not offered[name]:
            sys.exit(f"`{name}=={pins[name]}` has no usable wheel")
        if missing := gaps(offered[name]):
            print(f"warning: `{name}=={pins[name]}` has no wheel for {', '.join(missing)}", file=sys.stderr)
        hashes = " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(offered[name].values()))
        lines.append(f"{name}=={pins[name]}{MARKERS.get(name, '')} \\\n{hashes}\n")
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path.name}: {len(pins)} packages, {sum(map(len, offered.values()))} files", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the constraints files.")
    parser.add_argument("--python", action="append", help="an interpreter to resolve for (may be repeated)")
    options = parser.parse_args()
    pythons = options.python or [sys.executable]

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    everything = resolve_all(pythons, needed + project["project"]["optional-dependencies"]["dev"])
    # Resolved again without the extra, but held to the versions above: the two files are installed side by side.
    held = [f"{name}=={version}" for name, version in everything.items()]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(held))
        file.flush()
        runtime = resolve_all(pythons, [*needed, "--constraint", file.name])
    dev = {name: version for name, version in everything.items() if name not in runtime}

    address = index_address()
    write(ROOT / "constraints.txt", "What MCP Workbench runs on and is built with", runtime, address)
    write(ROOT / "constraints-dev.txt", "What tests and linters need besides constraints.txt", dev, address)
    write(ROOT / "constraints-release.txt", "What uploads a release", resolve_all(pythons, RELEASE), address)
    return 0


if __name__ == "__main__":
    sys.exit(main())
