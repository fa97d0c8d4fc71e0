"""Configurations for tests: written as text, loaded as from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.engine.config.problems import ConfigProblems

FILE = "workbench-config.json"


def parsed(document: object, environ: Mapping[str, str] | None = None) -> WorkbenchConfig:
    """A string is the text of the file, anything else is written as JSON first."""
    text = document if isinstance(document, str) else json.dumps(document)
    return parse(text.encode(), FILE, environ or {})


def problems_of(document: object, environ: Mapping[str, str] | None = None) -> ConfigProblems:
    with pytest.raises(ConfigProblems) as caught:
        parsed(document, environ)
    return caught.value


def outcome_of(document: object, environ: Mapping[str, str] | None = None) -> WorkbenchConfig | ConfigProblems:
    """Either of the two, for documents that may be anything."""
    try:
        return parsed(document, environ)
    except ConfigProblems as error:
        return error


def toolbox_with(server: object) -> dict[str, object]:
    """A file with one toolbox `dev` that holds one server `fs`."""
    return {"toolboxes": {"dev": {"description": "d", "mcpServers": {"fs": server}}}}


def server_of(server: object, environ: Mapping[str, str] | None = None) -> ServerConfig:
    return parsed(toolbox_with(server), environ).toolboxes["dev"].servers["fs"]


def plain_server_of(server: object, environ: Mapping[str, str] | None = None) -> ServerConfig:
    return parsed({"mcpServers": {"fs": server}}, environ).toolboxes["default"].servers["fs"]
