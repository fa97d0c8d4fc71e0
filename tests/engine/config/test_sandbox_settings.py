"""What can be written as `sandbox`, and what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.catalog.manifests import manifest_key
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from tests.engine.config.loading import parsed, problems_of


def sandboxed(value: object) -> dict[str, object]:
    """A file whose second server has this sandbox."""
    servers = {"time": {"command": "uvx"}, "git": {"command": "uvx", "sandbox": value}}
    return {"toolboxes": {"code": {"description": "Code.", "mcpServers": servers}}}


def read(value: object) -> SandboxConfig | None:
    servers = parsed(sandboxed(value)).toolboxes["code"].servers
    assert servers["time"].sandbox is None
    return servers["git"].sandbox


@pytest.mark.parametrize("profile", ["off", "guard", "contained", "sealed"])
def test_a_profile_is_a_word(profile: str) -> None:
    assert read(profile) == SandboxConfig(profile=profile)  # type: ignore[arg-type]


def test_true_is_contained_and_false_is_off() -> None:
    assert (read(True), read(False)) == (SandboxConfig(profile="contained"), SandboxConfig(profile="off"))


def test_sandbox_object_overrides_its_profile() -> None:
    written = {
        "profile": "sealed",
        "read": ["/srv/a b", "data"],
        "write": ["/srv/new\nline"],
        "network": ["api.github.com", "*.example.com:8443"],
        "unixSockets": ["/run/docker.sock"],
        "memory": "512MiB",
        "cpuSeconds": 60,
        "processes": 8,
        "home": "own",
        "bestEffort": True,
        "backend": "landlock",
    }
    found = read(written)
    assert found is not None
    assert found.read[0] == "/srv/a b" and Path(found.read[1]).is_absolute() and Path(found.read[1]).name == "data"
    assert found.write == ("/srv/new\nline",)
    assert found.network == ("api.github.com", "*.example.com:8443")
    assert (found.memory, found.cpu_seconds, found.processes) == (512 << 20, 60, 8)
    assert (found.unix_sockets, found.home, found.best_effort) == (("/run/docker.sock",), "own", True)


def test_the_innermost_one_counts() -> None:
    document: dict[str, object] = {
        "sandbox": "sealed",
        "toolboxes": {
            "a": {"description": "A.", "mcpServers": {"x": {"command": "x"}, "y": {"command": "y", "sandbox": "off"}}},
            "b": {"description": "B.", "sandbox": "guard", "mcpServers": {"z": {"command": "z"}}},
        },
    }
    found = {label: server.sandbox for label, server in parsed(document).servers()}
    profiles = {label: sandbox.profile for label, sandbox in found.items() if sandbox is not None}
    assert profiles == {"a/x": "sealed", "a/y": "off", "b/z": "guard"}


def test_a_remote_server_is_not_confined_by_the_file_and_cannot_be() -> None:
    document: dict[str, object] = {"sandbox": "contained", "mcpServers": {"r": {"url": "https://example.com"}}}
    assert parsed(document).toolboxes["default"].servers["r"].sandbox is None
    servers = {"r": {"url": "https://example.com", "sandbox": "guard"}}
    (problem,) = problems_of({"toolboxes": {"b": {"description": "B.", "mcpServers": servers}}}).problems
    assert problem.found == "`sandbox` has no meaning next to `url`"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("contain", "found `contain`"),
        (7, "found a number"),
        ({"profile": "sealed", "reed": ["/a"]}, "unknown key `reed`"),
        ({"read": ["/a", "data/*"]}, "found the glob `data/*`"),
        ({"write": ["/a", "/"]}, "`/` is everything"),
        ({"write": ["/a", "/srv/../"]}, "`/` is everything"),
        ({"memory": "1MiB"}, "found `1MiB`"),
        ({"memory": "lots"}, "found `lots`"),
        ({"network": "some"}, "found `some`"),
        ({"profile": "guard", "write": ["/a"]}, "`write` has no meaning in the profile `guard`"),
        ({"backend": "chroot"}, "found `chroot`"),
    ],
)
def test_a_mistake_is_reported_with_its_place(written: object, found: str) -> None:
    (problem,) = problems_of(sandboxed(written)).problems
    assert problem.found == found
    assert problem.steps is not None and problem.steps[:5] == ("toolboxes", "code", "mcpServers", "git", "sandbox")


@pytest.mark.parametrize("name", [".ssh", ".ssh/keys", ".local/state/mcp-workbench", ".config/mcp-workbench", ""])
def test_no_server_may_be_given_our_folders_or_the_users_keys_to_write(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (problem,) = problems_of(sandboxed({"write": ["/srv/fine", f"~/{name}"]}), environ={"HOME": str(tmp_path)}).problems
    assert problem.steps is not None and problem.steps[-2:] == ("write", 1) and problem.hint is not None
    assert "where" in problem.found
    assert read({"read": ["/srv/fine"]}) is not None


def test_the_folder_of_our_sockets_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    (problem,) = problems_of(sandboxed({"write": ["/run/user/7/mcp-workbench-7"]})).problems
    assert problem.found == "`/run/user/7/mcp-workbench-7` is where the workbench has its sockets"


def test_vs_codes_own_rules_are_ignored_and_reported() -> None:
    rules = {"filesystem": {"allowWrite": ["."]}, "network": {"allowedDomains": ["x.org"]}}
    config = parsed({"servers": {"a": {"command": "a"}, "b": {"command": "b", "sandbox": rules}}})
    assert config.toolboxes["default"].servers["b"].sandbox is None
    assert config.ignored_keys == {"sandbox": ("default/b",)}


def test_a_server_in_another_profile_is_another_server() -> None:
    def key(sandbox: SandboxConfig | None) -> str:
        return manifest_key(ServerConfig(name="s", command="c", sandbox=sandbox), "/")

    keys = {key(None), key(SandboxConfig(profile="guard")), key(SandboxConfig(profile="sealed"))}
    assert len(keys | {key(SandboxConfig(profile="sealed", read=("/a",)))}) == 4


def test_an_image_needs_no_command() -> None:
    servers = {
        "a": {"args": ["--x"], "sandbox": {"image": "img"}},
        "b": {"command": "node", "sandbox": {"image": "img"}},
    }
    found = parsed({"toolboxes": {"code": {"description": "Code.", "mcpServers": servers}}}).toolboxes["code"].servers
    assert [(found[name].command, found[name].args) for name in "ab"] == [("", ("--x",)), ("node", ())]
    assert all(each.sandbox is not None and each.sandbox.image == "img" for each in found.values())


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"image": "--privileged"}, "the name of an image"),
        ({"image": "a b"}, "the name of an image"),
        ({"image": "a\nb"}, "the name of an image"),
        ({"image": ""}, "a string that is not empty"),
        ({"image": "img", "profile": "guard"}, "has no meaning in the profile `guard`"),
        ({"image": "img", "backend": "bwrap"}, "`bwrap` does not run images"),
        ({"backend": "docker"}, "`docker` needs an `image`"),
    ],
)
def test_a_mistake_in_an_image_is_reported(written: object, found: str) -> None:
    (problem,) = problems_of(sandboxed(written)).problems
    assert found in str(problem)
