"""Which version of the program this process runs: a release, or a commit between two.

Owns how a commit is found: two or three small files are read, no program is started and nothing is imported that a bare
interpreter lacks, because the front end asks at each start. `__version__` stays the one number.
"""

from __future__ import annotations

import os

from mcp_workbench import __file__ as _package_file
from mcp_workbench import __version__

# As many digits as git shows in a repository of this size.
SHOWN_DIGITS = 7

_known: str | None = None


def full_version() -> str:
    """`1.2.3` for a release, `1.2.3+g1ee18ce` for a commit between releases.

    Two processes run the same version exactly if this text is equal; commits of one number have no order. It is read
    once: call it first while the process starts, before an update in place can change what the files say. What is not
    committed does not show.
    """
    global _known
    if _known is None:
        commit = commit_of(os.path.dirname(os.path.abspath(_package_file)))
        _known = f"{__version__}+g{commit[:SHOWN_DIGITS]}" if commit else __version__
    return _known


def commit_of(package: str) -> str:
    """The commit that the package in this folder comes from, or nothing for a release and where it is not known."""
    parent = os.path.dirname(package)
    if os.path.basename(parent) == "src":
        # A work tree, installed editable. Its `.git` is a folder, or a file that names one (worktrees, submodules).
        return _checked_out(os.path.join(os.path.dirname(parent), ".git"))
    return _installed_from_git(os.path.join(parent, f"mcp_workbench-{__version__}.dist-info"))


def _checked_out(git: str) -> str:
    link = _first_line(git)
    if link.startswith("gitdir: "):
        git = os.path.join(os.path.dirname(git), link.removeprefix("gitdir: "))
    head = _first_line(os.path.join(git, "HEAD"))
    if not head.startswith("ref: "):
        return _commit(head)
    name = head.removeprefix("ref: ")
    # A worktree has a HEAD of its own; branches lie in the repository that it belongs to.
    common = os.path.join(git, _first_line(os.path.join(git, "commondir")))
    return _commit(_first_line(os.path.join(common, name))) or _packed(os.path.join(common, "packed-refs"), name)


def _packed(path: str, name: str) -> str:
    for line in _text(path).splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return _commit(commit)
    return ""


def _installed_from_git(metadata: str) -> str:
    # Written by pip and uv for whatever does not come from a package index (PEP 610).
    origin = _text(os.path.join(metadata, "direct_url.json"))
    if '"vcs_info"' not in origin:
        return ""
    import json

    try:
        vcs = json.loads(origin)["vcs_info"]
        is_release = vcs.get("requested_revision") == f"v{__version__}"
        return "" if is_release else _commit(vcs["commit_id"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""


def _commit(text: str) -> str:
    return text if len(text) >= SHOWN_DIGITS and not text.strip("0123456789abcdef") else ""


def _first_line(path: str) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
