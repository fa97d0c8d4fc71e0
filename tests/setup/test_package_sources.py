"""Packages named on the command line, pinned by what the runner's own tools say. The tools are scripts of the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup import package_sources
from mcp_workbench.setup.clients.server_json import Package, described
from mcp_workbench.setup.package_sources import package_named, pinned

pytestmark = pytest.mark.processes


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("npm:left-pad", Package("npm", "left-pad")),
        ("npm:@scope/name@1.2.3", Package("npm", "@scope/name", "1.2.3")),
        ("pypi:mcp-server-git", Package("pypi", "mcp-server-git")),
        ("pypi:name==2.0", Package("pypi", "name", "2.0")),
        ("pypi:name@2.0", Package("pypi", "name", "2.0")),
        ("oci:ghcr.io/owner/image:v1", Package("oci", "ghcr.io/owner/image:v1")),
        ("io.github.owner/server", None),
        ("https://example.com/mcp", None),
    ],
)
def test_a_source_names_a_package_of_a_registry(source: str, package: Package | None) -> None:
    assert package_named(source) == package


@pytest.mark.parametrize("source", ["npm:--call=x", "npm:", "npm:name@npm:other", "pypi:git+https://x", "oci:-v=/:/x"])
def test_impossible_package_names_are_refused(source: str) -> None:
    with pytest.raises(ConfigError, match=r"that no (npm|pypi|oci) package can have"):
        package_named(source)


def test_npm_says_which_version_and_which_content(programs: Path, tmp_path: Path) -> None:
    answer = json.dumps({"version": "1.3.0", "dist.integrity": "sha512-abc"})
    program(programs, "npm", f"echo \"$@\" > {tmp_path}/asked; echo '{answer}'")
    assert pinned(Package("npm", "@s/n")) == (Package("npm", "@s/n", "1.3.0", ("sha512-abc",)), None)
    assert (tmp_path / "asked").read_text() == "view --json -- @s/n version dist.integrity\n"
    # A range: the newest is last.
    program(programs, "npm", f"echo '[{json.dumps({'version': '1.0.0', 'dist.integrity': 'x'})}, {answer}]'")
    assert pinned(Package("npm", "@s/n", "1.x"))[0].version == "1.3.0"


@pytest.mark.parametrize(
    "answer",
    [
        {"version": "latest", "dist.integrity": "x"},
        {"version": "", "dist.integrity": "x"},
        {"version": "1.x", "dist.integrity": "x"},
        {"version": "1.0.0\x1b[31m", "dist.integrity": "x"},
        "[" * 100_000,
    ],
)
def test_a_tag_a_range_or_nonsense_does_not_count_as_pinned(programs: Path, answer: object) -> None:
    (programs / "answer").write_text(answer if isinstance(answer, str) else json.dumps([{}, answer]))
    program(programs, "npm", f"exec /bin/cat '{programs}/answer'")
    package = Package("npm", "name", "^1.0.0")
    assert pinned(package) == (package, "npm view did not answer with a version")


def test_uv_says_which_version_and_which_hashes(programs: Path) -> None:
    one, two = "a" * 64, "b" * 64
    program(
        programs,
        "uv",
        f"/bin/cat >/dev/null; printf 'mcp-x==2.1 \\\\\\n    --hash=sha256:{two} \\\\\\n    --hash=sha256:{one}\\n'",
    )
    package, why = pinned(Package("pypi", "mcp-x"))
    assert why is None and package == Package("pypi", "mcp-x", "2.1", (f"sha256:{one}", f"sha256:{two}"))


def test_an_image_is_pinned_by_its_digest(programs: Path) -> None:
    digest = f"sha256:{'c' * 64}"
    program(programs, "docker", f"[ $1 = pull ] || echo '[\"ghcr.io/o/i@{digest}\"]'")
    package, why = pinned(Package("oci", "ghcr.io/o/i:v1"))
    assert why is None and package.name == f"ghcr.io/o/i@{digest}"
    (way,) = described(package.server_json(), "x").ways
    assert way.entry({})["args"][-1] == f"ghcr.io/o/i@{digest}"
    assert pinned(package)[0] == package, "what is pinned already is not asked about"


def test_missing_package_is_refused_and_a_failed_lookup_reported(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "npm", "echo 'npm error code E404' >&2; exit 1")
    with pytest.raises(ConfigError, match=r"there is no npm package `nosuch` 9\.9"):
        pinned(Package("npm", "nosuch", "9.9"))
    program(programs, "npm", "echo 'network is down' >&2; exit 7")
    assert pinned(Package("npm", "x")) == (Package("npm", "x"), "`npm` failed with status 7: network is down")
    program(programs, "npm", "echo nonsense")
    assert pinned(Package("npm", "x"))[1] == "npm view did not answer with a version"
    program(programs, "npm", "exec /bin/sleep 60")
    monkeypatch.setattr(package_sources, "PACKAGE_TOOL_TIMEOUT", 0.2)
    assert pinned(Package("npm", "x"))[1] == "`npm` took longer than 0 s"
    assert pinned(Package("pypi", "x"))[1] == "`uv` is not installed"


def test_the_command_that_is_shown_runs_the_pinned_version() -> None:
    for package, words in (
        (Package("npm", "@s/n", "1.3.0"), ["npx", "-y", "--", "@s/n@1.3.0"]),
        (Package("pypi", "mcp-x", "2.1"), ["uvx", "--", "mcp-x@2.1"]),
    ):
        (way,) = described(package.server_json(), "x").ways
        entry = way.entry({})
        assert [entry["command"], *entry["args"]] == words
