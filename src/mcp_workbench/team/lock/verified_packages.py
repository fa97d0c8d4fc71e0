"""Whether what a package runner starts is what was recorded when the server was added.

npm and PyPI name the content of each version by a hash. `add` records it in the lock file; before such a server starts,
npm or uv fetch the package and it is compared, while nothing of the package has run. Covers the package itself, not
what it depends on, and what was installed, not what was changed in its folder afterwards.

What npm has installed is then started as it is: npx would prefer what the folder that the server starts in has under
the same name, and let the project there choose the shell and the Node that run it.

Runs and writes nothing itself: `run` starts a program in the server's own sandbox and environment. The server may have
put links and pipes where it has been.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, field

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.portable_os import NONBLOCK
from mcp_workbench.errors import DownstreamError
from mcp_workbench.team.lock.lock_file import MAX_LOCK_FILE_BYTES, LockedServer, LockFile
from mcp_workbench.team.lock.packages import is_pinned, package_of

# The options before a package that change nothing about where it comes from.
_HARMLESS_OPTIONS: Final = frozenset({"-y", "--yes", "-q", "--quiet", "--"})
_MAX_OUTPUT_LENGTH: Final = 300
# Lists of installed packages are some hundred kilobytes.
MAX_TREE_BYTES: Final = 64 * 1024 * 1024
_BUILT: Final = ".mcp-workbench-built"
# Runs what follows in a folder where no project has a say: settings of a project name registries and programs.
_IN_FOLDER: Final = ("/bin/sh", "-c", 'mkdir -p "$0" && cd "$0" && exec "$@"')
# Runs npm in a folder, and writes to a file once that has succeeded.
_MARKING: Final = ("/bin/sh", "-c", 'cd "$0" && "$1" rebuild && printf %s "$3" >"$2"')

# Runs a program with these arguments and this input. Returns its exit status and what it said.
Run = Callable[[Sequence[str], bytes], tuple[int, str]]


class VerifiedProgram(NamedTuple):
    """What was verified, as it is started."""

    path: str
    args: tuple[str, ...]


class _Installed(Struct):
    version: str = ""
    integrity: str = ""
    hasInstallScript: bool = False
    # Its programs, by name, each with its path in the package.
    bin: dict[str, str] = field(default_factory=dict)


class _Tree(Struct):
    packages: dict[str, _Installed] = field(default_factory=dict)


def recorded(lock_path: str, config_name: str, toolbox: str, server: str) -> LockedServer | None:
    """What the lock file says about a server whose package was recorded; None if it was not. Raises `DownstreamError`
    if the file cannot be read."""
    try:
        with open(lock_path, "rb") as file:
            found = msgspec.json.decode(file.read(MAX_LOCK_FILE_BYTES), type=LockFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DownstreamError(
            f"there is no telling whether its package was recorded: `{lock_path}` cannot be read ({error})",
            hint="restore the file, or delete it: `mcp-workbench team lock` writes a new one",
        ) from None
    locked = found.server(toolbox, server) if found.config == config_name else None
    return locked if locked is not None and locked.integrity else None


def verify(
    locked: LockedServer, config: ServerConfig, label: str, environment: Mapping[str, str], run: Run
) -> VerifiedProgram | None:
    """What to start; None: what its entry says. May install it. Raises `DownstreamError` unless the package that this
    server starts is the recorded one."""
    package = package_of(config)
    accept = f"`mcp-workbench team lock accept {label}`"
    if package != locked.package:
        raise DownstreamError(
            f"it is withheld: it starts `{package}`, and `{locked.package}` was recorded when it was added",
            hint=f"if you changed it, {accept} records the new one",
        )
    runner = os.path.basename(config.command or "")
    kind, _, spec = package.partition(":")
    # Any other option before the package may say that it comes from elsewhere.
    named = next((each for each in config.args if each not in _HARMLESS_OPTIONS), "-")
    program = None
    if runner == "npx" and kind == "npm" and named == spec:
        found, path = _npm(spec, locked.integrity, environment, run)
        program = VerifiedProgram(path, tuple(config.args[config.args.index(spec) + 1 :]))
    elif runner == "uvx" and kind == "pypi" and is_pinned(package) and not named.startswith("-"):
        found = _pypi(spec, locked.integrity, environment, run)
    else:
        raise DownstreamError(
            "it is withheld: its package was recorded, and the way it is started now cannot be verified",
            hint="start it as `mcp-workbench add` writes it, or remove its `integrity` from the lock file",
        )
    if found not in locked.integrity:
        raise DownstreamError(
            f"it is withheld: the content of `{package}` is not what was recorded when it was added ({found})",
            hint=f"find out why a published version has changed; if you trust it, {accept} records the new content",
        )
    return program


def _npm(spec: str, hashes: Sequence[str], environment: Mapping[str, str], run: Run) -> tuple[str, str]:
    """The hash of the package that npx has installed, or installs now, and its program. Nothing of it runs unless it is
    one of these."""
    cache = environment.get("npm_config_cache") or os.path.join(environment.get("HOME", ""), ".npm")
    # How npx names the folder for a package.
    folders = os.path.join(cache, "_npx")
    folder = os.path.join(folders, hashlib.sha512(spec.encode()).hexdigest()[:16])
    name = spec[: spec.index("@", 1)]
    tree = _tree(folder)
    if f"node_modules/{name}" not in tree.packages:
        npm = (_beside("npm", environment), "exec", "--yes", "--ignore-scripts")
        words = (*_IN_FOLDER, folders, *npm, f"--prefix={folders}", f"--package={spec}", "--", "node", "-e", "0")
        _succeed(run(words, b""), f"npm cannot install `{spec}`")
        tree = _tree(folder)
    installed = tree.packages.get(f"node_modules/{name}", _Installed())
    if not installed.integrity:
        raise DownstreamError(f"it is withheld: npm does not say what it has installed for `{spec}`")
    if installed.integrity in hashes and any(each.hasInstallScript for each in tree.packages.values()):
        _build(folder, installed.integrity, environment, run)
    return installed.integrity, _program(os.path.join(folder, "node_modules", name), name, installed.bin, spec)


def _program(package: str, name: str, programs: Mapping[str, str], spec: str) -> str:
    """The one that npx would start."""
    places = set(programs.values())
    place = places.pop() if len(places) == 1 else programs.get(name.rpartition("/")[2])
    path = os.path.normpath(os.path.join(package, place or ""))
    if not path.startswith(package + os.sep):
        raise DownstreamError(f"it is withheld: `{spec}` has no program that npx would start")
    return path


def _build(folder: str, integrity: str, environment: Mapping[str, str], run: Run) -> None:
    """Run what packages want to be run after they were installed, once."""
    mark = os.path.join(folder, _BUILT)
    if _content(mark, _MAX_OUTPUT_LENGTH) == integrity.encode():
        return
    words = (*_MARKING, folder, _beside("npm", environment), mark, integrity)
    _succeed(run(words, b""), "npm cannot build what it has installed")


def _tree(folder: str) -> _Tree:
    try:
        said = _content(os.path.join(folder, "node_modules", ".package-lock.json"), MAX_TREE_BYTES)
        return msgspec.json.decode(said, type=_Tree)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _Tree()


def _content(path: str, limit: int) -> bytes:
    """What a file says that the server may have replaced; empty if there is none."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NONBLOCK)) as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


