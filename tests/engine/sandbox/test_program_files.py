"""Which files a program consists of, as installers lay them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox.program_files import program_files, script_of


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path.resolve() / "home"
    found.mkdir()
    return found


def program(path: Path, text: str = "\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def found(home: Path, command: Path, *args: str, path: str = "/usr/bin") -> set[Path]:
    """Its folders in the home folder, or that folder, without those that are in others."""
    files = program_files(str(command), args, path, str(home), str(home))
    folders = {Path(each) for each in files if Path(each) == home or home in Path(each).parents}
    return {each for each in folders if not folders.intersection(each.parents)}


def test_npx_of_nvm_has_the_version_it_belongs_to_and_no_other(home: Path) -> None:
    version = home / ".nvm/versions/node/v22"
    program(version / "bin/node")
    program(home / ".nvm/versions/node/v20/bin/node")
    script = program(version / "lib/node_modules/npm/bin/npx-cli.js", "#!/usr/bin/env node\n")
    (version / "bin/npx").symlink_to(script)
    folders = found(home, version / "bin/npx", path=f"/usr/bin:{version}/bin")
    assert version in folders
    assert all(each == version or version in each.parents for each in folders)


def test_a_tool_of_uv_has_its_environment_and_the_python_it_was_made_with(home: Path) -> None:
    base = home / ".local/share/uv/python/cpython-3.12"
    python = program(base / "bin/python3")
    tool = home / ".local/share/uv/tools/mcp-server-git"
    (tool / "bin").mkdir(parents=True)
    (tool / "bin/python").symlink_to(python)
    (tool / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3.12\n")
    script = program(tool / "bin/mcp-server-git", f"#!{tool}/bin/python\n")
    (home / ".local/bin").mkdir()
    (home / ".local/bin/mcp-server-git").symlink_to(script)
    # Of `~/.local` only the folder of programs: our own state is in there too.
    assert found(home, home / ".local/bin/mcp-server-git") == {home / ".local/bin", tool, base}


def test_a_shim_of_pyenv_has_all_of_pyenv(home: Path) -> None:
    shim = program(home / ".pyenv/shims/python3", "#!/bin/bash\n")
    assert found(home, shim) == {home / ".pyenv"}


def test_a_program_of_npm_has_the_packages_beside_it(home: Path) -> None:
    script = program(home / "app/node_modules/server/dist/index.js", "#!/usr/bin/env node\n")
    (home / "app/node_modules/.bin").mkdir()
    (home / "app/node_modules/.bin/server").symlink_to(script)
    folders = found(home, home / "app/node_modules/.bin/server")
    assert home / "app/node_modules" in folders and home / "app" not in folders


def test_a_script_has_the_project_it_belongs_to(home: Path) -> None:
    script = program(home / "code/server/dist/index.js", "x")
    (home / "code/server/package.json").touch()
    (home / "code/other").mkdir()
    assert found(home, Path("/usr/bin/node"), "--flag", str(script)) == {home / "code/server"}
    assert script_of("/usr/bin/node", ("--flag", str(script)), str(home)) == str(script)
    assert script_of("/usr/bin/git", (str(script),), str(home)) is None


@pytest.mark.parametrize(
    "script", ["node_modules/@org/server/dist/index.js", "packages/server/index.js", "node_modules/.bin/server"]
)
def test_a_script_has_the_packages_of_the_folders_around_it(home: Path, script: str) -> None:
    """A package has its dependencies beside it, and so do the packages of a workspace."""
    for package in ("node_modules/@org/server", "packages/server"):
        program(home / "app" / package / "package.json", "{}")
        program(home / "app" / package / "index.js")
    program(home / "app/node_modules/@org/server/dist/index.js")
    (home / "app/node_modules/.bin").mkdir()
    (home / "app/node_modules/.bin/server").symlink_to(home / "app/node_modules/@org/server/dist/index.js")
    folders = found(home, Path("/usr/bin/node"), str(home / "app" / script))
    assert home / "app/node_modules" in folders and home / "app" not in folders


def test_a_script_without_a_project_has_its_own_folder_and_never_the_home_folder(home: Path) -> None:
    script = program(home / "code/server.py", "x")
    (home / "package.json").touch()
    assert found(home, Path("/usr/bin/python3"), str(script)) == {home / "code"}


def test_a_program_in_the_home_folders_own_bin_has_that_folder_alone(home: Path) -> None:
    assert found(home, program(home / "bin/server")) == {home / "bin"}


def test_scripts_that_run_each_other_are_followed_for_a_few_steps(home: Path) -> None:
    one, two = home / "a/bin/one", home / "b/bin/two"
    program(one, f"#!{two}\n")
    program(two, f"#!{one}\n")
    assert found(home, one) == {home / "a", home / "b"}


def test_the_folder_of_a_program_is_there_even_if_its_prefix_is_too_wide_to_be_granted(home: Path) -> None:
    command = program(home.parent / "bin/server")
    files = program_files(str(command), (), "/usr/bin", None, str(home))
    assert str(home.parent / "bin") in files
