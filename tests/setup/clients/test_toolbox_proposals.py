"""Servers of several clients, merged and grouped."""

from __future__ import annotations

from mcp_workbench.setup.clients.toolbox_proposals import ImportedServer, merged, proposed

NOWHERE = dict[str, str]().get


def server(name: str, command: str, client: str, *args: str) -> ImportedServer:
    return ImportedServer(name, {"command": command, "args": list(args)}, [client])


def test_the_same_server_of_two_clients_is_one_and_different_ones_keep_apart() -> None:
    found = merged(
        [server("a", "x", "cursor"), server("b", "x", "zed"), server("A", "y", "zed"), server("a", "z", "zed")],
        NOWHERE,
    )
    assert [(one.name, one.sources) for one in found] == [
        ("a", ["cursor", "zed"]),
        ("A-zed", ["zed"]),
        ("a-zed-2", ["zed"]),
    ]


def test_how_a_client_treats_a_server_and_where_it_finds_the_program_makes_no_other_server() -> None:
    plain, whole = server("fs", "npx", "cursor", "fs"), server("fs", "/usr/bin/npx", "zed", "fs")
    plain.entry |= {"timeout": 10, "startupTimeout": 40, "disabled": True}
    whole.entry["timeout"] = 30.0
    whole.remarks.append("look")
    (one,) = merged([plain, whole], {"npx": "/usr/bin/npx"}.get)
    assert one.entry == {"command": "npx", "args": ["fs"], "timeout": 30.0, "startupTimeout": 40}
    assert one.sources == ["cursor", "zed"] and one.remarks == ["look"]
    assert len(merged([plain, server("fs", "/opt/npx", "zed", "fs")], {"npx": "/usr/bin/npx"}.get)) == 2


def test_an_address_without_a_transport_is_the_same_with_any() -> None:
    entries = ({"url": "https://x"}, {"url": "https://x", "type": "http"}, {"url": "https://x", "type": "sse"})
    found = merged([ImportedServer("x", entry, [f"c{at}"]) for at, entry in enumerate(entries)], NOWHERE)
    assert [(one.name, one.entry, one.sources) for one in found] == [
        ("x", {"url": "https://x", "type": "http"}, ["c0", "c1"]),
        ("x-c2", {"url": "https://x", "type": "sse"}, ["c2"]),
    ]


def test_names_that_a_configuration_refuses_are_changed() -> None:
    assert [one.name for one in merged([server(" a__b\n", "x", "zed"), server("", "y", "zed")], NOWHERE)] == [
        "a_b",
        "server",
    ]


def test_servers_are_grouped_into_toolboxes_by_purpose() -> None:
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
