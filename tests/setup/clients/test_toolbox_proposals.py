"""Servers of several clients, merged and grouped."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.setup.clients.toolbox_proposals import ImportedServer, merged, proposed, twins

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


GH: dict[str, Any] = {"command": "gh", "args": ["serve"]}


@pytest.mark.parametrize(
    ("one", "other", "names", "different"),
    [
        (GH | {"env": {"KEY": "a"}}, GH | {"env": {"KEY": "b"}}, ("gh", "GH"), ["KEY"]),
        (GH | {"args": ["--key", "one"]}, GH | {"args": ["--key", "two"]}, ("gh", "gh"), ["--key"]),
        (GH | {"args": ["--key=one"]}, GH | {"args": ["--key=two"]}, ("gh", "gh"), ["--key"]),
        (GH | {"args": ["-e", "TOKEN=1"]}, GH | {"args": ["-e", "TOKEN=2"]}, ("gh", "gh"), ["TOKEN"]),
        (
            {"url": "https://x/mcp?api_key=hunter2hunter2"},
            {"url": "https://x/mcp?api_key=hunter3hunter3"},
            ("x", "x"),
            ["the address"],
        ),
        (GH | {"env": {"KEY": "a"}}, {**GH, "command": "/opt/gh", "env": {"KEY": "b"}}, ("gh", "gh"), ["KEY"]),
        # Names that differ in a suffix.
        (GH | {"env": {"KEY": "a"}}, GH | {"env": {"KEY": "b"}}, ("gh", "gh-work"), ["KEY"]),
        (GH | {"env": {"KEY": "a"}}, GH | {"env": {"KEY": "b"}}, ("gh2", "gh"), ["KEY"]),
        # Two servers.
        (GH | {"env": {"KEY": "a"}}, GH | {"env": {"KEY": "b"}}, ("gh", "ghost"), None),
        (GH | {"env": {"KEY": "a", "DB": "a"}}, GH | {"env": {"KEY": "b", "DB": "b"}}, ("gh", "gh-work"), None),
        (GH | {"args": ["--level", "one"]}, GH | {"args": ["--level", "two"]}, ("gh", "gh"), None),
        (GH | {"args": ["--key", "one"]}, GH | {"args": ["--token", "one"]}, ("gh", "gh"), None),
        ({"url": "https://x/mcp"}, {"url": "https://y/mcp"}, ("x", "x"), None),
        (GH | {"env": {"KEY": "a"}}, {**GH, "command": "/usr/bin/gh", "env": {"KEY": "b"}}, ("gh", "gh"), None),
        (GH, GH, ("gh", "gh"), None),
    ],
)
def test_twins_start_the_same_and_differ_in_a_key(
    one: dict[str, Any], other: dict[str, Any], names: tuple[str, str], different: list[str] | None
) -> None:
    pair = [ImportedServer(names[0], one, ["cursor"]), ImportedServer(names[1], other, ["zed"])]
    found = twins(pair, {"gh": "/opt/gh"}.get)
    assert found == ([] if different is None else [(*pair, different)])


def test_two_names_in_one_client_are_two_servers() -> None:
    entries = [GH | {"env": {"KEY": key}} for key in "ab"]
    pair = [ImportedServer(name, entry, ["zed"]) for name, entry in zip(("gh", "gh-work"), entries, strict=True)]
    assert twins(pair, NOWHERE) == []
