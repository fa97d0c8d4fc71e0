from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.catalog.manifests import folder_that_counts, manifest_key
from mcp_workbench.engine.config.model import ServerConfig


def server(command: str, *args: str, **env: str) -> ServerConfig:
    return ServerConfig(name="x", command=command, args=args, env=env)


@pytest.mark.parametrize(
    "config",
    [
        server("mcp-server-time", "--local-timezone", "UTC"),
        server("/usr/bin/mcp-server-time", "--root=/srv", "https://example.test/a"),
        server("npx", "-y", "@scope/name@1.2.3", "stdio"),
        server("uvx", "mcp-server-git", "--repository", "/srv/repo"),
        server("uv", "tool", "run", "mcp-server-git"),
        server("python3.12", "-m", "mcp_server_time", LEVEL=".5"),
        server("python3", "/srv/server.py"),
        server("mcp-server-time", ":8080", "a,,b"),
        server("docker", "run", "-i", "--rm", "mcp/time"),
        server("docker", "run", "-v", "/srv:/data", "--mount", "type=bind,source=/srv,target=/data", "mcp/time:1"),
        server("node", "/srv/index.js"),
    ],
    ids=lambda config: config.command,
)
def test_a_server_that_uses_nothing_relative_has_one_manifest_for_all_folders(
    config: ServerConfig, tmp_path: Path
) -> None:
    assert folder_that_counts(config, str(tmp_path)) is None
    assert manifest_key(config, str(tmp_path)) == manifest_key(config, "/elsewhere")
    assert manifest_key(config, str(tmp_path), by_folder=True) != manifest_key(config, "/elsewhere", by_folder=True)


@pytest.mark.parametrize(
    "config",
    [
        server("./server"),
        server("bin/server"),
        server("mcp-server-time", "--verbose", "."),
        server("mcp-server-time", "--root=../other"),
        server("mcp-server-time", "data"),
        server("node", "server.js"),
        server("python3", "-m", "package.server"),
        server("python", "-m", "module"),
        server("mcp-server-time", DATABASE="./notes.db"),
        server("uv", "run", "server"),
        server("uvx", "--from", ".", "server"),
        server("npm", "start"),
        server("npx", "-y", "@scope/name@1.2.3"),
        server("npx", "--package=local", "-c", "x"),
        server("docker", "compose", "run", "x"),
        server("docker", "run", "-v", ".:/work", "mcp/time"),
        server("podman", "run", "--volume=./data:/data:ro", "mcp/time"),
        server("docker", "run", "--mount", "type=bind,source=../other,target=/data", "mcp/time"),
        server("bash", "-c", "exec server"),
    ],
    ids=lambda config: f"{config.command} {' '.join(config.args)}",
)
def test_a_server_that_may_read_its_folder_has_a_manifest_for_each(config: ServerConfig, tmp_path: Path) -> None:
    for name in ("data", "package", "node_modules/@scope/name", "node_modules/local"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("server.js", "module.py"):
        (tmp_path / name).touch()
    assert folder_that_counts(config, str(tmp_path)) == str(tmp_path)
    assert manifest_key(config, str(tmp_path)) != manifest_key(config, "/elsewhere")


def test_a_package_of_the_surrounding_project_counts_in_all_its_folders(tmp_path: Path) -> None:
    (tmp_path / "node_modules" / "tool").mkdir(parents=True)
    (tmp_path / "a" / "b").mkdir(parents=True)
    config = server("npx", "-y", "other", "tool@2")
    assert folder_that_counts(config, str(tmp_path / "a" / "b")) == str(tmp_path)


def test_a_folder_that_a_package_is_given_is_no_package_of_a_surrounding_project(tmp_path: Path) -> None:
    config = server("npx", "-y", "@scope/files", str(tmp_path))
    assert folder_that_counts(config, str(tmp_path)) is None
    assert manifest_key(config, str(tmp_path)) == manifest_key(config, "/elsewhere")


def test_names_of_modules_and_addresses_are_no_files_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "module.py").touch()
    (tmp_path / "https").mkdir()
    assert folder_that_counts(server("mcp-server-time", "-m", "module"), str(tmp_path)) is None
    assert folder_that_counts(server("mcp-server-time", "https://example.test/a"), str(tmp_path)) is None
