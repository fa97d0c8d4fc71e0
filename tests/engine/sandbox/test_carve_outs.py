"""What stays read-only inside of folders that a server may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox.carve_outs import CarveOuts, carve_outs
from mcp_workbench.engine.sandbox.machine import look, this_machine


@pytest.fixture
def work(tmp_path: Path) -> Path:
    found = tmp_path.resolve() / "work"
    found.mkdir()
    return found


def found_in(work: Path, *named: Path, own: tuple[Path, ...] = ()) -> CarveOuts:
    machine = this_machine(str(work.parent / "home"))
    return carve_outs(machine, [str(work.parent / "empty"), str(work)], list(map(str, named)), list(map(str, own)))


def repository(path: Path) -> Path:
    (path / ".git" / "hooks").mkdir(parents=True)
    (path / ".git" / "config").touch()
    return path


def named(paths: tuple[str, ...], folder: Path) -> set[str]:
    return {str(Path(path).relative_to(folder)) for path in paths}


def test_files_other_programs_run_or_trust_stay_read_only(work: Path) -> None:
    for name in (".vscode", ".claude", "src"):
        (work / name).mkdir()
    (work / ".mcp.json").touch()
    assert named(found_in(work).read_only, work) == {".vscode", ".claude", ".mcp.json"}
    # No repository: no folders appear in it.
    assert found_in(work).created == ()


def test_in_a_repository_folders_that_are_missing_are_to_be_created(work: Path) -> None:
    repository(work)
    (work / ".vscode").mkdir()
    (work / ".git/hooks").rmdir()
    kept = found_in(work)
    assert named(kept.created, work) == {".git/hooks", ".git/commondir", ".idea", ".claude", ".cursor"}
    assert named(kept.read_only, work) == {".git/config", ".vscode", *named(kept.created, work)}


def test_repositories_in_the_folder_count_too(work: Path) -> None:
    (work / "a").mkdir()
    repository(work / "b")
    assert ".git/hooks" in named(tuple(p for p in found_in(work).read_only if "/b/" in p), work / "b")
    assert not any("/a/" in path for path in found_in(work).read_only)


def test_a_file_that_says_where_the_repository_is_stays_too(work: Path) -> None:
    (work / ".git").write_text("gitdir: /elsewhere")
    assert ".git" in named(found_in(work).read_only, work)


def test_explicit_write_grants_apply(work: Path) -> None:
    repository(work)
    kept = found_in(work, work / ".git/config", work / ".vscode")
    assert named(kept.read_only, work) == {".git/hooks", ".git/commondir", ".idea", ".claude", ".cursor"}
    assert ".vscode" not in named(kept.created, work)


def test_our_own_files_stay_wherever_they_are(work: Path) -> None:
    (work / "deep").mkdir()
    ours, missing = work / "deep" / "c.json", work / "deep" / "workbench.lock"
    ours.touch()
    outside = work.parent / "other.json"
    outside.touch()
    assert found_in(work, own=(outside, missing, ours)).read_only == (str(ours),)


def test_a_link_is_left_alone_because_nothing_can_be_mounted_on_it(work: Path) -> None:
    target = work.parent / "secret"
    target.mkdir()
    (work / ".vscode").symlink_to(target)
    repository(work.parent / "elsewhere")
    (work / ".git").symlink_to(work.parent / "elsewhere/.git")
    (work / ".idea").mkdir()
    assert look(str(work / ".vscode")) is not None
    assert named(found_in(work).read_only, work) == {".idea"}
