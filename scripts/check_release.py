"""Decide whether a commit may be released, by the list in docs/internals/principles.md ("Releases").

`check_release.py` looks at the tip of `main` before it is tagged; `check_release.py v1.2.3` looks at a tag, as the
release workflow does. Everything is read from git objects, never from the work tree, so what is checked is what is
released. All objections are reported at once; exit status 1 when there is one. Standard library only.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

VERSION_FILE = "src/mcp_workbench/__init__.py"
# What a reader of the README sees without scrolling.
NOTICE_LINES = 30

Version = tuple[int, int, int]


class Verdict(NamedTuple):
    objections: list[str]
    remarks: list[str]
    notes: str


class Repository:
    """Read-only questions to git."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def ask(self, *arguments: str) -> str | None:
        """What git says, or None when it says no."""
        done = subprocess.run(["git", "-C", str(self.root), *arguments], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def commit(self, name: str) -> str | None:
        found = self.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return found.strip() if found else None

    def text(self, commit: str, path: str) -> str:
        return self.ask("show", f"{commit}:{path}") or ""

    def main_tip(self) -> str | None:
        # In CI only the remote's branch exists; on a developer's machine the remote's is the one that counts, too.
        return self.commit("refs/remotes/origin/main") or self.commit("refs/heads/main")

    def tags(self) -> list[str]:
        return (self.ask("tag", "--list", "v*") or "").split()


def parse_version(text: str) -> Version | None:
    """`1.2.3` as three numbers, or None."""
    number = r"(0|[1-9]\d*)"
    found = re.fullmatch(rf"{number}\.{number}\.{number}", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def declared_version(source: str) -> str | None:
    found = re.search(r'^__version__ = "([^"]*)"$', source, re.MULTILINE)
    return found[1] if found else None


def changelog_section(changelog: str, title: str) -> tuple[str, str] | None:
    """The heading and the body under `## [title]`, or None."""
    found = re.search(rf"^(## \[{re.escape(title)}\].*)$", changelog, re.MULTILINE)
    if found is None:
        return None
    following = re.split(r"^(?:## |\[[^\]]+\]: )", changelog[found.end() :], maxsplit=1, flags=re.MULTILINE)
    return found[1], following[0].strip()


def check_tag(repository: Repository, tag: str, commit: str) -> list[str]:
    objections = []
    if (repository.ask("cat-file", "-t", f"refs/tags/{tag}") or "").strip() != "tag":
        objections.append(f"`{tag}` is not an annotated tag; make it with `git tag --annotate {tag}`")
    else:
        message = repository.ask("for-each-ref", "--format=%(contents)", f"refs/tags/{tag}") or ""
        if not message.strip():
            objections.append(f"`{tag}` has no description")
    if commit != (tip := repository.main_tip()):
        objections.append(
            f"`{tag}` is {commit[:12]}, but the tip of `main` is {(tip or 'missing')[:12]}: merge, then tag"
        )
    return objections


def check_untagged(repository: Repository, tag: str, commit: str) -> list[str]:
    objections = []
    if repository.commit(f"refs/tags/{tag}"):
        objections.append(f"`{tag}` exists already; raise `__version__` in {VERSION_FILE}")
    if commit != (tip := repository.main_tip()):
        objections.append(f"HEAD is {commit[:12]}, but the tip of `main` is {(tip or 'missing')[:12]}: merge first")
    if repository.ask("status", "--porcelain"):
        objections.append("there are changes that are not committed")
    return objections


def check_changelog(changelog: str, version: str) -> list[str]:
    section = changelog_section(changelog, version)
    if section is None:
        return [f"CHANGELOG.md has no entry `## [{version}] - YYYY-MM-DD`"]
    heading, body = section
    objections = []
    dated = re.fullmatch(rf"## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)", heading.strip())
    try:
        datetime.date.fromisoformat(dated[1] if dated else "")
    except ValueError:
        objections.append(f"CHANGELOG.md: `{heading}` has no date; expected `## [{version}] - YYYY-MM-DD`")
    if not body:
        objections.append(f"CHANGELOG.md says nothing under `{heading}`")
    unreleased = changelog_section(changelog, "Unreleased")
    if unreleased and unreleased[1]:
        objections.append(f"CHANGELOG.md still lists changes under `Unreleased`; they are part of {version}")
    return objections


def check_documents(repository: Repository, commit: str, version: Version) -> list[str]:
    texts = {path: repository.text(commit, path) for path in ("README.md", "CLAUDE.md", "docs/internals/principles.md")}
    objections = [f"{path} is missing or empty" for path, text in texts.items() if not text.strip()]
    try:
        description = str(tomllib.loads(repository.text(commit, "pyproject.toml"))["project"]["description"])
    except (tomllib.TOMLDecodeError, KeyError):
        description = ""
    places = {
        "README.md": "incubat" in "\n".join(texts["README.md"].splitlines()[:NOTICE_LINES]).lower(),
        "the description in pyproject.toml": re.search("incubating|pre-1.0", description.lower()) is not None,
    }
    for place, says_so in places.items():
        if version < (1, 0, 0) and not says_so:
            objections.append(f"{place} does not say that the project is incubating")
        if version >= (1, 0, 0) and says_so:
            objections.append(f"{place} still says that the project is incubating; 1.0.0 is a decision, announce it")
    return objections


def drift(repository: Repository, commit: str, previous: str) -> list[str]:
    """Where code changed and its document did not. A person decides whether that is right."""
    changed = (repository.ask("diff", "--name-only", previous, commit) or "").split()
    moved = (repository.ask("diff", "--name-only", "--diff-filter=ADR", previous, commit, "--", "src") or "").split()
    facing = [path for path in changed if re.match(r"src/mcp_workbench/(engine/config|engine/face|cli)/", path)]
    building = [path for path in changed if re.match(r"Makefile$|\.ci/|\.github/|scripts/", path)]
    remarks = []
    if facing and "README.md" not in changed:
        remarks.append(f"README.md is as it was in {previous}, but {facing[0]} is not")
    if (moved or building) and "CLAUDE.md" not in changed:
        remarks.append(f"CLAUDE.md is as it was in {previous}, but {(moved + building)[0]} is not")
    return remarks


def check(repository: Repository, tag: str | None) -> Verdict:
    commit = repository.commit(f"refs/tags/{tag}" if tag else "HEAD")
    if commit is None:
        return Verdict([f"there is no tag `{tag}`" if tag else "there is no commit here"], [], "")
    declared = declared_version(repository.text(commit, VERSION_FILE))
    version = parse_version(declared or "")
    if declared is None or version is None:
        return Verdict([f"{VERSION_FILE}: `__version__` is `{declared}`; expected MAJOR.MINOR.PATCH"], [], "")

    objections: list[str] = []
    if tag is None:
        objections += check_untagged(repository, f"v{declared}", commit)
    else:
        objections += check_tag(repository, tag, commit)
        if tag != f"v{declared}":
            objections.append(f"the tag is `{tag}`, but `__version__` in {VERSION_FILE} is `{declared}`")
    released = {found: other for other in repository.tags() if (found := parse_version(other[1:])) and other != tag}
    previous = released[max(released)] if released else None
    if previous and max(released) > version:
        objections.append(f"{declared} is older than {previous}, which is released")

    changelog = repository.text(commit, "CHANGELOG.md")
    objections += check_changelog(changelog, declared)
    objections += check_documents(repository, commit, version)
    section = changelog_section(changelog, declared)
    return Verdict(objections, drift(repository, commit, previous) if previous else [], section[1] if section else "")


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that a commit of main may be released.")
    parser.add_argument("tag", nargs="?", help="the tag to check; without it, HEAD is checked before it is tagged")
    parser.add_argument("--repository", type=Path, default=Path(__file__).resolve().parent.parent, metavar="FOLDER")
    parser.add_argument("--notes", type=Path, metavar="FILE", help="write the release notes from CHANGELOG.md there")
    parser.add_argument("--run-ci", action="store_true", help="run .ci/run as well, when there is no objection")
    options = parser.parse_args()

    verdict = check(Repository(options.repository), options.tag)
    for remark in verdict.remarks:
        print(f"look: {remark}", file=sys.stderr)
    for objection in verdict.objections:
        print(f"refused: {objection}", file=sys.stderr)
    if verdict.objections:
        return 1
    if options.run_ci and subprocess.call(["bash", ".ci/run"], cwd=options.repository) != 0:
        print("refused: .ci/run failed", file=sys.stderr)
        return 1
    if options.notes:
        options.notes.write_text(verdict.notes + "\n", encoding="utf-8")
    print(f"{options.tag or 'HEAD'} may be released.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
