"""Every command prints what it printed before, in a pipe and on a terminal of 80 columns."""

from __future__ import annotations

import shlex

import pytest

from mcp_workbench.cli.usage import ACTIONS_OF_COMMANDS, COMMANDS
from tests.cli.golden_output import CASES, FOLDER, MODES, WIDTH, record

pytestmark = pytest.mark.processes
AGAIN = "look at it, and if it is right: .venv/bin/python -m tests.cli.golden_output"


@pytest.fixture(scope="module", params=MODES)
def recorded(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    return request.param, record(request.param)


def test_every_command_prints_its_golden_output(recorded: tuple[str, dict[str, str]]) -> None:
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


def test_every_command_and_every_action_is_among_them() -> None:
    ran = [shlex.split(case.words) for case in CASES]
    missing = [name for name in COMMANDS if name not in (words[0] for words in ran)]
    missing += [
        f"{name} {action}"
        for name, command in COMMANDS.items()
        for action in command.actions
        if action not in ACTIONS_OF_COMMANDS.get(name, {})
        if [name, action] not in (words[:2] for words in ran)
    ]
    assert missing == [], "a case in tests/cli/golden_output.py is missing"
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_command_fails_in_one_of_them() -> None:
    """What goes wrong is fixed as well as what goes right."""
    kept = [path.read_text("utf-8") for path in FOLDER.glob("*.pipe.txt")]
    failed = {text.split()[2] for text in kept if "\nstatus 0\n" not in text}
    assert COMMANDS.keys() - failed == set()
