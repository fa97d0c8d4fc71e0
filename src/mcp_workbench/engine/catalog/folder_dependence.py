"""Whether what a program offers may depend on the folder it runs in, as far as its command line tells.

Most servers offer the same everywhere, and a new project should not have to list them again. What the command line does
not tell is learnt: a server that offers something else in another folder has a manifest for each
(`ManifestStore.depends_on_folder`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from mcp_workbench.engine.config.model import ServerConfig

# They look for a project around their folder, or run whatever they are told to there.
PROJECT_RUNNERS: Final = frozenset(
    {
        "uv",
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "deno",
        "poetry",
        "pdm",
        "pipenv",
        "hatch",
        "rye",
        "pixi",
        "conda",
        "cargo",
        "go",
    }
    | {
        "make",
        "just",
        "task",
        "mise",
        "nix",
        "devbox",
        "direnv",
        "dotnet",
        "mvn",
        "gradle",
        "bundle",
        "composer",
        "mix",
    }
    | {"docker-compose", "sh", "bash", "dash", "zsh", "fish", "pwsh", "powershell", "cmd", "env"}
)
# The exceptions: these commands of theirs ignore the project.
ISOLATED: Final = frozenset({("uv", "tool"), ("pnpm", "dlx"), ("yarn", "dlx")})
# They prefer a package of a surrounding project to the one that they would download.
NODE_RUNNERS: Final = frozenset({"npx", "bunx"})


def folder_that_counts(server: ServerConfig, folder: str) -> str | None:
    """The folder that determines what the server offers if it runs in `folder`; None if it is the same everywhere."""
    command = server.command or ""
    program = os.path.basename(command).lower().removesuffix(".exe").rstrip("0123456789.")
    if os.path.dirname(command) and not os.path.isabs(command):
        return folder
    if program in PROJECT_RUNNERS and (program, *server.args[:1]) not in ISOLATED:
        return folder
    if (program, *server.args[:1]) in {("docker", "compose"), ("podman", "compose")}:
        return folder
    if any(_is_relative(value) for value in server.env.values()):
        return folder
    if any(_is_relative(value) or os.path.exists(os.path.join(folder, value)) for value in _values(server.args)):
        return folder
    if program == "python" and "-m" in server.args[:-1]:
        return folder if _has_module(folder, server.args[server.args.index("-m") + 1]) else None
    return _node_project(server.args, folder) if program in NODE_RUNNERS else None


def _values(args: tuple[str, ...]) -> Iterator[str]:
    """The arguments and values of options that may be paths in the folder."""
    for arg in args:
        value = arg.partition("=")[2] if arg.startswith("-") else arg
        # An absolute path and an address mean the same everywhere.
        if value and not os.path.isabs(value) and "://" not in value:
            yield value


def _is_relative(value: str) -> bool:
    # With a separator, because `..` begins no other word, but `.5` and `.NET` are words.
    return value in (".", "..") or value.startswith(("./", "../", ".\\", "..\\"))


def _has_module(folder: str, name: str) -> bool:
    """Whether `python -m` finds this module in its folder."""
    path = os.path.join(folder, name.partition(".")[0])
    return os.path.exists(path) or os.path.exists(f"{path}.py")


def _node_project(args: tuple[str, ...], folder: str) -> str | None:
    """The surrounding project that has installed one of the packages that are named."""
    names = [arg.partition("=")[2] if arg.startswith("--package=") else arg for arg in args if arg.strip(".-@/")]
    packages = {name[:1] + name[1:].partition("@")[0] for name in names if not name.startswith("-")}
    while True:
        modules = os.path.join(folder, "node_modules")
        if any(os.path.exists(os.path.join(modules, package)) for package in packages):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
