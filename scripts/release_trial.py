"""Everything that a release does but publish: `make release-trial`, or `python -m scripts.release_trial [--name NAME]`.

Builds wheel, sdist and the bill of materials from what git has, checks what is in them, installs the wheel with pinned
dependencies into an empty environment, walks through the demo there, and asks `check_release` for its objections,
except those about the branch and the tag. `--name` tries another name of the distribution: it stands in one place,
`[project] name` of pyproject.toml, so that publishing under another one needs no other change.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.check_release import (
    VERSION_FILE,
    Repository,
    check_changelog,
    check_documents,
    declared_version,
    parse_version,
)
from scripts.other_pythons import copy_checkout

ROOT = Path(__file__).resolve().parent.parent

# Beside the package and its metadata, the wheel carries the documents for users.
DOCUMENTS = ("start", "guides", "reference")
NEEDED_IN_SDIST = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "Makefile",
    "constraints.txt",
    "tests/conftest.py",
)
_NAME = re.compile(r'^name = "[^"]+"$', re.MULTILINE)
_LEFTOVERS = re.compile(r"__pycache__|\.pyc$|\.pytest_cache|\.venv/|\.env$|\.cache/")


class Refused(Exception):
    """What was built is not what should be released."""


def rename(settings: str, name: str) -> str:
    """Return pyproject.toml with another name of the distribution."""
    renamed, count = _NAME.subn(f'name = "{name}"', settings, count=1)
    if count != 1:
        raise Refused("pyproject.toml has no name")
    return renamed


def check_wheel(names: Iterable[str], checkout: Path) -> None:
    """Raises `Refused` unless the wheel has the package, the documents for users, its metadata, and nothing else."""
    found = set(names)
    source = checkout / "src"
    wanted = {path.relative_to(source).as_posix() for path in (source / "mcp_workbench").rglob("*") if path.is_file()}
    for kind in DOCUMENTS:
        wanted |= {f"mcp_workbench/documents/{kind}/{path.name}" for path in (checkout / "docs" / kind).glob("*.md")}
    own = {name for name in found if not name.partition("/")[0].endswith(".dist-info")}
    wanted = {name for name in wanted if not _LEFTOVERS.search(name)}
    if own != wanted:
        raise Refused(f"the wheel lacks {sorted(wanted - own)} and has {sorted(own - wanted)}")
    metadata = {name.rpartition("/")[2] for name in found - own}
    if missing := {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE"} - metadata:
        raise Refused(f"the wheel's metadata lacks {sorted(missing)}")


def check_sdist(names: Iterable[str]) -> None:
    """Raises `Refused` unless the sdist can be built and tested, and holds nothing that tools left behind."""
    inside = {name.partition("/")[2] for name in names}
    if missing := [name for name in NEEDED_IN_SDIST if name not in inside]:
        raise Refused(f"the sdist lacks {missing}")
    if left := sorted(name for name in inside if _LEFTOVERS.search(name)):
        raise Refused(f"the sdist has {left}")


def build(checkout: Path) -> tuple[Path, Path]:
    """Build both. Returns wheel and sdist."""
    _run([sys.executable, "-m", "hatchling", "build"], checkout)
    (wheel,), (sdist,) = (checkout / "dist").glob("*.whl"), (checkout / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        check_wheel(archive.namelist(), checkout)
    with tarfile.open(sdist) as archive:
        check_sdist(archive.getnames())
    return wheel, sdist


def use(wheel: Path, checkout: Path, folder: Path) -> None:
    """Install the wheel into an empty environment, and use it there as a newcomer would."""
    _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    _run([*pip, "--require-hashes", "--requirement", str(checkout / "constraints.txt")], folder)
    _run([*pip, "--no-deps", "--no-index", str(wheel)], folder)
    command = str(folder / "venv" / "bin" / "mcp-workbench")
    home = folder / "home"
    home.mkdir()
    environ = {"PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
    for words in (["--version"], ["help", "topics"], ["demo"]):
        _run([command, *words], home, environ)


def objections(checkout: Path, repository: Path) -> list[str]:
    """Return why what is committed could not be released, whatever the branch and the tag."""
    version = declared_version((checkout / VERSION_FILE).read_text("utf-8")) or ""
    if (parsed := parse_version(version)) is None:
        return [f"`{version}` is no version"]
    found = check_changelog((checkout / "CHANGELOG.md").read_text("utf-8"), version)
    return found + check_documents(Repository(repository), "HEAD", parsed)


def list_materials(folder: Path) -> None:
    """Write the bill of materials. Raises `Refused` if it names no components."""
    path = folder / "materials.cdx.json"
    _run([sys.executable, "-m", "scripts.write_sbom", str(path)], ROOT)
    if not json.loads(path.read_bytes()).get("components"):
        raise Refused("the bill of materials has no components")


def _run(command: Sequence[str], folder: Path, environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Refused(
            f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.release_trial")
    parser.add_argument("--name", help="the name of the distribution, instead of that in pyproject.toml")
    name = parser.parse_args(arguments).name
    with tempfile.TemporaryDirectory(prefix="wb-release-", ignore_cleanup_errors=True) as place:
        checkout = Path(place) / "checkout"
        copy_checkout(checkout)
        settings = checkout / "pyproject.toml"
        try:
            if name is not None:
                settings.write_text(rename(settings.read_text("utf-8"), name), "utf-8")
            wheel, sdist = build(checkout)
            print(f"built and checked: {wheel.name} ({wheel.stat().st_size:,} bytes), {sdist.name}", flush=True)
            list_materials(Path(place))
            use(wheel, checkout, Path(place))
            if refused := objections(checkout, ROOT):
                raise Refused("it may not be released:\n" + "\n".join(refused))
        except Refused as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print("listed what it is made of, installed from the wheel into an empty environment, and walked through the demo")
    print("what is left for a person: the tag (docs/internals/principles.md, Releases)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
