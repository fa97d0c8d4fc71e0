"""What the settings of a server mean once they are loaded."""

from __future__ import annotations

import os

import pytest

from mcp_workbench.engine.config.model import WorkbenchConfig
from tests.engine.config.loading import parsed, plain_server_of, problems_of, server_of, toolbox_with


def test_numbers_and_booleans_in_env_become_their_json_text() -> None:
    server = server_of({"command": "x", "env": {"A": 1, "B": 1.5, "C": True, "D": False, "E": "", "F": 10**20}})
    assert server.env == {"A": "1", "B": "1.5", "C": "true", "D": "false", "E": "", "F": "1" + "0" * 20}


def test_empty_arguments_are_arguments() -> None:
    assert server_of({"command": "x", "args": ["", " ", "${NOTHING:-}", "-y"]}).args == ("", " ", "", "-y")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("stdio", "stdio"),
        ("local", "stdio"),
        ("auto", "stdio"),
    ],
)
def test_a_command_is_spoken_to_over_stdio(written: str, meant: str) -> None:
    assert server_of({"command": "x", "type": written}).transport == meant


@pytest.mark.parametrize(
    ("server", "meant"),
    [
        ({"url": "https://a.b"}, "auto"),
        ({"url": "https://a.b", "type": "http"}, "http"),
        ({"url": "https://a.b", "transport": "streamable-http"}, "http"),
        ({"url": "https://a.b", "type": "streamableHttp", "transport": "http"}, "http"),
        ({"url": "https://a.b", "type": "sse"}, "sse"),
        ({"url": "https://a.b", "type": "auto"}, "auto"),
        ({"serverUrl": "https://a.b"}, "auto"),
        ({"httpUrl": "https://a.b"}, "http"),
    ],
)
def test_an_address_is_spoken_to_as_written(server: dict[str, object], meant: str) -> None:
    loaded = server_of(server)
    assert (loaded.transport, loaded.url, loaded.command) == (meant, "https://a.b", None)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "HTTPS://EXAMPLE.com:443/mcp?x=1#y",
        "https://me:secret@example.com/mcp",
        "http://[::1]:8080/mcp",
        "http://192.168.0.1:65535",
        "https://bücher.example/päth",
        "http://my_host/mcp",
    ],
)
def test_addresses_of_every_shape_are_accepted(url: str) -> None:
    assert server_of({"url": f" {url}\n"}).url == url


@pytest.mark.parametrize(
    ("written", "meant"),
    [(None, None), (["*"], ("*",)), ([], ()), (["a", " !b* "], ("a", "!b*"))],
)
def test_filters_are_kept_in_order_and_none_differs_from_empty(
    written: list[str] | None, meant: tuple[str, ...] | None
) -> None:
    server = {"command": "x"} if written is None else {"command": "x", "toolFilters": written}
    assert server_of(server).tool_filters == meant


@pytest.mark.parametrize(
    ("keys", "meant"),
    [
        ({"includeTools": ["a"]}, ("a",)),
        ({"tools": ["*"]}, ("*",)),
        ({"excludeTools": ["a"]}, ("*", "!a")),
        ({"disabledTools": ["a", "b"]}, ("*", "!a", "!b")),
        ({"includeTools": ["a", "b"], "excludeTools": ["b"]}, ("a", "b", "!b")),
        ({"toolFilters": ["c"], "includeTools": ["a"], "disabledTools": ["c"]}, ("c", "!c")),
        ({"toolFilters": [], "disabledTools": ["c"]}, ()),
        ({"disabledTools": []}, None),
    ],
)
def test_tools_that_another_client_excluded_stay_excluded(
    keys: dict[str, object], meant: tuple[str, ...] | None
) -> None:
    assert plain_server_of({"command": "x", **keys}).tool_filters == meant


@pytest.mark.parametrize("never", [None, 0, 0.0, "${NEVER:-0}"])
def test_an_idle_timeout_of_null_or_zero_means_never(never: object) -> None:
    assert server_of({"command": "x", "idleTimeout": never}).idle_timeout is None


def test_durations_are_seconds_with_fractions_and_from_variables() -> None:
    server = server_of(
        {"command": "x", "timeout": 0.5, "startupTimeout": "${S}", "idleTimeout": 86_400}, {"S": " 12.5 "}
    )
    assert (server.timeout, server.startup_timeout, server.idle_timeout) == (0.5, 12.5, 86_400.0)


