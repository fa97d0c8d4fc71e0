"""What the environment lacks is the problem of the server that needs it, not of the file and not of its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.config.load import load, unresolved
from mcp_workbench.engine.config.problems import ConfigProblems, in_one_line
from tests.engine.config.loading import outcome_of, parsed, problems_of, server_of, toolbox_with
from tests.support.workbench import write_config

ENVIRON = {"EMPTY": "", "WORD": "word", "HUNTER": "hunter2hunter2"}
PATH = "$.toolboxes.dev.mcpServers.fs"


@pytest.mark.parametrize(
    ("server", "below", "words"),
    [
        ({"command": "${GONE}"}, ".command", "the variable `GONE` is not set"),
        ({"command": "${EMPTY}"}, ".command", "is empty once expanded"),
        ({"command": "x", "env": {"A": "${B}", "B": "b"}}, ".env.A", "the variable `B` is not set"),
        ({"command": "x", "args": ["a", "${B:-${C}}"]}, ".args[1]", "the variable `C` is not set"),
        ({"command": "x", "timeout": "${WORD}"}, ".timeout", "found `${WORD}`"),
        ({"command": "x", "disabled": "${GONE}"}, ".disabled", "the variable `GONE` is not set"),
        ({"url": "${WORD}/mcp"}, ".url", "without `http://`"),
        (
            {"url": "https://a.b", "headers": {"Authorization": "Bearer ${T}"}},
            ".headers.Authorization",
            "`T` is not set",
        ),
    ],
)
def test_unresolved_value_names_its_place(server: dict[str, object], below: str, words: str) -> None:
    (problem,) = server_of(server, ENVIRON).unresolved
    assert problem.path_in_file == PATH + below
    assert words in problem.found
    assert words in in_one_line([problem])


@pytest.mark.requirement("config.unresolved")
def test_the_other_servers_of_the_file_are_as_usual() -> None:
    servers = {"bad": {"command": "x", "env": {"T": "${T}"}}, "good": {"command": "y", "env": {"W": "${WORD}"}}}
    config = parsed({"mcpServers": servers}, ENVIRON)
    found = config.toolboxes["default"].servers
    assert list(found) == ["bad", "good"]
    assert found["good"].env == {"W": "word"} and not found["good"].unresolved
    assert [problem.path_in_file for problem in config.unresolved] == ["$.mcpServers.bad.env.T"]


def test_mistakes_in_the_file_are_reported_with_missing_variables() -> None:
    error = problems_of(toolbox_with({"command": "${GONE}", "timeout": -1, "args": ["${A"]}), ENVIRON)
    assert [problem.steps[-1] for problem in error.problems if problem.steps] == ["command", "timeout", 0]


def test_a_variable_outside_of_any_server_is_a_problem_of_the_file() -> None:
    assert "the variable `GONE` is not set" in str(problems_of({**toolbox_with({"command": "x"}), "face": "${GONE}"}))


def test_a_server_that_is_disabled_needs_no_variables() -> None:
    servers = {"off": {"command": "${GONE}", "disabled": True}, "on": {"command": "x"}}
    assert parsed({"mcpServers": servers}).unresolved == []


@pytest.mark.requirement("config.secrets")
@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "env": {"A": "${HUNTER} ${GONE}"}, "timeout": "${HUNTER}"},
        {"url": "https://a.b:${HUNTER}/mcp"},
        {"url": "${HUNTER}://a.b/mcp"},
        {"url": "${HUNTER}"},
        {"url": "https://a.b", "headers": {"A": "${HUNTER}\nB: c"}, "transport": "${HUNTER}", "protocol": "${HUNTER}"},
        {"command": "x", "rename": {"a": "${HUNTER}", "b": "${HUNTER}"}, "disabled": "${HUNTER}"},
        {"command": "x", "toolFilters": ["!", "${HUNTER}", "${GONE}"], "idleTimeout": "${HUNTER}"},
    ],
)
def test_values_of_variables_are_not_shown(server: dict[str, object]) -> None:
    outcome = outcome_of(toolbox_with(server), ENVIRON)
    problems = outcome.problems if isinstance(outcome, ConfigProblems) else outcome.unresolved
    assert problems
    assert "hunter" not in "".join(problem.render("file") for problem in problems).lower().replace("${hunter}", "")


def test_many_problems_of_a_server_stay_one_short_line() -> None:
    server = server_of({"command": "x", "args": ["${GONE}"] * 500})
    assert len(server.unresolved) == 500
    assert in_one_line(server.unresolved).endswith("; and 497 more")


def test_their_lines_are_found_when_somebody_wants_them(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"dev": {"fs": {"command": "x", "env": {"T": "${GONE}"}}}})
    error = unresolved(load(str(path), {}))
    assert error is not None
    assert f"{path}:9:18: {PATH}.env.T: the variable `GONE` is not set" in str(error)
    assert unresolved(load(str(path), {"GONE": "x"})) is None


def test_deleted_file_reports_missing_variables_without_lines(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"dev": {"fs": {"command": "${GONE}"}}})
    config = load(str(path), {})
    path.unlink()
    assert "the variable `GONE` is not set" in str(unresolved(config))
