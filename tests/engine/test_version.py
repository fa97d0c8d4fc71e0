"""The version that a process says it is: a release, or the commit between releases."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench.engine import version
from mcp_workbench.engine.version import commit_of, full_version

VERSION = mcp_workbench.__version__
COMMIT = "1ee18cef0123456789abcdef0123456789abcdef"
FIRST, SECOND = "a" * 40, "b" * 40


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "src" / "mcp_workbench").mkdir(parents=True)
    git(tmp_path, "init", "--quiet", str(root))
    for subject in ("first", "second"):
        git(root, "commit", "--quiet", "--allow-empty", "--message", subject)
    return root


def package_in(root: Path) -> str:
    return str(root / "src" / "mcp_workbench")


@pytest.mark.processes
def test_a_work_tree_is_the_commit_that_git_says(tree: Path, tmp_path: Path) -> None:
    assert commit_of(package_in(tree)) == git(tree, "rev-parse", "HEAD")
    git(tree, "pack-refs", "--all")
    assert commit_of(package_in(tree)) == git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "--quiet", "HEAD~1")
    assert commit_of(package_in(tree)) == git(tree, "rev-parse", "HEAD") != git(tree, "rev-parse", "main")
    # A worktree of a branch with a slash in its name.
    beside = tmp_path / "beside"
    git(tree, "worktree", "add", "--quiet", "-b", "fix/it", str(beside), "main")
    assert commit_of(package_in(beside)) == git(tree, "rev-parse", "main")


def test_the_branch_is_found_among_others_that_are_packed(tmp_path: Path) -> None:
    git_folder = tmp_path / ".git"
    git_folder.mkdir()
    (git_folder / "HEAD").write_text("ref: refs/heads/main\n")
    (git_folder / "packed-refs").write_text(
        f"# pack-refs with: peeled\n{FIRST} refs/heads/main-2\n^{FIRST}\n{SECOND} refs/heads/main\n"
    )
    assert commit_of(package_in(tmp_path)) == SECOND


@pytest.mark.parametrize("head", ["", "ref: refs/heads/.invalid", "not a commit", "ref: ../../etc/passwd"])
def test_a_tree_without_a_readable_commit_is_the_plain_version(head: str, tmp_path: Path) -> None:
    assert commit_of(package_in(tmp_path)) == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    assert commit_of(package_in(tmp_path)) == ""


def installed(site: Path, origin: object) -> str:
    metadata = site / f"mcp_workbench-{VERSION}.dist-info"
    metadata.mkdir()
    (metadata / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    # A repository around the environment says nothing about what is installed in it.
    (site.parent / ".git").mkdir()
    (site.parent / ".git" / "HEAD").write_text(FIRST)
    return str(site / "mcp_workbench")


@pytest.mark.parametrize(
    ("origin", "commit"),
    [
        ({"url": "https://example.org/x", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}, COMMIT),
        ({"vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"}}, COMMIT),
        ({"vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": f"v{VERSION}"}}, ""),
        ({"url": "file:///tmp/x", "archive_info": {}}, ""),
        ({"vcs_info": None}, ""),
        ({"vcs_info": {"commit_id": 7}}, ""),
        ('{"vcs_info": ', ""),
    ],
)
def test_an_installed_package_is_the_commit_that_it_was_installed_from(
    origin: object, commit: str, tmp_path: Path
) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    assert commit_of(installed(site, origin)) == commit


def test_installation_from_an_index_is_a_release(tmp_path: Path) -> None:
    assert commit_of(str(tmp_path / "site-packages" / "mcp_workbench")) == ""


def test_version_is_read_once_despite_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [FIRST, SECOND]
    monkeypatch.setattr(version, "commit_of", lambda package: commits.pop(0))
    monkeypatch.setattr(version, "_known", None)
    assert full_version() == full_version() == f"{VERSION}+gaaaaaaa"


def test_the_folder_that_is_asked_about_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = {str(Path(mcp_workbench.__file__).parent): COMMIT}
    monkeypatch.setattr(version, "commit_of", lambda package: commits.get(package, ""))
    monkeypatch.setattr(version, "_known", None)
    assert full_version() == f"{VERSION}+g1ee18ce"


def test_a_release_has_only_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "commit_of", lambda package: "")
    monkeypatch.setattr(version, "_known", None)
    assert full_version() == VERSION
