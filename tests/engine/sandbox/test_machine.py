"""What is at a path: the same however it is found out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.sandbox import machine
from mcp_workbench.engine.sandbox.machine import look, this_machine
from mcp_workbench.engine.sandbox.thread_backend import is_in, outermost

NAMES = ["folder", "file", "to folder", "to file", "to link", "dangling", "missing", "x (deleted)", "a\nb", "\udcff"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "place"
    (place / "folder").mkdir(parents=True)
    for name in ("file", "x (deleted)", "a\nb", "\udcff", "folder/inner"):
        (place / name).touch()
    for link, target in {"to folder": "folder", "to file": "file", "to link": "to folder", "dangling": "none"}.items():
        (place / link).symlink_to(target)
    return place


@pytest.mark.parametrize(
    "name", [*NAMES, "folder/inner", "to folder/inner", "to folder/missing", "file/inner", "folder/.."]
)
def test_paths_are_resolved_through_links(place: Path, name: str) -> None:
    path = os.path.join(place, name)
    found = look(path)
    if not os.path.exists(path):
        assert found is None
    else:
        assert found is not None
        assert (found.path, found.is_folder) == (os.path.realpath(path), os.path.isdir(path))
        assert bool(found.links) == (os.path.realpath(path) != os.path.normpath(path))
    assert machine._real(path) == os.path.realpath(path)


@pytest.mark.parametrize("path", ["a\0b", "relative", ""])
def test_paths_that_are_not_absolute_are_not_found(path: str) -> None:
    assert look(path) is None


def test_a_decision_looks_at_a_path_once_and_the_next_one_looks_again(place: Path) -> None:
    link, deciding = place / "to folder", this_machine(str(place))
    before = deciding.look(str(link))
    link.unlink()
    link.symlink_to("file")
    assert deciding.look(str(link)) == before
    found = this_machine(str(place)).look(str(link))
    assert found is not None and not found.is_folder


@given(st.lists(st.text("ab-/", max_size=6).map(lambda text: os.path.normpath(f"/{text}").replace("//", "/"))))
def test_the_outermost_paths_contain_all_others_and_not_each_other(paths: list[str]) -> None:
    found = outermost(paths)
    assert set(found) <= set(paths)
    assert all(is_in(path, found) for path in paths)
    assert not any(is_in(path, [other]) for path in found for other in found if other != path)
