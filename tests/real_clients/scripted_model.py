"""A model on loopback that calls one tool of the workbench and then says `done`, in the words of four vendors.

Clients think that they talk to their vendor. Owns the shape of requests and answers; which tool is called is decided by
what the client declares, as a model would.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

# What is asked of the clock behind the workbench, and what it answers, as text and in structured content.
ARGUMENTS = {"time": "2025-01-15T12:00", "from_zone": "Europe/Vienna", "to_zone": "America/New_York"}
ANSWER = "2025-01-15T06:00:00-05:00"
SERVER_AND_TOOL = ("clock", "convert_time")
# What Codex declares in place of the tools, with models that it knows.
TOOL_SEARCH = "tool_search"


class ScriptedModel:
    """All requests, in order."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[dict[str, Any]] = []
        self.searched = ""
        self.called = ""

    @property
    def declared(self) -> list[str]:
        """Tools of the workbench that were ever put before the model, as the client calls them."""
        return sorted({name for body in self.asked for name in tool_names(body) if _is_ours(name)})

    @property
    def was_answered(self) -> bool:
        """Whether the result of the call came back to the model. Schemas and instructions do not have it."""
        return any(ANSWER in json.dumps(body) for body in self.asked)

    def reply(self, path: str, body: dict[str, Any]) -> str:
        """The answer as a stream of events."""
        self.asked.append(body)
        call = self._next_call(body)
        vendor = next(each for suffix, each in VENDORS.items() if suffix in path)
        events = vendor(call)
        return "".join(f"event: {kind}\ndata: {data}\n\n" if kind else f"data: {data}\n\n" for kind, data in events)

    def _next_call(self, body: dict[str, Any]) -> Call | None:
        """The tool, after a search for it where the client defers it. Each once: a client whose call fails must come to
        an end too."""
        names = tool_names(body)
        ours = sorted(filter(_is_ours, names))
        if ours and not self.called:
            call = _call(self._call_id(), ours, names)
            self.called = call.shown
            return call
        deferred = [name for name in re.findall(r"mcp__workbench__\w+", json.dumps(body)) if SERVER_AND_TOOL[1] in name]
        if deferred and "ToolSearch" in names and not self.searched:
            self.searched = deferred[0]
            return Call(self._call_id(), "", "ToolSearch", {"query": f"select:{deferred[0]}"})
        if any(tool.get("type") == TOOL_SEARCH for tool in body.get("tools") or ()) and not self.searched:
            self.searched = TOOL_SEARCH
            return Call(self._call_id(), "", TOOL_SEARCH, {"query": "convert a time from one zone to another"})
        return None

    def _call_id(self) -> str:
        """Clients drop a call with the id of an earlier one."""
        return f"call_{len(self.asked)}"


class Call(NamedTuple):
    """A tool, in a namespace where the client has them, and its arguments."""

    id: str
    namespace: str
    name: str
    arguments: dict[str, Any]

    @property
    def shown(self) -> str:
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


def tool_names(body: dict[str, Any]) -> dict[str, str]:
    """The tools that a request declares or a search in it has found, in the words of all vendors, and their
    namespaces."""
    found: dict[str, str] = {}
    results = [item for item in body.get("input") or () if item.get("type") == f"{TOOL_SEARCH}_output"]
    for tool in (tool for each in (body, *results) for tool in each.get("tools") or ()):
        for each in tool.get("functionDeclarations") or [tool.get("function", tool)]:
            inner = each.get("tools", ())
            found |= {f"{each['name']}__{one['name']}": each["name"] for one in inner}
            if not inner:
                found[str(each.get("name", ""))] = ""
    return found


def _is_ours(name: str) -> bool:
    return "workbench" in name


def _call(call_id: str, names: list[str], namespaces: dict[str, str]) -> Call:
    name = next((name for name in names if all(part in name for part in SERVER_AND_TOOL)), None)
    arguments: dict[str, Any] = ARGUMENTS
    if name is None:
        name = next(name for name in names if name.endswith("use_tool"))
        arguments = {"tool": "/".join(("desk", *SERVER_AND_TOOL)), "arguments": arguments}
    namespace = namespaces[name]
    return Call(call_id, namespace, name.removeprefix(f"{namespace}__") if namespace else name, arguments)


Event = tuple[str, str]


def _anthropic(call: Call | None) -> Iterator[Event]:
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": "done"}
    if call is not None:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
    message = {"id": "1", "type": "message", "role": "assistant", "content": [], "usage": {}}
    stop = "end_turn" if call is None else "tool_use"
    for kind, data in (
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": block}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": stop}, "usage": {"output_tokens": 1}}),
        ("message_stop", {}),
    ):
        yield kind, json.dumps({"type": kind, **data})


def _responses(call: Call | None) -> Iterator[Event]:
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": "done"}],
    }
    if call is not None and call.name == TOOL_SEARCH:
        item = {"type": "tool_search_call", "call_id": call.id, "execution": "client", "arguments": call.arguments}
    elif call is not None:
        item = {"type": "function_call", "call_id": call.id, "arguments": json.dumps(call.arguments)}
        item |= {"name": call.name, "namespace": call.namespace} if call.namespace else {"name": call.name}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    for kind, data in (
        ("response.created", {"response": {"id": "resp_1"}}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {"id": "resp_1", "output": [item], "usage": usage}}),
    ):
        yield kind, json.dumps({"type": kind, **data})


def _chat(call: Call | None) -> Iterator[Event]:
    delta: dict[str, Any] = {"role": "assistant", "content": "done"}
    if call is not None:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": call.id, "type": "function", "function": function}],
        }
    reason = "stop" if call is None else "tool_calls"
    for choice in ({"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": reason}):
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [choice]}
        yield "", json.dumps(chunk)
    yield "", "[DONE]"


def _gemini(call: Call | None) -> Iterator[Event]:
    part = {"text": "done"} if call is None else {"functionCall": {"name": call.name, "args": call.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    yield "", json.dumps({"candidates": [candidate], "usageMetadata": {"totalTokenCount": 1}})


VENDORS = {
    "/messages": _anthropic,
    "/responses": _responses,
    "/chat/completions": _chat,
    "GenerateContent": _gemini,
    "generateContent": _gemini,
}


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    model = ScriptedModel()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """stderr is for failures."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            if not any(suffix in self.path for suffix in VENDORS):
                self.send_error(404)
                return
            written = model.reply(self.path, body).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def do_GET(self) -> None:
            self.send_error(404)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        model.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
