"""Which package a command starts, and in which version, if its arguments name it. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from mcp_workbench.engine.config.model import ServerConfig

# Options of the runners that are followed by a value, which is not the package.
_NPM_VALUES: Final = frozenset({"-p", "--package", "-c", "--call", "-w", "--workspace", "--registry", "--cache"})
_UV_VALUES: Final = frozenset(
    {"--with", "-w", "--python", "-p", "--index", "--index-url", "-i", "--extra-index-url", "--from", "--directory"}
)
_DOCKER_VALUES: Final = frozenset(
    {"-e", "--env", "--env-file", "-v", "--volume", "--mount", "-p", "--publish", "--name", "--network", "--net", "-u",
     "--user", "-w", "--workdir", "--entrypoint", "-h", "--hostname", "-m", "--memory", "--cpus", "--add-host",
     "--platform", "--label", "-l", "--pull", "--runtime", "--gpus", "--shm-size", "--tmpfs"}
)  # fmt: skip
# A tag or a range would be another version tomorrow.
EXACT_VERSION: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:[-+.]?[0-9A-Za-z][0-9A-Za-z.+-]*)?")
_PYTHON_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


def package_of(config: ServerConfig) -> str:
    """`npm:@scope/name@1.2.3`, `pypi:name==1.2.3`, `docker:image@sha256:…`; without a version if none is pinned. Empty
    if the command names no package."""
    if config.command is None:
        return ""
    if config.sandbox is not None and config.sandbox.image is not None:
        return f"docker:{config.sandbox.image}"
    runner = os.path.basename(config.command).removesuffix(".cmd").removesuffix(".exe").lower()
    # A variable may differ between the machines that share the lock file.
    args = [argument for argument in config.args if "${" not in argument]
    if runner in ("npx", "bunx", "pnpx"):
        return _npm(args)
    if runner in ("npm", "pnpm", "yarn") and args[:1] in (["exec"], ["dlx"], ["x"]):
        return _npm(args[1:])
    if runner == "uvx":
        return _pypi(args)
    if runner == "uv" and args[:2] == ["tool", "run"]:
        return _pypi(args[2:])
    if runner == "pipx" and args[:1] == ["run"]:
        return _pypi(args[1:])
    if runner in ("docker", "podman") and "run" in args:
        image = _first(args[args.index("run") + 1 :], _DOCKER_VALUES)
        return f"docker:{image}" if image else ""
    return ""


def is_pinned(package: str) -> bool:
    """Whether this is the same content tomorrow, as far as its registry keeps its word."""
    kind, _, named = package.partition(":")
    if kind == "docker":
        return "@sha256:" in named
    separator = "==" if kind == "pypi" else "@"
    return EXACT_VERSION.fullmatch(named[1:].partition(separator)[2]) is not None


def about_unpinned(servers: Iterable[tuple[str, ServerConfig]]) -> str | None:
    """A sentence about servers that may be another version at their next start; None if there are none."""
    found = [(label, package) for label, server in servers if (package := package_of(server))]
    loose = [f"{label} (`{package}`)" for label, package in found if not is_pinned(package)]
    if not loose:
        return None
    return f"not pinned, so the next start may run another version: {', '.join(loose)}"


def _npm(args: Sequence[str]) -> str:
    named = _value(args, ("-p", "--package")) or _first(args, _NPM_VALUES)
    return f"npm:{named}" if named else ""


def _pypi(args: Sequence[str]) -> str:
    named = _value(args, ("--from", "--spec")) or _first(args, _UV_VALUES)
    if named is None:
        return ""
    match = _PYTHON_NAME.match(named)
    if match is not None and named[match.end() :].startswith("@"):
        # The notation of `uvx name@1.2.3`.
        return f"pypi:{match[0]}=={named[match.end() + 1 :]}"
    return f"pypi:{named}"


def _value(args: Sequence[str], options: Sequence[str]) -> str | None:
    for option in options:
        for position, argument in enumerate(args):
            if argument == option and position + 1 < len(args):
                return args[position + 1]
            if argument.startswith(f"{option}=") and option.startswith("--"):
                return argument.partition("=")[2]
    return None


def _first(args: Sequence[str], with_values: frozenset[str]) -> str | None:
    """The first argument that is neither an option nor the value of one."""
    skips = False
    for argument in args:
        if skips:
            skips = False
        elif argument == "--":
            continue
        elif argument.startswith("-"):
            skips = argument in with_values
        else:
            return argument
    return None
