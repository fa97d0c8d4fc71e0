"""What is pointed out of commands that run packages, in every spelling of an option."""

from __future__ import annotations

import pytest

from mcp_workbench.setup.clients.package_rules import remarks_about, sandbox_proposal


@pytest.mark.parametrize(
    ("command", "remarks"),
    [
        ("docker run -i -v /a:/b -- x/y", ["the container gets /a:/b of this machine"]),
        ("/usr/bin/podman run --rm --volume=/a:/b x", ["the container gets /a:/b of this machine"]),
        ("docker run -v/a:/b --device /dev/kvm -- x", ["gets /a:/b of", "gets /dev/kvm of"]),
        ("docker run x serve -v", []),
        ("docker run --rm -- x -v /a:/b", []),
        ("docker run --network host --pid=host -- x", ["usual: --network=host", "usual: --pid=host"]),
        ("docker run --network=none --security-opt no-new-privileges -- x", []),
        ("docker run -- ghcr.io/x/y:1", ["the image comes from the registry ghcr.io"]),
        ("docker run -- docker.io/x/y", []),
        ("docker run -- x/y", []),
        ("npx -y --registry https://npm.x.example -- y", ["packages come from https://npm.x.example"]),
        ("npx -y --package=@x/y -- sh -c x", ["the program is sh, from the package @x/y or from your PATH"]),
        ("npx -p github:x/y -- z", ["the program is z", "packages come from github:x/y"]),
        (
            "uvx --from git+https://x.example/y -i https://p.example -- y",
            ["is y", "git+https://x", "https://p.example"],
        ),
        ("uvx --from mcp-y y", []),
        ("uvx --with=x --with git+https://x.example/z -- y", ["packages come from git+https://x.example/z"]),
        ("python -m http.server -v a:b", []),
    ],
)
def test_registries_mounts_and_rights_are_pointed_out(command: str, remarks: list[str]) -> None:
    program, *words = command.split()
    found = remarks_about(program, words)
    assert len(found) == len(remarks) and all(part in whole for part, whole in zip(remarks, found, strict=True)), found


def test_a_sandbox_is_proposed_for_packages_from_a_registry_that_have_none() -> None:
    assert sandbox_proposal({"own": {"command": "/opt/server"}, "remote": {"url": "https://example.com"}}) is None
    assert sandbox_proposal({"a": {"command": "npx", "sandbox": "sealed"}, "b": {"command": "docker"}}) is None
    entries = {"x/own": {"command": "server"}, "x/a b": {"command": "/usr/bin/npx"}, "x/c": {"command": "uvx"}}
    found = sandbox_proposal(entries)
    assert found is not None and found.startswith("x/a b, x/c: ") and '"sandbox": "contained"' in found
    assert "home folder of its own" in found and found.endswith("mcp-workbench doctor --sandbox try 'x/a b'")
    many = sandbox_proposal({name: {"command": "npx"} for name in "abcde"})
    assert many is not None and many.startswith("a, b, c and 2 more: ")
