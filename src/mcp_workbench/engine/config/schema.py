"""The JSON Schema of a configuration, for editors.

Owns how the tables of `keys` are combined into one document. Checks nothing: `validate` decides what the workbench
accepts, from the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mcp_workbench.engine.config import foreign_keys, keys, server_keys
from mcp_workbench.engine.config.keys import UNSET, Key
from mcp_workbench.engine.config.kinds import Schema
from mcp_workbench.engine.config.reading import LONGEST_NAME
from mcp_workbench.engine.faces import JOINING_FACES

# The same rules as `reading.name_fault`: not empty, no white space at the ends, no control characters; for toolboxes no
# `__` either.
_NAME: Schema = {
    "minLength": 1,
    "maxLength": LONGEST_NAME,
    "pattern": r"^(?!\s)(?!.*\s$)[^\u0000-\u001f\u007f-\u009f]+$",
}
_TOOLBOX_NAME: Schema = {**_NAME, "pattern": str(_NAME["pattern"]).replace("^", "^(?!.*__)", 1)}
# The same rules as `reading.registered_name_fault`.
_REGISTERED_TOOLBOX: Schema = {"propertyNames": {"pattern": "[^_]$"}}
_REGISTERED_SERVER: Schema = {"propertyNames": {"pattern": "^(?!_)(?!.*__)"}}


def json_schema() -> Schema:
    """Return the schema of `workbench-config.json`, draft 2020-12. The caller may change the object."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "MCP Workbench configuration",
        "description": "One MCP server in front of many. Comments and trailing commas are allowed, and `${VAR}` and "
        "`${VAR:-default}` are expanded in all values.",
        "type": "object",
        "properties": {
            **_properties(keys.FILE_KEYS.values()),
            keys.TOOLBOXES: {
                "title": "Toolboxes",
                "description": "Groups of servers, by name. An agent opens one at a time.",
                **_named("toolbox"),
            },
            keys.MCP_SERVERS: {
                "title": "Servers",
                "description": "The servers of a plain file, as any client writes it; without toolboxes only.",
                **_named("server"),
            },
            keys.SERVERS: {
                "title": "Servers (VS Code)",
                "description": "Another name for `mcpServers`, as VS Code writes it.",
                **_named("server"),
            },
            keys.CONTEXT_SERVERS: {
                "title": "Servers (Zed)",
                "description": "Another name for `mcpServers`, as Zed writes it.",
                **_named("server"),
            },
        },
        "anyOf": [{"required": [root]} for root in (keys.TOOLBOXES, *keys.PLAIN_ROOTS)],
        # Other keys of a plain file belong to the program that wrote it.
        "if": {"required": [keys.TOOLBOXES]},
        "then": {"propertyNames": {"enum": [keys.TOOLBOXES, *keys.FILE_KEYS]}},
        "allOf": [
            {
                "if": {"properties": {keys.FACE.name: {"enum": list(JOINING_FACES)}}, "required": [keys.FACE.name]},
                "then": {"properties": _registered_names()},
            }
        ],
        "$defs": {"toolbox": _toolbox(), "server": _server()},
    }


def _named(definition: str) -> Schema:
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": dict(_TOOLBOX_NAME if definition == "toolbox" else _NAME),
        "additionalProperties": {"$ref": f"#/$defs/{definition}"},
    }


def _registered_names() -> Schema:
    """Names in a file whose face is `dynamic`."""
    of_toolbox = {"properties": {keys.MCP_SERVERS: dict(_REGISTERED_SERVER)}}
    return {
        keys.TOOLBOXES: {**_REGISTERED_TOOLBOX, "additionalProperties": of_toolbox},
        **{root: dict(_REGISTERED_SERVER) for root in keys.PLAIN_ROOTS},
    }


def _toolbox() -> Schema:
    return {
        "title": "Toolbox",
        "description": "A named group of servers that an agent opens together.",
        "type": "object",
        "properties": {
            **_properties(keys.TOOLBOX_KEYS.values()),
            keys.MCP_SERVERS: {
                "title": "Servers",
                "description": "The servers of the toolbox, by name.",
                **_named("server"),
            },
        },
        "required": [keys.DESCRIPTION.name, keys.MCP_SERVERS],
        "additionalProperties": False,
    }


def _server() -> Schema:
    ways: Iterable[Key[object]] = server_keys.COMMAND, server_keys.URL, server_keys.SERVER_URL, server_keys.HTTP_URL
    unsupported: Mapping[str, Schema] = {
        # Empty values are allowed: clients write such keys with empty values.
        name: {"title": "Not supported", "description": f"Not supported: {advice}.", "enum": [False, None, "", 0]}
        for name, advice in foreign_keys.UNSUPPORTED_KEYS.items()
    }
    return {
        "title": "Server",
        "description": "One MCP server: a program that is started, or an address.",
        "type": "object",
        "properties": {
            **_properties(server_keys.SERVER_KEYS.values()),
            **_properties(foreign_keys.FOREIGN_KEYS.values()),
            **unsupported,
        },
        "oneOf": [{"required": [key.name]} for key in ways],
        "additionalProperties": False,
    }


def _properties(table: Iterable[Key[object]]) -> dict[str, Schema]:
    return {key.name: _property(key) for key in table}


def _property(key: Key[object]) -> Schema:
    schema: Schema = {"title": key.title, "description": key.description, **key.kind.schema()}
    if key.default is not UNSET:
        schema["default"] = key.default
    return schema