def _pypi(spec: str, hashes: Sequence[str], environment: Mapping[str, str], run: Run) -> str:
    """One of the hashes, if that is what uv has, or fetches now."""
    folder = tempfile.mkdtemp(dir=environment.get("TMPDIR"))
    try:
        uv = (_beside("uv", environment), "pip", "install", "--quiet", "--no-deps", "--require-hashes")
        line = " ".join((spec, *(f"--hash={each}" for each in hashes)))
        status, said = run((*_IN_FOLDER, "/", *uv, "--target", folder, "-r", "-"), f"{line}\n".encode())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if status and "Hash mismatch" in said:
        return said.rpartition("Computed:")[2].strip()[:_MAX_OUTPUT_LENGTH]
    _succeed((status, said), f"uv cannot install `{spec}`")
    return hashes[0]


def _beside(program: str, environment: Mapping[str, str]) -> str:
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise DownstreamError(f"it is withheld: its package cannot be verified without `{program}`")
    return found


def _succeed(ended: tuple[int, str], what: str) -> None:
    status, said = ended
    if status:
        raise DownstreamError(
            f"it is withheld: its package cannot be verified: {what}: {' '.join(said.split())[-_MAX_OUTPUT_LENGTH:]}",
            hint="if it has no network, `mcp-workbench doctor --sandbox prepare` installs it once",
        )
