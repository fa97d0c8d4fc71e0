"""`scripts/check_release.py` on real repositories: what may be released, and every reason to refuse."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "check_release.py"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")

CHANGELOG = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-03-01

### Added
- The second thing.

## [0.1.0] - 2026-02-01

### Added
- The first thing.

[0.2.0]: https://example.org/compare/v0.1.0...v0.2.0
"""


class Checkout:
    """A repository with one commit on `main` that may be released as 0.2.0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("src/mcp_workbench/__init__.py", '"""A package."""\n\n__version__ = "0.2.0"\n')
        self.write("pyproject.toml", '[project]\nname = "x"\ndescription = "Incubating: a thing."\n')
        self.write("README.md", "# A thing\n\n> Incubating: breaking changes may come in any release.\n")
        self.write("CLAUDE.md", "# Guide\n")
        self.write("docs/internals/principles.md", "# Principles\n")
        self.write("CHANGELOG.md", CHANGELOG)
        self.commit("feat: everything")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "tag.gpgSign=false")
        # What the person who runs the tests has configured (signing, hooks, default branches) must not matter.
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "-C", str(self.folder), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def write(self, path: str, content: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)

    def tag(self, name: str) -> None:
        self.git("tag", "--annotate", name, "--message", f"Release {name}")

    def check(self, *arguments: str) -> tuple[int, str]:
        """Exit status, and what a person reads."""
        command = [sys.executable, str(SCRIPT), "--repository", str(self.folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


@pytest.mark.requirement("project.release")
def test_an_annotated_tag_on_the_tip_of_main_may_be_released(checkout: Checkout) -> None:
    checkout.tag("v0.2.0")
    assert checkout.check("v0.2.0") == (0, "v0.2.0 may be released.\n")


def test_the_tip_of_main_may_be_checked_before_it_is_tagged(checkout: Checkout) -> None:
    assert checkout.check() == (0, "HEAD may be released.\n")


def test_release_notes_equal_the_changelog_of_this_version(checkout: Checkout, tmp_path: Path) -> None:
    checkout.tag("v0.2.0")
    notes = tmp_path / "notes.md"
    assert checkout.check("v0.2.0", "--notes", str(notes))[0] == 0
    assert notes.read_text() == "### Added\n- The second thing.\n"


def test_a_tag_that_does_not_exist_is_refused(checkout: Checkout) -> None:
    assert checkout.check("v0.2.0") == (1, "refused: there is no tag `v0.2.0`\n")


@pytest.mark.requirement("project.release")
def test_a_lightweight_tag_is_refused(checkout: Checkout) -> None:
    checkout.git("tag", "v0.2.0")
    status, said = checkout.check("v0.2.0")
    assert status == 1
    assert "`v0.2.0` is not an annotated tag" in said


@pytest.mark.requirement("project.release")
@pytest.mark.parametrize("tag", ["v0.2.1", "v0.2", "v0.2.0-rc1", "v00.2.0"])
def test_a_tag_that_is_not_the_version_is_refused(checkout: Checkout, tag: str) -> None:
    checkout.tag(tag)
    status, said = checkout.check(tag)
    assert status == 1
    assert f"the tag is `{tag}`, but `__version__` in src/mcp_workbench/__init__.py is `0.2.0`" in said


@pytest.mark.parametrize("declared", ['"0.2"', '"0.2.0.dev1"', "version()"])
def test_a_version_that_is_not_three_numbers_is_refused(checkout: Checkout, declared: str) -> None:
    checkout.write("src/mcp_workbench/__init__.py", f"__version__ = {declared}\n")
    checkout.commit("chore: version")
    status, said = checkout.check()
    assert status == 1
    assert "expected MAJOR.MINOR.PATCH" in said


@pytest.mark.requirement("project.release")
def test_a_tag_on_a_feature_branch_is_refused(checkout: Checkout) -> None:
    checkout.git("switch", "--quiet", "--create", "001-a-feature")
    checkout.commit("feat: not merged")
    checkout.tag("v0.2.0")
    status, said = checkout.check("v0.2.0")
    assert status == 1
    assert "merge, then tag" in said


@pytest.mark.requirement("project.release")
def test_a_tag_that_main_has_left_behind_is_refused(checkout: Checkout) -> None:
    checkout.tag("v0.2.0")
    checkout.commit("fix: one more thing")
    status, said = checkout.check("v0.2.0")
    assert status == 1
    assert "but the tip of `main` is" in said


def test_the_main_that_counts_is_the_one_of_the_remote(checkout: Checkout, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    checkout.git("clone", "--quiet", str(checkout.folder), str(clone))
    checkout.folder = clone
    checkout.commit("feat: not pushed")
    checkout.tag("v0.2.0")
    status, said = checkout.check("v0.2.0")
    assert status == 1
    assert "merge, then tag" in said


def test_work_that_is_not_committed_is_refused_before_tagging(checkout: Checkout) -> None:
    checkout.write("README.md", "# Incubating, and edited\n")
    status, said = checkout.check()
    assert status == 1
    assert "not committed" in said


def test_a_version_that_is_tagged_already_is_refused_before_tagging(checkout: Checkout) -> None:
    checkout.tag("v0.2.0")
    checkout.commit("fix: one more thing")
    status, said = checkout.check()
    assert status == 1
    assert "`v0.2.0` exists already" in said


def test_a_version_older_than_a_released_one_is_refused(checkout: Checkout) -> None:
    checkout.tag("v0.10.0")
    checkout.tag("v0.2.0")
    status, said = checkout.check("v0.2.0")
    assert status == 1
    assert "0.2.0 is older than v0.10.0" in said


@pytest.mark.requirement("project.release")
@pytest.mark.parametrize(
    ("before", "after", "objection"),
    [
        ("## [0.2.0] - 2026-03-01", "## [0.2.0]", "has no date"),
        ("2026-03-01", "2026-13-01", "has no date"),
        ("## [0.2.0] - 2026-03-01", "## [0.3.0] - 2026-03-01", "has no entry `## [0.2.0] - YYYY-MM-DD`"),
        ("### Added\n- The second thing.\n", "", "says nothing under"),
        ("## [Unreleased]\n", "## [Unreleased]\n\n- A late thing.\n", "still lists changes under `Unreleased`"),
    ],
)
def test_a_changelog_without_a_proper_entry_is_refused(
    checkout: Checkout, before: str, after: str, objection: str
) -> None:
    assert before in CHANGELOG
    checkout.write("CHANGELOG.md", CHANGELOG.replace(before, after))
    checkout.commit("docs: changelog")
    checkout.tag("v0.2.0")
    status, said = checkout.check("v0.2.0")
    assert status == 1
    assert objection in said


@pytest.mark.parametrize("document", ["README.md", "CLAUDE.md", "docs/internals/principles.md", "CHANGELOG.md"])
def test_a_missing_document_is_refused(checkout: Checkout, document: str) -> None:
    (checkout.folder / document).unlink()
    checkout.commit("docs: lost")
    status, said = checkout.check()
    assert status == 1
    assert document in said


@pytest.mark.parametrize(
    ("document", "content", "place"),
    [
        ("README.md", "# A thing\n", "README.md"),
        ("README.md", "# A thing\n" + "text\n" * 40 + "Incubating.\n", "README.md"),
        ("pyproject.toml", '[project]\ndescription = "A thing."\n', "the description in pyproject.toml"),
    ],
)
def test_a_release_before_1_0_that_does_not_say_incubating_is_refused(
    checkout: Checkout, document: str, content: str, place: str
) -> None:
    checkout.write(document, content)
    checkout.commit("docs: boast")
    status, said = checkout.check()
    assert status == 1
    assert f"{place} does not say that the project is incubating" in said


def test_1_0_is_refused_while_the_documents_still_say_incubating(checkout: Checkout) -> None:
    checkout.write("src/mcp_workbench/__init__.py", '__version__ = "1.0.0"\n')
    checkout.write("CHANGELOG.md", CHANGELOG.replace("0.2.0", "1.0.0"))
    checkout.commit("feat: graduate")
    status, said = checkout.check()
    assert status == 1
    assert "README.md still says that the project is incubating" in said


def test_all_objections_are_reported_at_once(checkout: Checkout) -> None:
    checkout.write("CHANGELOG.md", "# Changelog\n")
    checkout.write("README.md", "# A thing\n")
    checkout.commit("docs: less")
    checkout.git("tag", "v0.3.0")
    said = checkout.check("v0.3.0")[1].splitlines()
    assert len(said) == 4
    assert all(line.startswith("refused: ") for line in said)


def test_the_work_tree_does_not_count_only_the_tagged_commit_does(checkout: Checkout) -> None:
    checkout.tag("v0.2.0")
    checkout.write("CHANGELOG.md", "# edited after the tag\n")
    checkout.write("src/mcp_workbench/__init__.py", '__version__ = "9.9.9"\n')
    assert checkout.check("v0.2.0")[0] == 0


def test_code_that_changed_without_its_document_is_pointed_out_but_not_refused(checkout: Checkout) -> None:
    checkout.tag("v0.1.0")
    checkout.write("src/mcp_workbench/engine/config/model.py", "KEYS = 1\n")
    checkout.commit("feat: a setting")
    checkout.tag("v0.2.0")
    status, said = checkout.check("v0.2.0")
    assert status == 0
    assert "look: README.md is as it was in v0.1.0, but src/mcp_workbench/engine/config/model.py is not" in said
    assert "look: CLAUDE.md is as it was in v0.1.0, but src/mcp_workbench/engine/config/model.py is not" in said


@pytest.mark.parametrize(("outcome", "expected"), [("exit 0", 0), ("exit 3", 1)])
def test_the_tests_must_pass_when_they_are_asked_for(checkout: Checkout, outcome: str, expected: int) -> None:
    checkout.write(".ci/run", f"{outcome}\n")
    checkout.commit("test: everything")
    status, said = checkout.check("--run-ci")
    assert status == expected
    assert ("refused: .ci/run failed" in said) == (expected == 1)
