"""docs/reference/cli.md describes every command with every option, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcp_workbench.cli.flags import HELP_FLAG, Flag
from mcp_workbench.cli.usage import COMMAND_GROUPS, COMMANDS, SPELLED

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def section(command: str) -> str:
    found = re.search(rf"^## {command}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/cli.md has no section {command}"
    return found[1]


def options(command: str) -> list[Flag]:
    return [*COMMANDS[command].flags, HELP_FLAG]


@pytest.mark.requirement("project.documentation")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_stands_in_the_table_of_its_command_in_the_same_order(command: str) -> None:
    written = re.findall(r"^\| `--([a-z-]+)( [A-Z=]+)?` \| \S.*\|$", section(command), re.MULTILINE)
    written = [(name, value.strip()) for name, value in written]
    # In the table of arguments of `call`, `--json` stands beside the other ways to give them.
    ways = 1 if command == "call" else 0
    assert written[ways:] == [(flag.name, flag.value or "") for flag in options(command)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_list_and_has_an_example(command: str) -> None:
    assert f"| [`{SPELLED[command]}`](#{command}) | " in DOCUMENT
    assert f"```sh\nmcp-workbench {SPELLED[command]}" in section(command)


def test_the_readme_has_the_groups_of_the_first_screen() -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    line = " ".join(readme.partition("\n- Set up: ")[2].partition(". Each explains itself")[0].split())
    groups = dict(each.split(": ") for each in f"Set up: {line}".split(" · "))
    assert groups == {group: " ".join(f"`{name}`" for name in names) for group, names in COMMAND_GROUPS.items()}
