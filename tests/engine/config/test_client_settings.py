"""`clients` in a configuration: what is to be known of single clients."""

from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.config.client_settings import CLIENTS, ClientSettings
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.problems import ConfigProblems

BOXES = {"box": {"description": "x", "mcpServers": {"one": {"command": "x"}}}}


def loaded(clients: object) -> dict[str, dict[str, object]]:
    return parse(json.dumps({"clients": clients, "toolboxes": BOXES}).encode(), "config.json", {}).clients


def test_client_settings_are_read() -> None:
    said: dict[str, dict[str, object]] = {
        "codex": {"face": "proxy", "nameLength": None, "instructionsLength": None},
        "my-*": {
            "face": "flat",
            "flatUpTo": 0,
            "separator": "-",
            "nameLength": 64,
            "instructionsLength": 160,
            "callSeconds": 90,
            "progressExtends": True,
            "signIn": "link",
            "healthCheck": False,
        },
    }
    assert loaded(said) == said
    assert loaded({}) == {}
    assert ClientSettings.SETTINGS.keys() == said["my-*"].keys()


@pytest.mark.parametrize(
    ("clients", "complaint"),
    [
        ([], 'expected an object such as `{"codex": {"face": "proxy"}}`'),
        ({"codex": "proxy"}, 'expected an object such as `{"face": "proxy"}`'),
        ({"codex": {"fcae": "proxy"}}, "did you mean `face`?"),
        ({"codex": {"face": "dynamic"}}, "expected"),
        ({"codex": {"nameLength": 5}}, "a whole number from 32"),
        ({"codex": {"callSeconds": None}}, "expected"),
        ({"codex": {"signIn": "never"}}, "expected"),
    ],
)
def test_invalid_client_settings_are_reported(clients: object, complaint: str) -> None:
    with pytest.raises(ConfigProblems, match=r"clients") as raised:
        loaded(clients)
    assert complaint in str(raised.value)


def test_editors_know_every_member() -> None:
    client = CLIENTS.schema()["additionalProperties"]
    assert isinstance(client, dict) and client["additionalProperties"] is False
    assert set(client["properties"]) == ClientSettings.SETTINGS.keys()
