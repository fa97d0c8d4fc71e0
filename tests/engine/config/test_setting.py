"""A setting is declared once; everything else about it is derived."""

from __future__ import annotations

import json
import sys
from types import FrameType

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.catalog.manifests import identity_of
from mcp_workbench.engine.config.fixed_settings import FIXED
from mcp_workbench.engine.config.kinds import Seconds, Text
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.config.setting import REQUIRED, Declared, schemas_of, setting

SERVERS = 10
# Into `engine/config`. More is a decision, not an accident.
MAX_CLIENT_CALLS = 443


class Kettle(Declared, frozen=True, kw_only=True):
    owner: str
    plug_type: str = setting(Text(), "What it is plugged into.", REQUIRED)
    boils_within: float = setting(Seconds(), "How long it takes.", 90.0, name="boilTime", title="Patience")
    cups: tuple[str, ...] = setting(Text(), "Who drinks.", ())
    lid = setting(Text(), "Another name for it.")


def test_a_declaration_is_a_field_with_its_default() -> None:
    kettle = Kettle(owner="me", plug_type="G")
    assert (kettle.boils_within, kettle.cups) == (90.0, ())
    assert Kettle.__struct_fields__ == ("owner", "plug_type", "boils_within", "cups")
    with pytest.raises(TypeError, match="plug_type"):
        Kettle(owner="me")


def test_settings_are_found_by_their_names_in_the_file() -> None:
    assert list(Kettle.SETTINGS) == ["plugType", "boilTime", "cups", "lid"]
    assert [each.field for each in Kettle.SETTINGS.values()] == ["plug_type", "boils_within", "cups", ""]
    assert not hasattr(Kettle, "lid")


def test_the_schema_has_title_sentence_and_default_of_a_declaration() -> None:
    schemas = schemas_of(Kettle.SETTINGS)
    assert schemas["plugType"] == {
        "title": "Plug type",
        "description": "What it is plugged into.",
        "type": "string",
        "pattern": r"\S",
    }
    assert (schemas["boilTime"]["title"], schemas["boilTime"]["default"]) == ("Patience", 90.0)
    assert schemas["cups"]["default"] == []


@pytest.mark.parametrize("declared", [WorkbenchConfig, ToolboxConfig, ServerConfig])
def test_every_setting_with_a_field_has_the_default_of_that_field(declared: type[Declared]) -> None:
    named = [each for each in declared.SETTINGS.values() if each.field]
    assert len(named) >= 2
    assert {each.field for each in named} <= set(declared.__struct_fields__)


def test_a_setting_that_identifies_a_server_changes_its_identity() -> None:
    plain = ServerConfig(name="s", command="x", cwd="/")
    for each in ServerConfig.SETTINGS.values():
        # Of `oauth` only the account counts.
        if each.field and each.field != "oauth":
            other = replace(plain, **{each.field: {"A": "b"} if each.field in ("env", "headers") else "other"})
            assert (identity_of(other) != identity_of(plain)) == (each.identity is not None), each.name


def test_settings_that_need_a_restart_say_so_in_their_declaration() -> None:
    assert FIXED == {
        "face": "face",
        "separator": "separator",
        "max_message_bytes": "maxMessageBytes",
        "max_pending_body_bytes": "maxPendingBodyBytes",
        "splits_use_tool": "useTool",
        "programs": "programs",
        "keychain": "keychain",
        "learn": "learn",
        "redact_results": "redactResults",
        "page": "page",
        "auth": "auth",
        "trusted_proxy": "trustedProxy",
        "metrics": "metrics",
        "telemetry": "telemetry",
        "cluster": "cluster",
    }


def calls_into_config(document: object, environ: dict[str, str]) -> int:
    content = json.dumps(document).encode()
    parse(content, "x.json", environ)
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call" and "/engine/config/" in frame.f_code.co_filename.replace("\\", "/")

    sys.setprofile(count)
    try:
        parse(content, "x.json", environ)
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("variables", [10, 1000])
def test_a_file_of_ten_servers_is_read_in_a_bounded_number_of_steps(variables: int) -> None:
    boxes = {
        f"box{number}": {"description": "A box.", "mcpServers": {"server": {"command": "x", "args": ["-m", "y"]}}}
        for number in range(SERVERS)
    }
    environ = {f"VARIABLE_{number}": "x" for number in range(variables)}
    # Every start pays for them.
    assert 300 < calls_into_config({"toolboxes": boxes}, environ) <= MAX_CLIENT_CALLS
    # One look through the variables for all servers, however many of each there are.
    inheriting = {"inheritEnv": ["AWS_*", "GITHUB_TOKEN"], "toolboxes": boxes}
    assert calls_into_config(inheriting, environ) <= MAX_CLIENT_CALLS + 50
