"""The nearest names are the ones that a person would have guessed, whatever the size of the question."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine import nearest as module
from mcp_workbench.engine.nearest import nearest

TOOLS = ["read_file", "write_file", "list_directory", "search_files", "get_current_time", "echo"]


@pytest.mark.requirement("names.nearest")
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("comand", "command"),
        ("READ_FILE", "read_file"),
        ("raed_file", "read_file"),
        ("readfile", "read_file"),
        ("file_read", "read_file"),
        ("read-file", "read_file"),
        ("list_dir", "list_directory"),
        ("current_time", "get_current_time"),
        ("get_time", "get_current_time"),
        ("  echo ", "echo"),
    ],
)
def test_a_slip_finds_the_name_that_was_meant(written: str, meant: str) -> None:
    assert nearest(written, [*TOOLS, "command"])[0] == meant


def test_a_name_that_resembles_nothing_has_no_neighbours() -> None:
    assert nearest("zzzzzz", TOOLS) == []
    assert nearest("", TOOLS) == []
    assert nearest("x", ["fs"]) == []


def test_the_best_guess_comes_first_and_the_limit_holds() -> None:
    names = ["timeouts", "timeout", "idleTimeout", "startupTimeout"]
    assert nearest("timeot", names, limit=2) == ["timeout", "timeouts"]
    assert nearest("timeout", names, limit=0) == []


def test_a_name_given_twice_is_suggested_once() -> None:
    assert nearest("ech", ["echo", "echo"]) == ["echo"]


def test_the_right_one_of_ten_thousand_is_found() -> None:
    names = [f"server_{number}_tool" for number in range(10_000)] + ["create_pull_request"]
    assert nearest("create_pul_request", names)[0] == "create_pull_request"


@pytest.mark.parametrize("written", ["tool_04711_rad", "tool_4711_read", "tool_04711_reads", "tool_40711_read"])
def test_one_slip_among_ten_thousand_names_of_one_pattern_is_found(written: str) -> None:
    names = [f"tool_{number:05}_{verb}" for number in range(3_333) for verb in ("read", "red", "raed")]
    assert "tool_04711_read" in nearest(written, [*names, "tool_04711_read"])


@given(st.text("ab_c", min_size=2, max_size=8), st.text("ab_c", min_size=1, max_size=8))
def test_distance_of_one_is_one_slip(left: str, right: str) -> None:
    assert module._is_one_slip(left, right) == (module._distance(left, right, 1) is not None)


def test_only_a_handful_of_candidates_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[int, int]] = []
    distance = module._distance

    def counted(left: str, right: str, most: int) -> int | None:
        measured.append((len(left), len(right)))
        return distance(left, right, most)

    monkeypatch.setattr(module, "_distance", counted)
    nearest("n" * 10_000, (f"{number}" + "n" * 10_000 for number in range(10_000)))
    assert 0 < len(measured) <= 40
    assert max(measured) <= (96, 96)


@settings(deadline=None)
@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=60), st.integers(0, 5))
def test_answers_are_candidates_and_an_exact_name_always_wins(name: str, names: list[str], limit: int) -> None:
    answer = nearest(name, names, limit)
    assert len(answer) <= limit
    assert set(answer) <= set(names)
    if limit and name in names and name.strip():
        assert answer[0].strip().casefold() == name.strip().casefold()
