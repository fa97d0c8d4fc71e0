"""Which version of a package a command has installed, if that can be seen on the disk: the command itself may name
none, and start another one tomorrow.

Looks where npx and pip store packages. Runs nothing, and returns nothing if the version cannot be known: uvx and docker
do not record in files which of their cached versions is used.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.team.lock.packages import package_of

_NPM_PREFIX: Final = "npm:"
_EXACT: Final = re.compile(r"\d+(?:\.\d+){2}\S*")
_PYTHON: Final = re.compile(r"python[0-9.]*")
# Lists of installed files are some megabytes for the largest packages.
MAX_PACKAGE_RECORD_BYTES: Final = 16 * 1024 * 1024


class _PackageJson(Struct):
    version: str = ""


def installed_package(config: ServerConfig, environ: Mapping[str, str]) -> str:
    """As `package_of`, with the installed version if the command names none."""
    named = package_of(config)
    env = {**environ, **config.env}
    if named.startswith(_NPM_PREFIX):
        return _NPM_PREFIX + _npx(named.removeprefix(_NPM_PREFIX), env)
    return named or (_pip(config.command, config.args, env) if config.command is not None else "")


def _npx(spec: str, env: Mapping[str, str]) -> str:
    at = spec.find("@", 1)
    name, version = (spec, "") if at < 0 else (spec[:at], spec[at + 1 :])
    if _EXACT.fullmatch(version):
        return spec
    cache = env.get("npm_config_cache") or os.path.join(env.get("HOME", ""), ".npm")
    # How npx names the folder for a package spec.
    folder = hashlib.sha512(spec.encode()).hexdigest()[:16]
    path = os.path.join(cache, "_npx", folder, "node_modules", *name.split("/"), "package.json")
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(MAX_PACKAGE_RECORD_BYTES), type=_PackageJson).version
    except (OSError, msgspec.MsgspecError, ValueError):
        return spec
    return f"{name}@{found}" if found else spec


def _pip(command: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """The package of a script next to a Python, or of `python -m MODULE`."""
    path = shutil.which(command, path=env.get("PATH"))
    if path is None:
        return ""
    name = os.path.basename(path)
    if _PYTHON.fullmatch(name):
        if args[:1] != ("-m",) or len(args) < 2:
            return ""
        module = args[1].replace(".", "/")
        wanted: tuple[str, ...] = (f"{module}/__main__.py,", f"{module}.py,")
    else:
        wanted = (f"../../../bin/{name},",)
    # First the path as called: the Python of a virtual environment is a link to another one. Then the resolved path:
    # pipx and uv link scripts into a separate folder.
    for folder in dict.fromkeys((os.path.dirname(path), os.path.dirname(os.path.realpath(path)))):
        for package, files in _distributions(folder):
            if any(each.startswith(wanted) for each in files.decode(errors="replace").splitlines()):
                return f"pypi:{package}"
    return ""


def _distributions(folder: str) -> Iterator[tuple[str, bytes]]:
    """`name==version` of the packages installed by pip for the Python in this folder, and the files of each."""
    packages = os.path.join(glob.escape(os.path.dirname(folder)), "lib", "python*", "site-packages")
    for record in sorted(glob.glob(os.path.join(packages, "*.dist-info", "RECORD"))):
        name, _, version = os.path.basename(os.path.dirname(record)).removesuffix(".dist-info").rpartition("-")
        try:
            with open(record, "rb") as file:
                yield f"{name.replace('_', '-')}=={version}", file.read(MAX_PACKAGE_RECORD_BYTES)
        except OSError:
            continue
