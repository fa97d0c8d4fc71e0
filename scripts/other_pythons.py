"""Run the quick tests on every other Python that this machine has, and the system's as an ordinary user.

Names of interpreters are looked up on `PATH` and among pyenv's; nothing is installed but packages into environments of
their own. What is not there is named. If this runs as root, the system's Python runs the tests as `nobody`, so that
those that root skips run too.

An interpreter that cannot be set up is named and left out; if it is the system's, this program fails.

    python -m scripts.other_pythons
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Those that we support (pyproject.toml).
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEM_PYTHON = "/usr/bin/python3"
ORDINARY_USER = "nobody"
# The quick tests take a minute on two cores; installing what they need takes as long at worst.
RUN_TIMEOUT = 600.0
# A test that loses a race beside others gets a second try, as in the run on our own Python.
QUICK = ("-m", "scripts.second_try", "-m", "pytest", "-q", "-n", "2", "--hypothesis-profile", "quick")
# Tests with processes of which root skips a part.
NOT_AS_ROOT = ("tests/faults/test_broken_configs.py", "tests/end_to_end/test_environment.py")
_FULL_VERSION = "import sys; print(*sys.version_info[:3], sep='.')"


class Interpreter(NamedTuple):
    path: str
    version: str
    is_system: bool = False

    def __str__(self) -> str:
        return f"Python {self.version} ({self.path})"


def version_of(path: str) -> str | None:
    """The version of an interpreter; None if it does not run, as pyenv's shim of a version that is not chosen."""
    try:
        done = subprocess.run([path, "-c", _FULL_VERSION], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Where interpreters are looked for."""
    pyenv = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/")) / ".pyenv") / "versions"
    named = [shutil.which(f"python{version}", path=environ.get("PATH")) for version in VERSIONS]
    kept = [str(path) for version in VERSIONS for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    return [*filter(None, named), *kept]


def find(
    paths: Sequence[str], own: str, of: Callable[[str], str | None] = version_of
) -> tuple[list[Interpreter], list[str]]:
    """One interpreter of each version but our own, the system's besides, and the versions that are not there."""
    found: dict[str, Interpreter] = {}
    for path in paths:
        version = of(path)
        if version is not None and _minor(version) in VERSIONS:
            found.setdefault(_minor(version), Interpreter(path, version))
    missing = [version for version in VERSIONS if version not in found and version != _minor(own)]
    others = [found[version] for version in VERSIONS if version in found and version != _minor(own)]
    system = of(SYSTEM_PYTHON)
    if system is not None and _minor(system) in VERSIONS:
        others = [each for each in others if each.version != system]
        others.append(Interpreter(SYSTEM_PYTHON, system, is_system=True))
    return others, missing


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def run(command: Sequence[str], folder: Path, environ: Mapping[str, str], user: str | None = None) -> int:
    """Run a program to its end, or until it has taken too long."""
    identity = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    with subprocess.Popen(command, cwd=folder, env=environ, start_new_session=True, **identity) as process:  # type: ignore[call-overload]
        try:
            return int(process.wait(RUN_TIMEOUT))
        except subprocess.TimeoutExpired:
            print(f"stopped after {RUN_TIMEOUT:.0f} s", file=sys.stderr, flush=True)
            return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def copy_checkout(target: Path) -> None:
    """Everything under version control, and what would be if it were added, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, stdout=-1, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_tests(interpreter: Interpreter) -> int | None:
    """The exit status of the tests; None if they cannot be run with this interpreter."""
    with tempfile.TemporaryDirectory(prefix="wb-python-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        checkout, home = folder / "checkout", folder / "home"
        home.mkdir()
        environ = {**os.environ, "HOME": str(home), "TMPDIR": str(folder)}
        copy_checkout(checkout)
        python = str(folder / "venv" / "bin" / "python")
        user = ORDINARY_USER if interpreter.is_system and os.geteuid() == 0 else None
        for preparation in (
            [interpreter.path, "-m", "venv", str(folder / "venv")],
            [python, "scripts/install.py", "--dev"],
        ):
            if run(preparation, checkout, os.environ) != 0:
                return None
        if user is not None:
            account = pwd.getpwnam(user)
            for path in (folder, *folder.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
        status = run([python, *QUICK, "-m", "not processes"], checkout, environ, user)
        if status == 0 and user is not None:
            status = run([python, *QUICK, *NOT_AS_ROOT], checkout, environ, user)
        return status


def main() -> int:
    own = ".".join(map(str, sys.version_info[:3]))
    interpreters, missing = find(candidates(os.environ), own)
    if missing:
        print(f"Not on this machine, so not tested: Python {', '.join(missing)}", flush=True)
    failed = False
    for interpreter in interpreters:
        print(f"\nThe quick tests on {interpreter}", flush=True)
        status = run_tests(interpreter)
        if status is None:
            print(f"Not tested: {interpreter} cannot be set up", flush=True)
            if interpreter.is_system:
                print("\nhint: on Debian and Ubuntu install `python3-venv`", flush=True)
        failed = failed or (interpreter.is_system if status is None else status != 0)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
