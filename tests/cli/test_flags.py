from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cli.flags import Command, Flag, Parsed, UsageError, named_value, parse

FLAGS = (
    Flag("config", "FILE", "a file"),
    Flag("debug", None, "a switch"),
    Flag("version", "VALUE", "optional", optional_value=True),
    Flag("tag", "TAG", "may be repeated", repeats=True),
)


def read(*arguments: str, positionals: int | None = 2) -> Parsed:
    return parse(arguments, FLAGS, positionals=positionals)


def test_values_follow_or_are_joined_by_an_equals_sign() -> None:
    assert read("--config", "a.json").value("config") == "a.json"
    assert read("--config=a=b.json").value("config") == "a=b.json"
    assert read("--config=").value("config") == ""
    assert read().value("config") is None


def test_an_optional_value_is_not_taken_from_the_next_option() -> None:
    assert read("--version").is_bare("version")
    assert read("--version", "--debug").is_bare("version")
    assert read("--version", "2.0").value("version") == "2.0"
    assert not read().is_bare("version")


def test_options_may_be_repeated_only_where_that_means_something() -> None:
    assert read("--tag", "a", "--tag=b").values("tag") == ["a", "b"]
    with pytest.raises(UsageError, match="--debug was given twice"):
        read("--debug", "--debug")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--confg", "x"], "unknown option `--confg`; did you mean `--config`?"),
        (["--quite-different"], "unknown option `--quite-different`"),
        (["-x"], "unknown option `-x`"),
        (["--config"], "--config needs a value: FILE"),
        (["--debug=yes"], "--debug takes no value"),
        (["a", "b", "c"], "unexpected argument `c`"),
    ],
)
def test_a_wrong_command_line_is_reported_in_one_sentence(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(*arguments)
    assert str(raised.value) == message


def test_two_dashes_end_the_options_and_a_dash_or_a_number_is_no_option() -> None:
    assert read("--", "--debug", "-x").positionals == ["--debug", "-x"]
    assert read("-", "-5").positionals == ["-", "-5"]


def test_runner_keeps_arguments_after_its_first() -> None:
    parsed = parse(["--debug", "server", "--unknown", "-h", "--"], FLAGS, positionals=None, is_runner=True)
    assert parsed.positionals == ["server", "--unknown", "-h", "--"]
    assert not parsed.wants_help


def test_a_command_names_the_arguments_that_are_missing_unless_help_is_wanted() -> None:
    command = Command("go [OPTIONS] FROM TO", "go", "Goes.", FLAGS, names=["FROM", "TO"], takes=2)
    with pytest.raises(UsageError, match="TO is missing") as raised:
        command.parse(["here"])
    assert raised.value.hint == "mcp-workbench go [OPTIONS] FROM TO"
    assert command.parse(["-h"]).wants_help
    assert command.parse(["here", "there"]).positionals == ["here", "there"]


def test_options_of_a_program_before_the_dashes_are_explained() -> None:
    command = Command("add NAME -- COMMAND ...", "Add a server", "", [Flag("env", "NAME=VALUE", "a variable")])
    with pytest.raises(UsageError, match="unknown option `-y`") as caught:
        command.parse(["foo", "npx", "-y", "@x/y"])
    assert "go after --" in (caught.value.hint or "")
    for arguments in (["-y", "foo", "--", "npx"], ["foo", "http://127.0.0.1/mcp", "-y"]):
        with pytest.raises(UsageError, match="unknown option `-y`") as caught:
            command.parse(arguments)
        assert caught.value.hint is None


def test_a_command_knows_its_actions() -> None:
    command = Command("shop [sell|buy]", "shop", "Shops.", (), actions=("sell", "buy"), takes=1)
    assert command.name == "shop"
    assert command.parse([]).positionals == [] and command.parse(["buy"]).positionals == ["buy"]
    with pytest.raises(UsageError, match=r"unknown action `sel`; did you mean `sell`\?") as raised:
        command.parse(["sel"])
    assert raised.value.hint == "mcp-workbench shop [sell|buy]"
    assert command.parse(["sel", "--help"]).wants_help


def test_help_lists_every_option_with_its_value() -> None:
    text = Command("go", "go", "\nGoes.\n", FLAGS).help("go")
    assert text.startswith("Usage: mcp-workbench go\n\nGoes.\n\nOptions:\n")
    assert [line.split()[0] for line in text.splitlines()[5:]] == [
        "--config",
        "--debug",
        "--version",
        "--tag",
        "--help",
    ]


@given(st.lists(st.text(max_size=8), max_size=8))
def test_any_command_line_is_understood_or_refused_in_words(arguments: list[str]) -> None:
    with suppress(UsageError):
        parsed = read(*arguments, positionals=None)
        assert all(word in arguments for word in parsed.positionals)


def test_pair_is_split_at_the_first_separator() -> None:
    assert named_value("A=b=c ", "--env") == ("A", "b=c ")
    assert named_value("Authorization: Bearer T==", "--header", "=:") == ("Authorization", "Bearer T==")
    assert named_value("Authorization=Bearer a:b", "--header", "=:") == ("Authorization", "Bearer a:b")
