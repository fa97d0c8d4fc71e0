"""A raw MCP echo server over stdio: what a call costs when the server itself costs almost nothing.

Owns one blocking loop that reads what is there, answers all of it and writes once. Refuses to know any SDK, asyncio or
the rest of `bench`, so that it can be started as a script from anywhere.

    python echo_server.py [--modern] [--tools N]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

try:
    import orjson

    decode: Callable[[bytes], Any] = orjson.loads

    def encode(value: object) -> bytes:
        return orjson.dumps(value)

except ImportError:
    import json

    decode = json.loads

    def encode(value: object) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


LEGACY_REVISION = "2025-11-25"
MODERN_REVISION = "2026-07-28"
SERVER_INFO = {"name": "echo", "version": "1.0.0"}
# Four times the default capacity of a pipe: one read takes all that a busy client has sent.
READ_SIZE = 1 << 18

METHOD_NOT_FOUND = -32601
PARSE_ERROR = -32700

ECHO_TOOL = {
    "name": "echo",
    "description": "Answers with the text it was given, or with `size` bytes of text.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "size": {"type": "integer", "minimum": 0}},
    },
}

_SUBJECTS = ("invoice", "customer", "shipment", "incident", "deployment", "document", "calendar event", "message")
_VERBS = ("search", "create", "update", "archive", "export", "compare", "assign", "summarise")


def tool_definition(index: int) -> dict[str, Any]:
    """A definition as published servers have them: prose, a nested schema with `$defs`, annotations; about 1.5 kB."""
    subject = _SUBJECTS[index % len(_SUBJECTS)]
    verb = _VERBS[index // len(_SUBJECTS) % len(_VERBS)]
    return {
        "name": f"{verb}_{subject.replace(' ', '_')}_{index}",
        "title": f"{verb.capitalize()} {subject} ({index})",
        "description": (
            f"Use this tool to {verb} a {subject} in workspace {index}. Give an identifier or a query; when both "
            f"are given the identifier wins. Returns the {subject} with its current state and the fields asked for. "
            f"Fails when the {subject} is locked by another user, in which case retry after the lock has expired."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "identifier": {"type": "string", "description": f"The id of the {subject}, such as `{index:08x}`."},
                "query": {"type": "string", "description": "Free text; all words must match.", "maxLength": 500},
                "fields": {
                    "type": "array",
                    "items": {"enum": ["id", "title", "state", "owner", "created", "changed"]},
                    "description": f"Which fields of the {subject} to return. All of them when left out.",
                },
                "range": {"$ref": "#/$defs/range"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 20},
                "dry_run": {"type": "boolean", "default": False, "description": f"Check without doing the {verb}."},
            },
            "required": ["identifier"],
            "additionalProperties": False,
            "$defs": {
                "range": {
                    "type": "object",
                    "description": "A span of time, both ends included.",
                    "properties": {
                        "from": {"type": "string", "format": "date-time"},
                        "to": {"type": "string", "format": "date-time"},
                    },
                }
            },
        },
        "outputSchema": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "state": {"type": "string"}, "found": {"type": "integer"}},
            "required": ["id", "state"],
        },
        "annotations": {"readOnlyHint": verb in ("search", "compare"), "idempotentHint": True, "openWorldHint": False},
    }


def tool_definitions(count: int) -> list[dict[str, Any]]:
    """`count` definitions in all, `echo` first."""
    return [ECHO_TOOL, *(tool_definition(index) for index in range(1, count))][:count]


def definition_bytes(tools: list[dict[str, Any]]) -> int:
    """The size of these definitions on the wire, without what surrounds them."""
    return sum(len(encode(tool)) for tool in tools)


class EchoServer:
    """Turns one line into one answer; no input or output of its own."""

    def __init__(self, *, modern: bool = False, tools: int = 1) -> None:
        self._modern = modern
        # `ttlMs` and `cacheScope` are required of cacheable results in the modern era and unknown before it.
        cacheable = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"} if modern else {}
        self._list_result = {"tools": tool_definitions(tools), **cacheable}
        self._discover_result = {
            "supportedVersions": [MODERN_REVISION],
            "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO},
            **cacheable,
        }
        self._texts: dict[int, str] = {}

    def answer(self, line: bytes) -> bytes:
        """The answer to one message with its line end; nothing for notifications and for answers to us."""
        try:
            message = decode(line)
        except ValueError:
            return self._error(None, PARSE_ERROR, "not JSON")
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            return b""
        result = self._result(message["method"], message.get("params") or {})
        if result is None:
            return self._error(message["id"], METHOD_NOT_FOUND, f"unknown method `{message['method']}`")
        return encode({"jsonrpc": "2.0", "id": message["id"], "result": result}) + b"\n"

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "tools/call":
            return self._call(params.get("arguments") or {})
        if method == "tools/list":
            return self._list_result
        if self._modern:
            return self._discover_result if method == "server/discover" else None
        if method == "initialize":
            return {
                "protocolVersion": params.get("protocolVersion", LEGACY_REVISION),
                "capabilities": {"tools": {}},
                "serverInfo": SERVER_INFO,
            }
        return {} if method == "ping" else None

    def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        size = arguments.get("size")
        text = arguments.get("text", "") if size is None else self._text(size)
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if self._modern:
            result["resultType"] = "complete"
        return result

    def _text(self, size: int) -> str:
        if size not in self._texts:
            self._texts[size] = "x" * size
        return self._texts[size]

    @staticmethod
    def _error(identifier: object, code: int, message: str) -> bytes:
        error = {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}}
        return encode(error) + b"\n"


def serve(server: EchoServer, source: int = 0, sink: int = 1) -> None:
    """Answers everything that comes from `source` until it ends."""
    unfinished: list[bytes] = []
    while chunk := os.read(source, READ_SIZE):
        end = chunk.rfind(b"\n")
        if end < 0:
            unfinished.append(chunk)
            continue
        unfinished.append(chunk[:end])
        lines = b"".join(unfinished).split(b"\n")
        unfinished = [chunk[end + 1 :]]
        write_all(sink, b"".join([server.answer(line) for line in lines if line]))


def write_all(sink: int, data: bytes) -> None:
    """`os.write` may stop early when a signal arrives."""
    written = os.write(sink, data) if data else 0
    while written < len(data):
        written += os.write(sink, memoryview(data)[written:])


def main(arguments: list[str]) -> int:
    modern = "--modern" in arguments
    tools = int(arguments[arguments.index("--tools") + 1]) if "--tools" in arguments else 1
    try:
        serve(EchoServer(modern=modern, tools=tools))
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
