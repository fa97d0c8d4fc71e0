"""Packages named on the command line: `npm:@scope/name`, `pypi:name@1.2.3`, `oci:ghcr.io/owner/image`.

Owns that notation, and asks the runner's own tools (`npm`, `uv`, `docker`) for the newest version: they know the
mirrors and the credentials of this machine. What was found out is a `server.json` with one package, so that the rules
for strangers' descriptions hold here too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any, Final

from msgspec import MsgspecError
from msgspec.json import decode
from msgspec.structs import replace

from mcp_workbench.engine.config.environment import without_ours
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients.package_rules import fault_of_name
from mcp_workbench.setup.clients.server_json import Package

# Asking takes a round trip or two; a mirror that hangs must not hold the command for ever.
PACKAGE_TOOL_TIMEOUT: Final = 60.0
_MAX_SHOWN: Final = 200
PACKAGE_KINDS: Final = ("npm", "pypi", "oci")
# A tag or a range would be another version tomorrow.
_SEMANTIC_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", re.MULTILINE)
_HASHES: Final = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def package_named(source: str) -> Package | None:
    """Return the package that a source names; None if it names something else. Raises `ConfigError` for a name that the
    registry cannot have."""
    kind, colon, rest = source.partition(":")
    if kind not in PACKAGE_KINDS or not colon:
        return None
    name, version = rest, ""
    if kind != "oci":
        # An image keeps its tag and digest. The scope of an npm package begins with `@` as well.
        separator = "==" if kind == "pypi" and "==" in rest else "@"
        own, _, version = rest[1:].partition(separator)
        name = rest[:1] + own
    if fault := fault_of_name(kind, name, version):
        raise ConfigError(f"`{source}` {fault}", hint=f"for example: {_EXAMPLES[kind]}")
    return Package(kind, name, version)


_EXAMPLES: Final = {
    "npm": "npm:@modelcontextprotocol/server-memory",
    "pypi": "pypi:mcp-server-git",
    "oci": "oci:ghcr.io/github/github-mcp-server:v1.0.0",
}


def pinned(package: Package) -> tuple[Package, str | None]:
    """Return the package with the version that its registry has now, and why it could not be pinned if so. Raises
    `ConfigError` if there is no such package."""
    ask = {"npm": _ask_npm, "pypi": _ask_uv, "oci": _ask_engine}.get(package.kind)
    if ask is None:
        return package, None if is_exact(package) else f"nothing here tells the versions of {package.kind} packages"
    if package.version == "latest":
        package = replace(package, version="")
    try:
        return ask(package), None
    except _Unknown as error:
        return package, str(error)


def is_exact(package: Package) -> bool:
    """Whether it names one version, so that another is never run in its place."""
    if package.kind == "pypi":
        return package.version not in ("", "latest") and "*" not in package.version
    return "@sha256:" in package.name or _SEMANTIC_VERSION.fullmatch(package.version) is not None


def integrity_of(package: str) -> list[str]:
    """What the registry says that a package contains, as in the lock file (`npm:name@1.2.3`). Raises `ConfigError` if
    that cannot be known."""
    named = package_named(package)
    found, why = (Package("", ""), "it is no package") if named is None else pinned(named)
    if why is not None or not found.integrity:
        raise ConfigError(f"the content of `{package}` cannot be recorded: {why or 'its registry does not name it'}")
    return list(found.integrity)


class _Unknown(Exception):
    """The version could not be found out."""


def _ask_npm(package: Package) -> Package:
    named = f"{package.name}@{package.version}" if package.version else package.name
    said = _output("npm", ["view", "--json", "--", named, "version", "dist.integrity"], package)
    try:
        # A range of versions gives a list, the newest last.
        found: Any = decode(said)
        newest = found[-1] if isinstance(found, list) else found
        version, integrity = newest["version"], newest.get("dist.integrity")
        if not _SEMANTIC_VERSION.fullmatch(version):
            raise ValueError
    except (MsgspecError, RecursionError, LookupError, TypeError, AttributeError, ValueError):
        raise _Unknown("npm view did not answer with a version") from None
    # The oldest packages have none.
    return Package("npm", package.name, version, (integrity,) if isinstance(integrity, str) else ())


def _ask_uv(package: Package) -> Package:
    wanted = f"{package.name}=={package.version}" if package.version else package.name
    options = ["pip", "compile", "--quiet", "--no-deps", "--generate-hashes", "--no-header", "-"]
    said = _output("uv", options, package, given=f"{wanted}\n").decode(errors="replace")
    found = _PINNED.search(said)
    if found is None:
        raise _Unknown("uv pip compile did not answer with a version")
    return Package("pypi", package.name, found[2], tuple(sorted(_HASHES.findall(said))))


def _ask_engine(package: Package) -> Package:
    """A tag may move; a digest is the content."""
    if "@sha256:" in package.name:
        return package
    program = next((each for each in ("docker", "podman") if shutil.which(each)), None)
    if program is None:
        raise _Unknown("neither docker nor podman is installed")
    _output(program, ["pull", "--quiet", package.name], package)
    said = _output(program, ["image", "inspect", "--format", "{{json .RepoDigests}}", package.name], package)
    try:
        digests: Any = decode(said)
        digest = next(each.rpartition("@")[2] for each in digests if "@sha256:" in each)
    except (MsgspecError, RecursionError, StopIteration, TypeError, AttributeError):
        raise _Unknown(f"{program} knows no digest of the image") from None
    # Beside a tag, which is dropped: the digest says it all.
    name = package.name if ":" not in package.name.rpartition("/")[2] else package.name.rpartition(":")[0]
    return Package("oci", f"{name}@{digest}", "", (digest,))


def _output(program: str, arguments: list[str], package: Package, given: str = "") -> bytes:
    """Return what a program prints. Raises `_Unknown`, or `ConfigError` if it says that there is no such package."""
    path = shutil.which(program)
    if path is None:
        raise _Unknown(f"`{program}` is not installed")
    try:
        done = subprocess.run(
            [path, *arguments],
            input=given.encode(),
            capture_output=True,
            timeout=PACKAGE_TOOL_TIMEOUT,
            env=without_ours(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = (
            f"took longer than {PACKAGE_TOOL_TIMEOUT:.0f} s" if isinstance(error, subprocess.TimeoutExpired) else error
        )
        raise _Unknown(f"`{program}` {why}") from None
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).decode(errors="replace")
    if re.search(r"E404|not found in the package registry|no versions? of|manifest unknown", said):
        named = f"`{package.name}` {package.version}".rstrip()
        raise ConfigError(f"there is no {package.kind} package {named}", hint="check the name and the version")
    last = " ".join(said.split())[:_MAX_SHOWN]
    raise _Unknown(f"`{program}` failed with status {done.returncode}: {last}")
