"""Servers of several clients, merged and grouped."""

from __future__ import annotations

from mcp_workbench.clients.toolbox_proposals import ImportedServer, merged, proposed


def server(name: str, command: str, client: str, *args: str) -> ImportedServer:
    return ImportedServer(name, {"command": command, "args": list(args)}, [client])


def test_the_same_server_of_two_clients_is_one_and_different_ones_keep_apart() -> None:
    found = merged(
        [server("a", "x", "cursor"), server("b", "x", "zed"), server("A", "y", "zed"), server("a", "z", "zed")]
    )
    assert [(one.name, one.sources) for one in found] == [
        ("a", ["cursor", "zed"]),
        ("A-zed", ["zed"]),
        ("a-zed-2", ["zed"]),
    ]


def test_names_that_a_configuration_refuses_are_changed() -> None:
    assert [one.name for one in merged([server(" a__b\n", "x", "zed"), server("", "y", "zed")])] == ["a_b", "server"]


def test_toolboxes_go_by_what_servers_are_for() -> None:
    servers = [
        server("github", "docker", "c"),
        server("mine", "npx", "c", "-y", "@playwright/mcp"),
        server("thing", "thing-mcp", "c"),
    ]
    boxes = proposed(servers)
    assert {name: list(box["mcpServers"]) for name, box in boxes.items()} == {
        "web": ["mine"],
        "code": ["github"],
        "other": ["thing"],
    }
    assert boxes["code"]["description"] == "Code, files and documentation of the project: github"
