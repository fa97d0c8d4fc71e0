"""The files of the page: what they may not contain, how large they may be, that they are in the wheel."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from mcp_workbench.seeing.page.site import SIGN_IN_FORM, SIGN_IN_PAGE
from tests.seeing.page.scripted_api import WEB

# With the form that signs in.
MAX_BYTES = 100_000
SCRIPTS = sorted(WEB.glob("*.js"))
# Each of them makes markup or code of a text, which here is always a text of somebody else.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment|DOMParser"
    r"|setHTML|srcdoc|\bstyle=|\bon[a-z]+=[\"']|\.on[a-z]+ =|javascript:"
)


@pytest.mark.parametrize("path", sorted(WEB.iterdir()), ids=lambda path: path.name)
def test_file_makes_no_markup_of_text(path: Path) -> None:
    found = [line for line in path.read_text(encoding="utf-8").splitlines() if FORBIDDEN.search(line)]

    assert found == []


@pytest.mark.parametrize(
    "line", ["row.innerHTML = name;", '<p style="color: red">', "<img onerror='x'>", "row.onclick = go;"]
)
def test_forbidden_lines_are_found(line: str) -> None:
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize("path", sorted(WEB.iterdir()), ids=lambda path: path.name)
def test_file_loads_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")

    assert "://" not in text
    assert "url(" not in text


def test_modules_import_only_modules_that_exist() -> None:
    imported = [name for path in SCRIPTS for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8"))]

    assert set(imported) | {"app.js"} == {path.name for path in SCRIPTS}


def test_files_stay_within_their_budget() -> None:
    form = len(SIGN_IN_PAGE.encode()) + len(SIGN_IN_FORM.encode())

    assert form + sum(path.stat().st_size for path in WEB.iterdir()) <= MAX_BYTES


def test_wheel_has_the_files(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    root = Path(__file__).resolve().parents[3]
    wheel = next(iter(WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])))

    with zipfile.ZipFile(wheel) as archive:
        packed = {Path(name).name for name in archive.namelist() if "/seeing/page/web/" in name}
    assert packed == {path.name for path in WEB.iterdir()}
