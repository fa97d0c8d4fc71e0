"""Which programs a client's `PATH` leads to."""

from __future__ import annotations

from pathlib import Path

from mcp_workbench.engine.config.program_paths import RUNTIMES, ProgramPaths


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.touch(0o755)
    return path


def test_the_first_program_of_the_name_counts_and_links_to_folders_are_followed(tmp_path: Path) -> None:
    program(tmp_path / "second" / "run")
    first = program(tmp_path / "first" / "run")
    (tmp_path / "link").symlink_to(tmp_path / "first")
    (tmp_path / "nothing").mkdir()
    path = f"{tmp_path / 'nothing'}:{tmp_path / 'link'}:{tmp_path / 'second'}"
    programs = ProgramPaths({"PATH": path}, "/")
    assert programs.of("run") is None
    programs.look_up([None, "run", "gone", "/opt/own"])
    assert programs.of("run") == (str(first), *(None for _ in RUNTIMES))
    found = [programs.of(command) for command in ("gone", "/opt/own")]
    assert [each and each[0] for each in found] == [None, "/opt/own"]


def test_a_program_that_is_a_link_is_not_the_one_it_leads_to(tmp_path: Path) -> None:
    """As in a virtual environment."""
    original = program(tmp_path / "system" / "python3")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "python3").symlink_to(original)
    found = []
    for folder in ("system", "venv"):
        programs = ProgramPaths({"PATH": str(tmp_path / folder)}, "/")
        programs.look_up(["run"])
        found.append(programs.of("run"))
    assert found[0] != found[1]


def test_relative_parts_are_those_of_the_client_s_folder(tmp_path: Path) -> None:
    run = program(tmp_path / "bin" / "run")
    programs = ProgramPaths({"PATH": ":bin"}, str(tmp_path))
    programs.look_up(["run"])
    assert (programs.of("run") or ())[0] == str(run)
