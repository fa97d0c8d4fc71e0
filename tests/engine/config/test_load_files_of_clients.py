"""The files of other clients are configurations as they are."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.foreign_keys import FOREIGN_KEYS, IDLE_KEYS, about_ignored_keys
from mcp_workbench.engine.config.model import ServerConfig
from tests.engine.config.loading import parsed, problems_of


@pytest.mark.requirement("config.clients")
def test_claude_desktop() -> None:
    config = parsed(
        """{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"]
    },
    "brave": {"command": "npx", "args": [], "env": {"BRAVE_API_KEY": "abcdefgh"}}
  }
}"""
    )
    assert config.plain
    assert config.face is None
    assert list(config.toolboxes) == ["default"]
    assert config.toolboxes["default"].description == "The servers of workbench-config.json"
    assert list(config.toolboxes["default"].servers) == ["filesystem", "brave"]
    assert config.secrets == {"abcdefgh"}


@pytest.mark.requirement("config.clients")
def test_claude_code() -> None:
    config = parsed(
        {
            "numStartups": 12,
            "tipsHistory": {"a": 1},
            "projects": {"/x": {"mcpServers": {"local": {"command": "${NOT_LOOKED_AT}"}}, "history": ["${x}"]}},
            "mcpServers": {
                "api": {
                    "type": "http",
                    "url": "${API_BASE_URL:-https://api.example.com}/mcp",
                    "headers": {"Authorization": "Bearer ${API_KEY}"},
                    "oauth": {"clientId": "x", "callbackPort": 8080},
                    "alwaysLoad": True,
                    "timeout": 600_000,
                },
                "db": {"type": "stdio", "command": "db-mcp", "args": [], "env": {}},
            },
        },
        {"API_KEY": "k-123456"},
    )
    api = config.toolboxes["default"].servers["api"]
    assert (api.transport, api.url, api.timeout) == ("http", "https://api.example.com/mcp", 600.0)
    assert api.headers == {"Authorization": "Bearer k-123456"}


@pytest.mark.requirement("config.clients")
def test_cursor() -> None:
    config = parsed(
        {
            "mcpServers": {
                "s": {"url": "https://a.b/mcp", "headers": {"K": "${env:MY_KEY}"}, "auth": {"CLIENT_ID": "x"}}
            }
        },
        {"MY_KEY": "value"},
    )
    assert config.toolboxes["default"].servers["s"].headers == {"K": "value"}


@pytest.mark.requirement("config.clients")
def test_vs_code() -> None:
    config = parsed(
        """{
  // written by hand
  "inputs": [{"type": "promptString", "id": "key", "description": "API Key", "password": true}],
  "servers": {
    "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/", "gallery": true, "version": "1.0.0"},
    "playwright": {"command": "npx", "args": ["-y", "@microsoft/mcp-server-playwright"], "dev": {"watch": "*.js"}},
  },
}"""
    )
    servers = config.toolboxes["default"].servers
    assert (servers["github"].transport, servers["playwright"].transport) == ("http", "stdio")


def test_windsurf() -> None:
    config = parsed(
        {"mcpServers": {"s": {"serverUrl": "https://a.b/mcp", "disabledTools": ["rm"], "alwaysAllow": ["ls"]}}}
    )
    server = config.toolboxes["default"].servers["s"]
    assert (server.url, server.tool_filters) == ("https://a.b/mcp", ("*", "!rm"))


def test_cline_and_roo_code() -> None:
    config = parsed(
        {
            "mcpServers": {
                "a": {"command": "a", "disabled": False, "autoApprove": ["x"], "timeout": 3600, "type": "stdio"},
                "b": {"type": "streamableHttp", "url": "https://a.b", "disabled": True, "remoteConfigured": True},
                "c": {"type": "streamable-http", "url": "https://a.b", "alwaysAllow": [], "watchPaths": ["x"]},
            }
        }
    )
    servers = config.toolboxes["default"].servers
    assert list(servers) == ["a", "c"]
    assert servers["a"].timeout == 3600.0
    assert config.disabled == ("default/b",)


def test_gemini_cli() -> None:
    config = parsed(
        {
            "theme": "x",
            "mcp": {"allowed": ["a"]},
            "mcpServers": {
                "a": {"httpUrl": "https://a.b/mcp", "trust": True, "timeout": 5_000, "excludeTools": ["x"]},
                "b": {"command": "b", "cwd": "./b", "includeTools": ["y"], "description": "B"},
                "c": {"url": "https://a.b/sse", "authProviderType": "google_credentials", "targetAudience": "x"},
            },
        }
    )
    servers = config.toolboxes["default"].servers
    assert (servers["a"].transport, servers["a"].timeout) == ("http", 5.0)
    assert servers["b"].tool_filters == ("y",)
    assert servers["c"].transport == "auto"


def test_copilot_cli() -> None:
    config = parsed({"mcpServers": {"a": {"type": "local", "command": "a", "args": [], "tools": ["*"]}}})
    assert config.toolboxes["default"].servers["a"].tool_filters == ("*",)


def test_leftovers_of_the_other_kind_of_server_do_no_harm_in_a_plain_file() -> None:
    config = parsed({"mcpServers": {"a": {"url": "https://a.b", "args": ["x"], "env": {"A": "b"}}}})
    assert config.toolboxes["default"].servers["a"].url == "https://a.b"


def test_zed() -> None:
    config = parsed(
        {"theme": "x", "context_servers": {"a": {"source": "custom", "command": "a", "args": [], "env": {}}}}
    )
    assert config.plain
    assert config.toolboxes["default"].servers["a"].command == "a"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"mcp": {"a": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"K": "{env:K}"}}}}, "$.mcp "),
        ({"mcp": {"a": {"type": "remote", "url": "https://a.b/mcp"}}, "theme": "x"}, "$.mcp "),
        ({"mcp": {"servers": {"a": {"type": "local", "command": ["x"]}}}}, "$.mcp.servers "),
    ],
)
def test_of_opencode_one_is_told_how_to_write_its_servers_here(document: object, place: str) -> None:
    error = str(problems_of(document))
    assert f"at {place}are servers as opencode writes them (`a`)" in error
    assert "`environment` as `env`" in error and "did you mean" not in error


def test_other_files_with_that_key_get_the_hint_that_fits_them() -> None:
    assert "did you mean `mcpServers`" in str(problems_of({"mcp": {"a": {"command": "x"}}}))
    assert "there are servers at $.mcp.servers" in str(problems_of({"mcp": {"servers": {"a": {"command": "x"}}}}))


def test_keys_that_one_may_count_on_and_that_do_nothing_here_are_reported() -> None:
    config = parsed(
        {
            "mcpServers": {
                "a": {"url": "https://a.b", "auth": {"CLIENT_ID": "x"}, "description": "cosmetic", "autoApprove": []},
                **{f"b{number}": {"command": "x", "autoApprove": ["y"]} for number in range(5)},
                "off": {"command": "x", "disabled": True, "sandbox": {"a": 1}},
            }
        }
    )
    signs_in, approves = about_ignored_keys(config)
    assert signs_in.startswith("`auth` of `default/a` has no effect: the workbench signs in by itself")
    assert approves.startswith("`autoApprove` of `default/b0`, `default/b1`, `default/b2` and 2 more has no effect")


def test_servers_of_single_projects_are_named_as_they_are_not_read() -> None:
    config = parsed(
        {
            "mcpServers": {"a": {"command": "x"}},
            "projects": {
                "/home/p": {"mcpServers": {"git": {"command": "g"}, "db": {"command": "d"}}, "history": []},
                "/home/empty": {"mcpServers": {}},
                "/home/odd": 7,
                "/home/many": {"mcpServers": {f"s{number}": {} for number in range(20)}},
            },
        }
    )
    assert list(config.toolboxes["default"].servers) == ["a"]
    (told,) = about_ignored_keys(config)
    assert told.startswith("servers of single projects are not read: `git` of `/home/p`, `db` of `/home/p`, `s0` of")
    assert "`s7` of `/home/many` and 12 more; copy" in told
    assert "empty" not in told and "odd" not in told
    assert about_ignored_keys(parsed({"mcpServers": {"a": {"command": "x"}}, "projects": {"/home/p": {}}})) == []


def test_settings_without_effect_are_accepted() -> None:
    # VS Code's rules, which are an object with other members than ours.
    assert ServerConfig.SETTINGS.keys() & IDLE_KEYS.keys() == {"sandbox"}
    assert {*FOREIGN_KEYS, "sandbox"} >= IDLE_KEYS.keys()
