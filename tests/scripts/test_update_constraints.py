"""`scripts/update_constraints.py`: which files of an index count, and which combinations have none."""

from __future__ import annotations

import pytest

from scripts.update_constraints import Links, gaps, normalized, usable


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("cp311-cp311-manylinux_2_28_aarch64", True),
        ("cp314-cp314-macosx_11_0_arm64", True),
        ("cp313-cp313-musllinux_1_2_x86_64", True),
        ("cp39-abi3-macosx_10_12_universal2", True),
        ("cp310-cp310-manylinux_2_28_x86_64", False),
        ("cp314-cp314t-manylinux_2_28_x86_64", False),
        ("cp315-cp315-manylinux_2_28_x86_64", False),
        ("cp315-abi3-manylinux_2_28_x86_64", False),
        ("cp312-cp312-win_amd64", False),
        ("pp311-pypy311_pp73-manylinux_2_28_x86_64", False),
        ("py2-none-any", False),
    ],
)
def test_a_wheel_counts_when_a_supported_system_can_use_it(tags: str, expected: bool) -> None:
    python, abi, platform = tags.split("-")
    assert usable(python, abi, platform) is expected


def test_a_pure_wheel_leaves_no_gap() -> None:
    assert gaps(["thing-1.0-py3-none-any.whl"]) == []


def test_a_stable_abi_wheel_serves_every_interpreter_of_its_platform() -> None:
    files = [f"thing-1.0-cp39-abi3-{where}.whl" for where in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64")]
    assert [gap.split()[0] for gap in gaps(files)] == ["3.11", "3.12", "3.13", "3.14"]
    assert all("macosx" in gap for gap in gaps(files))


def test_an_interpreter_without_a_wheel_is_a_gap() -> None:
    platforms = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_11_0_arm64")
    files = [f"thing-1.0-cp3{minor}-cp3{minor}-{where}.whl" for minor in (11, 12, 13) for where in platforms]
    assert {gap.split()[0] for gap in gaps(files)} == {"3.14"}


def test_files_and_hashes_are_read_from_a_project_page() -> None:
    links = Links()
    links.feed(
        '<a href="../../files/thing-1.0-py3-none-any.whl#sha256=aa">thing</a>'
        '<a href="../../files/thing-1.0%2Bcpu-py3-none-any.whl#sha256=bb">thing</a>'
        '<a href="../../files/thing-0.1.tar.gz">no hash</a><link href="x#sha256=cc">'
    )
    assert links.files == {"thing-1.0-py3-none-any.whl": "aa", "thing-1.0+cpu-py3-none-any.whl": "bb"}


def test_names_are_compared_as_the_index_spells_them() -> None:
    assert normalized("Typing_Extensions") == normalized("typing.extensions") == "typing-extensions"