@pytest.mark.parametrize(("written", "seconds"), [(60, 60.0), (3_600, 3_600.0), (30_000, 30.0), (600_000, 600.0)])
def test_thousands_in_a_plain_file_are_milliseconds(written: int, seconds: float) -> None:
    assert plain_server_of({"command": "x", "timeout": written}).timeout == seconds


def test_thousands_in_a_file_with_toolboxes_are_seconds() -> None:
    assert server_of({"command": "x", "timeout": 30_000}).timeout == 30_000.0


@pytest.mark.parametrize("protocol", ["auto", "legacy", "modern", "2024-11-05", "2026-07-28"])
def test_the_protocol_is_an_era_or_a_revision(protocol: str) -> None:
    assert server_of({"command": "x", "protocol": protocol}).protocol == protocol


def test_a_relative_folder_starts_at_the_configuration() -> None:
    here = os.getcwd()
    assert server_of({"command": "x", "cwd": "sub/../folder"}).cwd == os.path.join(here, "folder")
    assert server_of({"command": "x", "cwd": "${HERE}/x"}, {"HERE": here}).cwd == os.path.join(here, "x")
    assert server_of({"command": "x", "cwd": "~"}).cwd == os.path.expanduser("~")
    assert server_of({"command": "x"}).cwd is None


def test_renames_are_kept() -> None:
    assert server_of({"command": "x", "rename": {"get": "fetch_it", "__x": "y"}}).rename == {
        "get": "fetch_it",
        "__x": "y",
    }


def test_a_disabled_server_is_left_out_and_not_looked_at() -> None:
    config = parsed(
        {
            "toolboxes": {
                "dev": {
                    "description": "d",
                    "mcpServers": {
                        "on": {"command": "x", "disabled": False, "enabled": True},
                        "off": {"command": "${GONE}", "disabled": True},
                        "out": {"unknown": 1, "enabled": "${OUT}"},
                    },
                },
                "empty": {"description": "d", "mcpServers": {"off": {"disabled": True}}},
            }
        },
        {"OUT": "false"},
    )
    assert list(config.toolboxes) == ["dev"]
    assert list(config.toolboxes["dev"].servers) == ["on"]
    assert config.disabled == ("dev/off", "dev/out", "empty/off")


ODD_NAMES = [
    "constructor",
    "toString",
    "ünïcödé 工具",
    "a_b",
    "_a_",
    "a b",
    "x" * 200,
    "🧰",
    "default",
    "../..",
    "a.b:c",
]


@pytest.mark.requirement("names.odd")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_names(name: str) -> None:
    config = parsed({"toolboxes": {name: {"description": "d", "mcpServers": {name: {"command": "x"}}}}})
    assert config.toolboxes[name].name == name
    assert config.toolboxes[name].servers[name].name == name


def _secrets(server: dict[str, object], environ: dict[str, str] | None = None) -> frozenset[str]:
    config: WorkbenchConfig = parsed(toolbox_with(server), environ)
    return config.secrets


def test_values_of_env_headers_variables_and_addresses_are_secret() -> None:
    assert _secrets({"command": "x", "env": {"TOKEN": "sk-12345", "PORT": 8080, "DIR": "/tmp/x", "S": "abc"}}) == {
        "sk-12345"
    }
    assert _secrets({"url": "https://a.b?key=qwertz", "headers": {"Authorization": "Bearer asdfgh"}}) == {
        "qwertz",
        "Bearer asdfgh",
        "asdfgh",
    }
    assert _secrets({"command": "x", "args": ["--key=${KEY}", "${HOME}"]}, {"KEY": "yxcvbn", "HOME": "/home/x"}) == {
        "yxcvbn"
    }


def test_the_settings_of_the_file_are_read_in_both_forms() -> None:
    settings = {"face": "dynamic", "maxMessageBytes": "${MAX:-2048}", "$schema": "./schema.json"}
    for document in (toolbox_with({"command": "x"}), {"mcpServers": {"fs": {"command": "x"}}}):
        config = parsed({**settings, **document})
        assert (config.face, config.max_message_bytes) == ("dynamic", 2048)


def test_an_unused_unsupported_key_is_no_problem() -> None:
    assert server_of({"command": "x", "sandboxEnabled": False, "envFile": ""}).command == "x"
    assert '"sandbox": "contained"' in str(problems_of(toolbox_with({"command": "x", "sandboxEnabled": True})))
