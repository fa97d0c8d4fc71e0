"""Small mistakes: which there are, and that tests which look notice them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutants import exchange, functions_in, mutants_of, suite_of

SOURCE = """
LIMIT = 5


def first(limits, who):
    for limit in limits:
        if limit.who != who and limit.is_on:
            continue
        log.info("found %s", limit)
        return limit.most + 1
    raise LookupError("none")
"""

IMPORTED = """
def outer(n):
    return [each for each in range(n) if each != 1]


class C:
    def m(self):
        return 2
"""


def test_mutants_change_functions_and_not_texts() -> None:
    found = {(mutant.line, mutant.was, mutant.now) for mutant in mutants_of(SOURCE)}
    assert {
        (7, "if limit.who != who and limit.is_on:", "if False:"),
        (7, "limit.who != who and limit.is_on", "limit.who != who or limit.is_on"),
        (7, "limit.who != who and limit.is_on", "limit.who != who"),
        (7, "limit.who != who", "limit.who == who"),
        (8, "continue", "break"),
        (10, "limit.most + 1", "limit.most - 1"),
        (10, "return limit.most + 1", "return None"),
    } <= found
    assert {line for line, _, _ in found} == {7, 8, 10}


def test_every_mutant_differs_from_the_original_in_one_place() -> None:
    original = ast.dump(ast.parse(SOURCE))
    mutants = mutants_of(SOURCE)
    dumped = {ast.dump(mutant.tree) for mutant in mutants}
    assert len(dumped) == len(mutants) and original not in dumped
    assert ast.dump(ast.parse(SOURCE)) == original


def test_functions_that_others_have_imported_already_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some_module.py"
    path.write_text(IMPORTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    from some_module import C, outer  # type: ignore[import-not-found]

    functions = functions_in(str(path))
    answers = []
    for mutant in mutants_of(path.read_text()):
        assert exchange(functions, mutant.tree, str(path))
        answers.append((outer(3), C().m()))
        exchange(functions, ast.parse(path.read_text()), str(path))
    assert ([1], 2) in answers and ([0, 2], 3) in answers and ([0, 2], None) in answers
    assert (outer(3), C().m()) == ([0, 2], 2)


def test_tests_are_those_that_name_the_module_and_those_beside_its_own() -> None:
    found = suite_of("team/policy/limit_step")
    assert {"tests/team/policy/test_limit_step.py", "tests/team/policy/test_approval.py"} <= set(found)
    assert "tests/engine/jsonrpc/test_framing.py" not in found


# The second is imported by no test, but by what they use, when it is needed.
@pytest.mark.parametrize(
    ("module", "tests", "sample"),
    [
        ("team/policy/globs", "tests/team/policy/test_policy.py", 12),
        ("engine/catalog/stateful", "tests/engine/downstream/test_pool.py", 6),
    ],
)
def test_survivors_are_listed_with_their_lines(module: str, tests: str, sample: int) -> None:
    command = [sys.executable, "-m", "scripts.mutants", "--sample", str(sample), module, tests]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert f"{module}: {sample} mutants, " in run.stdout, run.stdout + run.stderr
    assert ", 0 not tried: " in run.stdout
    noticed = int(run.stdout.rpartition(" noticed,")[0].rpartition(" ")[2])
    assert noticed >= sample / 2
