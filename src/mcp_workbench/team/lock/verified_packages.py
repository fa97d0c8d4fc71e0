"""Whether what a package runner starts is what was recorded when the server was added.

npm and PyPI name the content of each version by a hash. `add` records it in the lock file; before such a server starts,
npm or uv fetch the package and it is compared, while nothing of the package has run. Covers the package itself, not
what it depends on, and what was installed, not what was changed in its folder afterwards.

Runs nothing itself: `run` starts a program in the server's own sandbox and environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.errors import DownstreamError
from mcp_workbench.team.lock.lock_file import MAX_LOCK_FILE_BYTES, LockedServer, LockFile
from mcp_workbench.team.lock.packages import is_pinned, package_of

# The options before a package that change nothing about where it comes from.
_HARMLESS_OPTIONS: Final = frozenset({"-y", "--yes", "-q", "--quiet", "--"})
_MAX_OUTPUT_LENGTH: Final = 300
# Lists of installed packages are some hundred kilobytes.
MAX_TREE_BYTES: Final = 64 * 1024 * 1024
_BUILT: Final = ".mcp-workbench-built"

# Runs a program with these arguments, this input and in this folder (None: the server's). Returns its exit status and
# what it said.
Run = Callable[[Sequence[str], bytes, str | None], tuple[int, str]]


class _Installed(Struct):
    version: str = ""
    integrity: str = ""
    hasInstallScript: bool = False


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
            f"whether its package was recorded cannot be known: `{lock_path}` cannot be read ({error})",
            hint="restore the file, or delete it: `mcp-workbench team lock` writes a new one",
        ) from None
    locked = found.server(toolbox, server) if found.config == config_name else None
    return locked if locked is not None and locked.integrity else None


def verify(locked: LockedServer, config: ServerConfig, label: str, environment: Mapping[str, str], run: Run) -> None:
    """Raises `DownstreamError` unless the package that this server starts is the recorded one. May install it."""
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
    if runner == "npx" and kind == "npm" and named == spec:
        found = _npm(spec, locked.integrity, environment, run)
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


def _npm(spec: str, hashes: Sequence[str], environment: Mapping[str, str], run: Run) -> str:
    """The hash of the package that npx has installed, or installs now. Nothing of it runs unless it is one of these."""
    cache = environment.get("npm_config_cache") or os.path.join(environment.get("HOME", ""), ".npm")
    # How npx names the folder for a package.
    folder = os.path.join(cache, "_npx", hashlib.sha512(spec.encode()).hexdigest()[:16])
    name = spec[: spec.index("@", 1)]
    tree = _tree(folder)
    if f"node_modules/{name}" not in tree.packages:
        npm = _beside("npm", environment)
        words = (npm, "exec", "--yes", "--ignore-scripts", f"--package={spec}", "--", "node", "-e", "0")
        _succeed(run(words, b"", None), f"npm cannot install `{spec}`")
        tree = _tree(folder)
    installed = tree.packages.get(f"node_modules/{name}", _Installed())
    if not installed.integrity:
        raise DownstreamError(f"it is withheld: npm does not say what it has installed for `{spec}`")
    if installed.integrity in hashes and any(each.hasInstallScript for each in tree.packages.values()):
        _build(folder, installed.integrity, environment, run)
    return installed.integrity


def _build(folder: str, integrity: str, environment: Mapping[str, str], run: Run) -> None:
    """Run what packages want to be run after they were installed, once."""
    mark = os.path.join(folder, _BUILT)
    try:
        with open(mark, encoding="utf-8") as file:
            if file.read(_MAX_OUTPUT_LENGTH) == integrity:
                return
    except (OSError, UnicodeError):
        pass
    _succeed(run((_beside("npm", environment), "rebuild"), b"", folder), "npm cannot build what it has installed")
    with open(mark, "w", encoding="utf-8") as file:
        file.write(integrity)


def _tree(folder: str) -> _Tree:
    try:
        with open(os.path.join(folder, "node_modules", ".package-lock.json"), "rb") as file:
            return msgspec.json.decode(file.read(MAX_TREE_BYTES), type=_Tree)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return _Tree()


def _pypi(spec: str, hashes: Sequence[str], environment: Mapping[str, str], run: Run) -> str:
    """One of the hashes, if that is what uv has, or fetches now."""
    folder = tempfile.mkdtemp(dir=environment.get("TMPDIR"))
    try:
        words = (_beside("uv", environment), "pip", "install", "--quiet", "--no-deps", "--require-hashes")
        line = " ".join((spec, *(f"--hash={each}" for each in hashes)))
        status, said = run((*words, "--target", folder, "-r", "-"), f"{line}\n".encode(), None)
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
