"""Promises and tests, held against each other: no behaviour without a test, no test that names an unknown behaviour."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.source_tree import statements

TESTS = Path(__file__).resolve().parent
REQUIREMENTS = TESTS / "requirements.toml"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
SOURCE = re.compile(rf"design|seed 00[0-4]\S* ?\S*|specification ({'|'.join(REVISIONS)}), [a-z][a-z/-]*")
IDENTIFIER = re.compile(r"[a-z]+(-[a-z]+)*(\.[a-z]+(-[a-z]+)*)?")


@cache
def promised() -> dict[str, dict[str, str]]:
    return tomllib.loads(REQUIREMENTS.read_text(encoding="utf-8"))


def marks(path: Path) -> Iterator[tuple[str, str]]:
    """Every test of this file with a behaviour that it names."""
    source = path.read_text(encoding="utf-8")
    for node in statements(ast.parse(source)) if "mark.requirement" in source else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.requirement":
                    for argument in decorator.args:
                        assert isinstance(argument, ast.Constant) and isinstance(argument.value, str), ast.unparse(node)
                        yield f"{path.name}::{node.name}", argument.value


@cache
def named() -> dict[str, list[str]]:
    """Tests by the behaviour that they show."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, identifier in marks(path):
            found.setdefault(identifier, []).append(test)
    return found


def test_every_behaviour_has_a_test() -> None:
    assert sorted(promised().keys() - named().keys()) == []


def test_no_test_names_an_unknown_behaviour() -> None:
    unknown = {identifier: tests for identifier, tests in named().items() if identifier not in promised()}
    assert unknown == {}


def test_each_behaviour_has_a_description_and_an_origin() -> None:
    for identifier, behaviour in promised().items():
        assert IDENTIFIER.fullmatch(identifier)
        assert set(behaviour) == {"text", "source"}
        assert 10 < len(behaviour["text"]) < 130
        for source in behaviour["source"].split("; "):
            assert SOURCE.fullmatch(source), source


# What the project was asked for: a table of sentences, each with its tests.

SEEDS = TESTS.parent / "docs" / "internals" / "seeds.md"
SENTENCE = re.compile(r"^\| (00[0-4](?:\.\d+| [IVXA-Z]+\.\d+)) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


@cache
def sentences() -> dict[str, str]:
    """What shows each sentence of the seeds, by its number."""
    return {number: shown for number, _, shown in SENTENCE.findall(SEEDS.read_text(encoding="utf-8"))}


@cache
def functions_of(path: Path) -> frozenset[str]:
    found = statements(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else ()
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_sentence_of_the_seeds_has_a_test_that_exists_or_a_reason() -> None:
    rows = [line for line in SEEDS.read_text(encoding="utf-8").splitlines() if line.startswith("| 00")]
    assert len(rows) == len(sentences()) > 100
    for number, shown in sentences().items():
        cited = TEST.findall(shown)
        assert cited or shown.startswith("*"), number
        assert [each for each in cited if each[1] not in functions_of(TESTS / each[0])] == [], number


def test_the_counts_of_the_seeds_are_those_of_their_table() -> None:
    reasons = sum(shown.startswith("*") for shown in sentences().values())
    head = " ".join(SEEDS.read_text(encoding="utf-8").partition("\n## ")[0].split())
    total = len(sentences())
    assert (
        f"Of {total} requirements, {total - reasons} hold as they are written. {reasons} hold in another form" in head
    )


def test_a_behaviour_that_a_seed_asked_for_names_its_sentence() -> None:
    for identifier, behaviour in promised().items():
        for source in behaviour["source"].split("; "):
            if source.startswith("seed "):
                assert source.removeprefix("seed ") in sentences(), (identifier, source)


def test_no_two_behaviours_are_the_same() -> None:
    texts = [behaviour["text"] for behaviour in promised().values()]
    assert len(set(texts)) == len(texts)


def test_marks_are_found_however_they_are_written(tmp_path: Path) -> None:
    written = tmp_path / "test_x.py"
    written.write_text(
        "import pytest\n"
        '@pytest.mark.requirement("a", "b")\n@pytest.mark.node\nasync def test_one(): ...\n'
        'class TestTwo:\n    @pytest.mark.parametrize("x", [1])\n    @pytest.mark.requirement(\n        "c"\n    )\n'
        "    def test_it(self, x): ...\n"
    )
    assert list(marks(written)) == [
        ("test_x.py::test_one", "a"),
        ("test_x.py::test_one", "b"),
        ("test_x.py::test_it", "c"),
    ]
