"""Every command prints what it printed before, in a pipe and on a terminal of 80 columns."""

from __future__ import annotations

import pytest

from mcp_workbench.cli.usage import COMMANDS
from tests.cli.golden_output import CASES, FOLDER, MODES, WIDTH, record

pytestmark = pytest.mark.processes
AGAIN = "look at it, and if it is right: .venv/bin/python -m tests.cli.golden_output"


@pytest.fixture(scope="module", params=MODES)
def recorded(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    return request.param, record(request.param)


def test_every_command_prints_what_it_is_known_to_print(recorded: tuple[str, dict[str, str]]) -> None:
    mode, found = recorded
    kept = {path.name.removesuffix(f".{mode}.txt"): path.read_text("utf-8") for path in FOLDER.glob(f"*.{mode}.txt")}
    for name, text in found.items():
        assert kept.get(name) == text, AGAIN
    assert found.keys() == kept.keys(), AGAIN


def test_nothing_is_wider_than_the_terminal(recorded: tuple[str, dict[str, str]]) -> None:
    """Words alone may be: a path or a command is never broken, so that it can be copied."""
    mode, found = recorded
    if mode == "pipe":
        pytest.skip("in a pipe, lines are whole")
    wide = [
        line for text in found.values() for line in text.splitlines()[1:] if len(line) > WIDTH and " " in line.strip()
    ]
    assert [
        line for line in wide if "? [" not in line and not line.lstrip().startswith(('"', "+", "{", "claude", "/"))
    ] == []


def test_every_command_is_among_them() -> None:
    ran = {case.words.split()[0] for case in CASES}
    assert [name for name in COMMANDS if name not in ran] == [], "a case in tests/cli/golden_output.py is missing"
