"""What is released is what the repository has: wheel and sdist are checked before anything is published."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts.other_pythons import copy_checkout
from scripts.release_trial import (
    NEEDED_IN_SDIST,
    ROOT,
    Refused,
    build,
    check_sdist,
    check_wheel,
    list_materials,
    objections,
    rename,
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("src/mcp_workbench/__init__.py", "src/mcp_workbench/page/site.js", "docs/guides/faces.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


METADATA = tuple(
    f"x-1.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
)
PACKAGE = ("mcp_workbench/__init__.py", "mcp_workbench/page/site.js", "mcp_workbench/documents/guides/faces.md")


def test_a_wheel_has_the_package_the_documents_and_nothing_else(checkout: Path) -> None:
    check_wheel([*METADATA, *PACKAGE], checkout)
    with pytest.raises(Refused, match=r"lacks \['mcp_workbench/page/site.js'\] and has \[\]"):
        check_wheel([*METADATA, PACKAGE[0], PACKAGE[2]], checkout)
    with pytest.raises(Refused, match=r"has \['tests/conftest.py'\]"):
        check_wheel([*METADATA, *PACKAGE, "tests/conftest.py"], checkout)
    with pytest.raises(Refused, match=r"metadata lacks \['entry_points.txt'\]"):
        check_wheel([*METADATA[:3], METADATA[4], *PACKAGE], checkout)


def test_an_sdist_can_be_tested_and_has_no_leftovers() -> None:
    whole = [f"x-1/{name}" for name in NEEDED_IN_SDIST]
    check_sdist(whole)
    with pytest.raises(Refused, match=r"lacks \['tests/conftest.py'\]"):
        check_sdist(whole[:-1])
    with pytest.raises(Refused, match="__pycache__"):
        check_sdist([*whole, "x-1/src/__pycache__/a.cpython-311.pyc"])


@pytest.mark.processes
def test_the_distribution_can_be_named_otherwise_by_one_line(tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    settings = tmp_path / "pyproject.toml"
    settings.write_text(rename(settings.read_text("utf-8"), "another-workbench"), "utf-8")
    assert tomllib.loads(settings.read_text("utf-8"))["project"]["name"] == "another-workbench"
    wheel, sdist = build(tmp_path)
    assert wheel.name.startswith("another_workbench-") and sdist.name.startswith("another_workbench-")
    with zipfile.ZipFile(wheel) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert b"mcp-workbench = mcp_workbench.__main__:main" in archive.read(entry)


@pytest.mark.processes
def test_release_trial_refuses_as_check_release_does(tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    changelog = tmp_path / "CHANGELOG.md"
    released = re.sub(r"## \[Unreleased\].*?(?=## \[0)", "", changelog.read_text("utf-8"), flags=re.DOTALL)
    # What comes after a release waits for the next one. Until there is one, nothing may wait.
    if subprocess.run(["git", "tag", "--list", "v*"], cwd=ROOT, capture_output=True, check=True).stdout:
        changelog.write_text(released, "utf-8")
    assert objections(tmp_path, ROOT) == []
    changelog.write_text(released.replace("## [0", "## [Unreleased]\n\n- News.\n\n## [0", 1), "utf-8")
    assert [each.partition(";")[0] for each in objections(tmp_path, ROOT)] == [
        "CHANGELOG.md still lists changes under `Unreleased`"
    ]


@pytest.mark.processes
def test_the_bill_of_materials_has_components(tmp_path: Path) -> None:
    list_materials(tmp_path)
    assert json.loads((tmp_path / "materials.cdx.json").read_bytes())["components"]
