"""The JSON Schema of a configuration, for editors.

Owns how the settings of the model are combined into one document. Checks nothing: `validate` decides what the workbench
accepts, from the same declarations.
"""

from __future__ import annotations

from mcp_workbench.engine.config.foreign_keys import FOREIGN_KEYS, UNSUPPORTED_KEYS
from mcp_workbench.engine.config.kinds import Schema
from mcp_workbench.engine.config.model import (
    CONTEXT_SERVERS,
    MCP_SERVERS,
    PLAIN_ROOTS,
    SERVERS_ROOT,
    TOOLBOXES_ROOT,
    ServerConfig,
    ToolboxConfig,
    WorkbenchConfig,
)
from mcp_workbench.engine.config.reading import MAX_NAME_LENGTH
from mcp_workbench.engine.config.server import ADDRESSES
from mcp_workbench.engine.config.setting import schemas_of
from mcp_workbench.engine.faces import JOINING_FACES

# The same rules as `reading.name_fault`: not empty, no white space at the ends, no control characters; for toolboxes no
# `__` either.
_ANY_NAME: Schema = {
    "minLength": 1,
    "maxLength": MAX_NAME_LENGTH,
    "pattern": r"^(?!\s)(?!.*\s$)[^\u0000-\u001f\u007f-\u009f]+$",
}
_TOOLBOX_NAME: Schema = {**_ANY_NAME, "pattern": str(_ANY_NAME["pattern"]).replace("^", "^(?!.*__)", 1)}
# The same rules as `reading.registered_name_fault`.
_REGISTERED_TOOLBOX: Schema = {"propertyNames": {"pattern": "[^_]$"}}
_REGISTERED_SERVER: Schema = {"propertyNames": {"pattern": "^(?!_)(?!.*__)"}}
# What an image runs by itself.
_BY_IMAGE: Schema = {
    "required": ["sandbox"],
    "properties": {
        "sandbox": {"title": "Sandbox", "description": "With an `image`.", "type": "object", "required": ["image"]}
    },
    "not": {"required": ["command"]},
}


def json_schema() -> Schema:
    """Return the schema of `workbench-config.json`, draft 2020-12. The caller may change the object."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "MCP Workbench configuration",
        "description": "One MCP server in front of many. Comments and trailing commas are allowed, and `${VAR}` and "
        "`${VAR:-default}` are expanded in all values.",
        "type": "object",
        "properties": {
            **schemas_of(WorkbenchConfig.SETTINGS),
            TOOLBOXES_ROOT: {
                "title": "Toolboxes",
                "description": "Groups of servers, by name. An agent opens one at a time.",
                **_named("toolbox"),
            },
            MCP_SERVERS: {
                "title": "Servers",
                "description": "The servers of a plain file, as any client writes it; without toolboxes only.",
                **_named("server"),
            },
            SERVERS_ROOT: {
                "title": "Servers (VS Code)",
                "description": "Another name for `mcpServers`, as VS Code writes it.",
                **_named("server"),
            },
            CONTEXT_SERVERS: {
                "title": "Servers (Zed)",
                "description": "Another name for `mcpServers`, as Zed writes it.",
                **_named("server"),
            },
        },
        "anyOf": [{"required": [root]} for root in (TOOLBOXES_ROOT, *PLAIN_ROOTS)],
        # Other keys of a plain file belong to the program that wrote it.
        "if": {"required": [TOOLBOXES_ROOT]},
        "then": {"propertyNames": {"enum": [TOOLBOXES_ROOT, *WorkbenchConfig.SETTINGS]}},
        "allOf": [
            {
                "if": {"properties": {"face": {"enum": list(JOINING_FACES)}}, "required": ["face"]},
                "then": {"properties": _registered_names()},
            }
        ],
        "$defs": {"toolbox": _toolbox(), "server": _server()},
    }


def _named(definition: str) -> Schema:
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": dict(_TOOLBOX_NAME if definition == "toolbox" else _ANY_NAME),
        "additionalProperties": {"$ref": f"#/$defs/{definition}"},
    }


def _registered_names() -> Schema:
    """Names in a file whose face is `dynamic`."""
    of_toolbox = {"properties": {MCP_SERVERS: dict(_REGISTERED_SERVER)}}
    return {
        TOOLBOXES_ROOT: {**_REGISTERED_TOOLBOX, "additionalProperties": of_toolbox},
        **{root: dict(_REGISTERED_SERVER) for root in PLAIN_ROOTS},
    }


def _toolbox() -> Schema:
    return {
        "title": "Toolbox",
        "description": "A named group of servers that an agent opens together.",
        "type": "object",
        "properties": {
            **schemas_of(ToolboxConfig.SETTINGS),
            MCP_SERVERS: {
                "title": "Servers",
                "description": "The servers of the toolbox, by name.",
                **_named("server"),
            },
        },
        "required": ["description", MCP_SERVERS],
        "additionalProperties": False,
    }


def _server() -> Schema:
    unsupported: dict[str, Schema] = {
        # Empty values are allowed: clients write such keys with empty values.
        name: {"title": "Not supported", "description": f"Not supported: {advice}.", "enum": [False, None, "", 0]}
        for name, advice in UNSUPPORTED_KEYS.items()
    }
    return {
        "title": "Server",
        "description": "One MCP server: a program that is started, or an address.",
        "type": "object",
        "properties": {
            **schemas_of(ServerConfig.SETTINGS),
            **{
                name: {"title": title, "description": f"Written by {writer} for itself. Accepted and ignored."}
                for name, (title, writer) in FOREIGN_KEYS.items()
            },
            **unsupported,
        },
        "oneOf": [*({"required": [name]} for name in ("command", *ADDRESSES)), _BY_IMAGE],
        "additionalProperties": False,
    }
