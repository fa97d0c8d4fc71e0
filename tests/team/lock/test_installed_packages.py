"""Which version of a package is installed, as files of npx and pip say it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.team.lock.installed_packages import installed_package


def npx(home: Path, spec: str, name: str, version: str) -> None:
    folder = home / ".npm" / "_npx" / hashlib.sha512(spec.encode()).hexdigest()[:16] / "node_modules" / name
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version}))


def venv(folder: Path, name: str, version: str, *files: str) -> Path:
    made = folder / "lib" / "python3.12" / "site-packages" / f"{name}-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    (folder / "bin").mkdir(exist_ok=True)
    for each in ("python", "mcp-x"):
        (folder / "bin" / each).write_text("#!/bin/sh\n")
        (folder / "bin" / each).chmod(0o755)
    return folder / "bin"


def package(line: str, **environ: str) -> str:
    command, *args = line.split()
    return installed_package(ServerConfig(name="s", command=command, args=tuple(args)), environ)


@pytest.mark.requirement("lock.file")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("npx -y @scope/server", "npm:@scope/server@4.5.6"),
        ("npx -y @scope/server@latest", "npm:@scope/server@7.8.9"),
        ("npx -y @scope/server@1.2.3", "npm:@scope/server@1.2.3"),
        ("npx -y unknown", "npm:unknown"),
        ("npx -y damaged", "npm:damaged"),
        ("uvx mcp-x", "pypi:mcp-x"),
        ("docker run image", "docker:image"),
    ],
)
def test_the_installed_version_of_an_unpinned_package_is_found(tmp_path: Path, line: str, expected: str) -> None:
    npx(tmp_path, "@scope/server", "@scope/server", "4.5.6")
    npx(tmp_path, "@scope/server@latest", "@scope/server", "7.8.9")
    npx(tmp_path, "damaged", "damaged", "")
    assert package(line, HOME=str(tmp_path)) == expected


@pytest.mark.requirement("lock.file")
def test_a_script_or_module_that_pip_has_installed_is_found(tmp_path: Path) -> None:
    venv(tmp_path / "v", "other", "9", "other/__init__.py")
    folder = venv(tmp_path / "v", "mcp_x", "1.2.3", "mcp_x/__main__.py", "../../../bin/mcp-x")
    assert package(f"{folder}/mcp-x --flag") == "pypi:mcp-x==1.2.3"
    assert package("mcp-x", PATH=str(folder)) == "pypi:mcp-x==1.2.3"
    assert package(f"{folder}/python -m mcp_x") == "pypi:mcp-x==1.2.3"
    links = tmp_path / "links"
    links.mkdir()
    (links / "mcp-x").symlink_to(folder / "mcp-x")
    assert package("mcp-x", PATH=str(links)) == "pypi:mcp-x==1.2.3", "as pipx links it"
    for line in (f"{folder}/python server.py", f"{folder}/python -m nothing", f"{folder}/none", "none"):
        assert package(line, PATH=str(folder)) == ""
