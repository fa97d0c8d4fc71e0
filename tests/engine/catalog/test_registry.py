"""Which servers of two catalogues are one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.catalog.registry import SharedServers
from mcp_workbench.engine.config.expand import Reference
from mcp_workbench.engine.config.model import (
    ReferringValue,
    ServerConfig,
    ServerContext,
    ToolboxConfig,
    WorkbenchConfig,
)
from mcp_workbench.engine.config.program_paths import ProgramPaths
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.errors import DownstreamError

STORE = ManifestStore(lambda: None)
HERE = ServerContext(environ={"PATH": "/bin", "TERM": "xterm"}, folder="/here")
WHY = DownstreamError("gone")


def config(path: str = "a.json", box: str = "box", **server: Any) -> WorkbenchConfig:
    made = ServerConfig(**{"name": "server", "command": "run", **server})
    toolbox = ToolboxConfig(name=box, description="A box.", servers={made.name: made})
    return WorkbenchConfig(path=path, toolboxes={box: toolbox})


def only(catalog: Catalog) -> ServerEntry:
    (entry,) = catalog.entries()
    return entry


def shown(
    servers: SharedServers, made: WorkbenchConfig, context: ServerContext = HERE, store: ManifestStore = STORE
) -> Catalog:
    return Catalog(made, store, servers, context)


def test_the_order_of_variables_in_a_file_does_not_matter() -> None:
    servers = SharedServers()
    first = shown(servers, config(env={"A": "1", "B": "2"}))
    second = shown(servers, config("b.json", env={"B": "2", "A": "1"}))
    assert only(first) is only(second)


@pytest.mark.requirement("sharing.equal-servers")
def test_equal_servers_of_two_files_are_one() -> None:
    servers = SharedServers()
    one = shown(servers, config("a.json"))
    other = shown(servers, config("b.json"), replace(HERE, environ={"PATH": "/bin", "TERM": "dumb"}))
    assert only(one) is only(other)
    assert only(one).catalogs == [one, other]


@pytest.mark.parametrize(
    "different",
    [
        {"box": "other"},
        {"name": "other"},
        {"command": "other"},
        {"args": ("x",)},
        {"env": {"A": "1"}},
        {"cwd": "/elsewhere"},
        {"timeout": 1.0},
        {"tool_filters": ("x",)},
        {"ask": False},
        {"share": "session"},
    ],
)
def test_servers_that_differ_in_anything_are_not_shared(different: dict[str, Any]) -> None:
    servers = SharedServers()
    assert only(shown(servers, config())) is not only(shown(servers, config(**different)))


@pytest.mark.parametrize(
    "context",
    [
        replace(HERE, folder="/there"),
        replace(HERE, environ={"PATH": "/usr/bin", "TERM": "xterm"}),
        replace(HERE, environ={"PATH": "/bin", "TZ": "Europe/Vienna"}),
    ],
)
def test_clients_in_other_folders_or_environments_do_not_share(context: ServerContext) -> None:
    servers = SharedServers()
    assert only(shown(servers, config())) is not only(shown(servers, config(), context))


def with_programs(made: WorkbenchConfig, *folders: Path, **environ: str) -> ServerContext:
    """A client whose `PATH` has these folders, before those of the system."""
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    context = replace(HERE, environ={"PATH": path, **environ})
    programs = ProgramPaths(context.environ, "/here")
    programs.look_up(server.command for _, server in made.servers())
    return replace(context, programs=programs)


def program(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).touch(0o755)
    return folder


@pytest.mark.requirement("sharing.equal-servers")
def test_a_path_that_leads_to_the_same_programs_makes_no_difference(tmp_path: Path) -> None:
    servers = SharedServers()
    tools = program(tmp_path / "tools", "run")
    sessions = [program(tmp_path / name, "apply_patch") for name in ("codex-arg0a", "codex-arg0b")]
    made = config()
    entries = {only(shown(servers, made, with_programs(made, session, tools))) for session in sessions}
    entries.add(only(shown(servers, made, with_programs(made, tmp_path / "missing", tools))))
    assert len(entries) == 1


@pytest.mark.parametrize("name", ["run", "node", "python3"])
def test_a_path_that_leads_to_another_program_is_not_shared(tmp_path: Path, name: str) -> None:
    servers = SharedServers()
    tools, others = program(tmp_path / "tools", "run", "node", "python3"), program(tmp_path / "others", name)
    made = config()
    one, other = (with_programs(made, *folders) for folders in ((tools,), (others, tools)))
    assert only(shown(servers, made, one)) is not only(shown(servers, made, other))


def test_the_text_of_path_counts_for_a_server_that_asks_for_it_or_was_not_looked_up(tmp_path: Path) -> None:
    tools = program(tmp_path / "tools", "run")
    for made in (config(inherit_env=("PATH",)), config(command="added")):
        servers = SharedServers()
        one, other = (with_programs(config(), *folders) for folders in ((tools,), (tmp_path / "missing", tools)))
        assert only(shown(servers, made, one)) is not only(shown(servers, made, other))


def test_variables_that_a_server_does_not_get_make_no_difference() -> None:
    servers = SharedServers()
    rich = replace(HERE, environ={**HERE.environ, "GITHUB_TOKEN": "x", "WINDOWID": "7"})
    assert only(shown(servers, config())) is only(shown(servers, config(), rich))
    inheriting = config(inherit_env=("GITHUB_TOKEN",))
    assert only(shown(servers, inheriting)) is not only(shown(servers, inheriting, rich))


def test_a_variable_of_the_terminal_counts_for_a_server_that_asks_for_it() -> None:
    servers = SharedServers()
    asking = config(inherit_env=("TERM",))
    dumb = replace(HERE, environ={"PATH": "/bin", "TERM": "dumb"})
    assert only(shown(servers, asking)) is not only(shown(servers, asking, dumb))


@pytest.mark.parametrize("server", [{"cwd": "/home/me"}, {"command": None, "url": "https://a.example/mcp"}])
def test_a_server_of_the_user_is_shared_from_folder_to_folder(server: dict[str, Any]) -> None:
    servers = SharedServers()
    made = config(share="user", **server)
    assert only(shown(servers, made)) is only(shown(servers, made, replace(HERE, folder="/there")))


def test_a_client_without_a_cache_has_servers_of_its_own() -> None:
    servers = SharedServers()
    assert only(shown(servers, config())) is not only(shown(servers, config(), store=ManifestStore(lambda: None)))


@pytest.mark.requirement("sharing.unused-catalogues")
def test_a_server_ends_with_the_last_catalogue_that_shows_it() -> None:
    servers = SharedServers()
    one, other = shown(servers, config("a.json")), shown(servers, config("b.json"))
    entry = only(one)
    one.close(WHY)
    assert entry.ended is None and len(servers) == 1
    other.close(WHY)
    assert entry.ended is WHY and len(servers) == 0
    assert only(shown(servers, config())) is not entry


def test_news_of_a_server_reach_every_catalogue_that_shows_it() -> None:
    servers = SharedServers()
    one, other = shown(servers, config("a.json")), shown(servers, config("b.json"))
    told: list[str] = []
    one.subscribe(lambda entry, kinds: told.append("one"))
    other.subscribe(lambda entry, kinds: told.append("other"))
    before = one.revision, other.revision
    tool = Raw(b'{"name":"t","inputSchema":{}}')
    servers.learn(only(one), Offer(ServerProfile("legacy", "2025-11-25"), {"tools": {"t": tool}}))
    assert told == ["one", "other"]
    assert (one.revision, other.revision) > before
    assert list(only(other).tools) == ["t"]


def test_a_file_that_drops_a_server_leaves_it_to_the_other() -> None:
    servers = SharedServers()
    one, other = shown(servers, config("a.json")), shown(servers, config("b.json"))
    entry = only(one)
    one.replace(one.plan(config("a.json", args=("new",))))
    assert entry.ended is None and only(other) is entry and entry.catalogs == [other]
    assert only(one) is not entry and only(one).catalogs == [one]


def test_other_settings_in_one_file_leave_the_servers_of_the_other_as_they_are() -> None:
    servers = SharedServers()
    one, other = shown(servers, config("a.json")), shown(servers, config("b.json"))
    one.replace(one.plan(config("a.json", timeout=7.0)))
    assert only(other).config.timeout != 7.0
    assert only(one).config.timeout == 7.0 and only(one) is not only(other)


def test_other_settings_in_the_file_of_all_keep_the_server() -> None:
    servers = SharedServers()
    # The faces differ, or the catalogues would be one.
    one, other = shown(servers, config()), shown(servers, config())
    entry = only(one)
    for catalog in (one, other):
        catalog.replace(catalog.plan(config(timeout=7.0)))
    assert only(one) is only(other) is entry and entry.config.timeout == 7.0
    assert only(shown(servers, config(timeout=7.0))) is entry
    assert only(shown(servers, config())) is not entry


def refers_to(kind: str) -> dict[str, Any]:
    found = Reference(kind=kind, written=f"${{{kind}:x}}", words=("x",))
    return {"url": "https://a.example", "command": None, "references": (ReferringValue(("url",), (found,)),)}


def test_servers_that_fetch_the_same_are_one_unless_a_program_of_another_environment_fetches_it() -> None:
    elsewhere = replace(HERE, environ={"PATH": "/bin", "OP_ACCOUNT": "another"})
    for kind, is_one in (("file", True), ("keyring", True), ("cmd", False)):
        servers = SharedServers()
        one = only(shown(servers, config(**refers_to(kind))))
        assert only(shown(servers, config(**refers_to(kind)))) is one
        assert (only(shown(servers, config(**refers_to(kind)), elsewhere)) is one) == is_one
