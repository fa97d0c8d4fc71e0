"""What stays read-only inside of folders that a server may write: files that other programs run or trust.

Whoever writes `.git/hooks`, `.vscode/tasks.json` or `.mcp.json` has the user's next command run their program, outside
of any sandbox. Pure but for looking at paths, which is given.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from mcp_workbench.engine.sandbox.sandbox import FoundPath, Machine

# Folders that are created, empty, where they do not exist yet: what is not there cannot be kept read-only.
_CREATED: Final = (".vscode", ".idea", ".claude", ".cursor")
_KEPT_NAMES: Final = (*_CREATED, ".husky", ".mcp.json", "workbench-config.json", "workbench.lock")
# Says where git finds hooks and settings instead; a repository of its own has none, and git takes one with this content
# as if there were none.
COMMON_FOLDER: Final = "commondir"
COMMON_FOLDER_ITSELF: Final = b".\n"
_CREATED_OF_GIT: Final = ("hooks", COMMON_FOLDER)
CREATED_FOLDERS: Final = (*_CREATED, "hooks")
_OF_GIT: Final = (*_CREATED_OF_GIT, "config", "config.worktree", "modules")
# Beyond these, repositories in a folder are not looked for.
MAX_PROJECTS: Final = 20


class CarveOuts(NamedTuple):
    # Without links.
    read_only: tuple[str, ...] = ()
    # Those of them that have to be created first.
    created: tuple[str, ...] = ()


def carve_outs(machine: Machine, writable: Iterable[str], named: Collection[str], own: Iterable[str]) -> CarveOuts:
    """Return what stays read-only in folders that a server may write. `named` is what the user lists under `write`,
    which is meant; `own` are files of the workbench, wherever they are."""
    read_only: dict[str, None] = {}
    created: dict[str, None] = {}
    for root in writable:
        for project in (root, *machine.repositories(root)[:MAX_PROJECTS]):
            found, missing = _in_project(machine, project)
            read_only |= dict.fromkeys((*found, *missing))
            created |= dict.fromkeys(missing)
        inside = [path for path in own if path.startswith(root + "/") and _itself(machine, path) is not None]
        read_only |= dict.fromkeys(inside)
    kept = tuple(path for path in read_only if not any(_is_in(path, each) for each in named))
    return CarveOuts(kept, tuple(path for path in kept if path in created))


def _in_project(machine: Machine, project: str) -> tuple[list[str], list[str]]:
    """What is there and stays read-only, and what is to be created for it."""
    found = [os.path.join(project, name) for name in _KEPT_NAMES]
    found = [path for path in found if _itself(machine, path) is not None]
    repository = os.path.join(project, ".git")
    git = _itself(machine, repository)
    if git is None:
        return found, []
    missing = [path for name in _CREATED if machine.look(path := os.path.join(project, name)) is None]
    if not git.is_folder:
        # It says where the repository is, of a submodule or another work tree.
        return [*found, repository], missing
    parts = [os.path.join(repository, name) for name in _OF_GIT]
    missing += [path for path in parts[: len(_CREATED_OF_GIT)] if machine.look(path) is None]
    return [*found, *(path for path in parts if _itself(machine, path) is not None)], missing


def _itself(machine: Machine, path: str) -> FoundPath | None:
    """What is at this path, if it is not reached by a link: nothing can be mounted on a link."""
    place = machine.look(path)
    return place if place is not None and place.path == path else None


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
