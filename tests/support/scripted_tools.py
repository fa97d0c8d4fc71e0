"""What the tools of the scripted server do.

Owns the behaviour of each tool and its definition. Refuses to know how messages travel: a tool gets a `Call` and
returns a result, raises `RpcError` for a JSON-RPC error, or raises `NoAnswer` when the call must never be answered.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.scripted_server import Call

Json = dict[str, Any]

# Longer than any test waits, shorter than a forgotten process may live.
HANG_SECONDS = 600.0
PROGRESS_INTERVAL = 0.1
# How long `cancelled` waits for the cancellations it was asked to wait for.
CANCELLED_WAIT = 10.0
# Long enough for the answer to a call to be on its way.
LATER = 0.1


class RpcError(Exception):
    """The call ends in a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def as_json(self) -> Json:
        error: Json = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}


class NoAnswer(Exception):
    """The call is not answered: it was cancelled, or it hangs on purpose."""


def _text(text: str, **fields: Any) -> Json:
    return {"content": [{"type": "text", "text": text}], **fields}


def _structured(value: Json) -> Json:
    return _text(json.dumps(value), structuredContent=value)


def echo(call: Call) -> Json:
    """The arguments, with everything around them that a middleman must not lose."""
    result = _structured(call.arguments)
    return {**result, "unknownField": {"kept": [1, None, "ü"]}, "_meta": {"example.test/echo": call.tool}}


def fail(call: Call) -> Json:
    raise RpcError(
        call.arguments.get("code", -32000), call.arguments.get("message", "failed as asked"), call.arguments.get("data")
    )


def tool_error(call: Call) -> Json:
    return _text(call.arguments.get("message", "the tool failed"), isError=True)


def answer(call: Call) -> Json:
    result: Json = call.arguments["result"]
    return result


def crash(call: Call) -> Json:
    sys.stderr.write(call.arguments.get("stderr", "crashing as asked\n"))
    sys.stderr.flush()
    call.server.end(call.arguments.get("code", 3))


def hang(call: Call) -> Json:
    call.cancelled.wait(HANG_SECONDS)
    raise NoAnswer


def slow(call: Call) -> Json:
    seconds = float(call.arguments.get("seconds", 0.3))
    steps = max(1, round(seconds / PROGRESS_INTERVAL))
    for step in range(1, steps + 1):
        if call.cancelled.wait(seconds / steps):
            raise NoAnswer
        call.progress(step, steps, f"step {step}")
    return _structured({"slept": seconds})


def big(call: Call) -> Json:
    return _text("x" * int(call.arguments.get("bytes", 1024)))


def progress(call: Call) -> Json:
    count = int(call.arguments.get("n", 3))
    for step in range(1, count + 1):
        call.progress(step, count, f"step {step}")
    return _structured({"sent": count if call.progress_token is not None else 0})


def ask(call: Call) -> Json:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    message = call.arguments.get("message", "What is your name?")
    return _structured(
        call.ask_client("elicitation/create", {"message": message, "requestedSchema": schema}, "elicitation")
    )


def sample(call: Call) -> Json:
    question = {"role": "user", "content": {"type": "text", "text": call.arguments.get("text", "Say hello.")}}
    return _structured(call.ask_client("sampling/createMessage", {"messages": [question], "maxTokens": 16}, "sampling"))


def roots(call: Call) -> Json:
    return _structured(call.ask_client("roots/list", {}, "roots"))


def request(call: Call) -> Json:
    """Any request from server to client: `method` and `params` from the arguments (legacy only)."""
    return _structured(call.ask_client(call.arguments["method"], call.arguments.get("params", {}), ""))


def notify(call: Call) -> Json:
    """Any notification, `count` times: `method` and `params` from the arguments; with `later` after the answer."""

    def send() -> None:
        for _ in range(int(call.arguments.get("count", 1))):
            call.server.notify(call.arguments["method"], call.arguments.get("params", {}))

    if call.arguments.get("later"):
        threading.Timer(LATER, send).start()
    else:
        send()
    return _text("sent")


def environment(call: Call) -> Json:
    name = call.arguments["name"]
    return _structured({"name": name, "value": os.environ.get(name)})


def pid(call: Call) -> Json:
    return _structured({"pid": os.getpid(), "group": os.getpgrp()})


def all_content(call: Call) -> Json:
    annotations = {"audience": ["user"], "priority": 0.5, "x-unknown": True}
    resource = {"uri": "test:///one", "mimeType": "text/plain", "text": "one", "_meta": {"example.test/a": 1}}
    return {
        "content": [
            {"type": "text", "text": "text", "annotations": annotations, "_meta": {"example.test/t": [1]}},
            {"type": "image", "data": "aW1hZ2U=", "mimeType": "image/png", "annotations": annotations},
            {"type": "audio", "data": "YXVkaW8=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": resource},
            {"type": "resource_link", "uri": "test:///two", "name": "two", "size": 3, "annotations": annotations},
            {"type": "x-unknown", "anything": {"nested": [None, 1.5, "ü"]}},
        ],
        "structuredContent": {"big": 12345678901234567890, "float": 1e-7, "null": None},
        "isError": False,
    }


def link(call: Call) -> Json:
    """A link to each of `uris`."""
    links = [{"type": "resource_link", "uri": uri, "name": "linked"} for uri in call.arguments["uris"]]
    return {"content": [{"type": "text", "text": "see there"}, *links]}


def change_tools(call: Call) -> Json:
    """One more tool, told `times` times; with `remove` one less; with `silent` not told at all."""
    name = call.arguments.get("name", "added")
    if call.arguments.get("remove"):
        call.server.tool_names.remove(name)
    else:
        call.server.tool_names.append(name)
    call.server.notify_changed("tools", call.arguments.get("times", 0 if call.arguments.get("silent") else 1))
    return _structured({"added": name})


def change_offers(call: Call) -> Json:
    """One more prompt, resource or template: `kind` and `name`."""
    assert call.server.offers is not None
    kind = call.arguments.get("kind", "prompts")
    call.server.offers.add(kind, call.arguments.get("name", "added"))
    call.server.notify_changed("prompts" if kind == "prompts" else "resources")
    return _text("changed")


def update_resource(call: Call) -> Json:
    call.server.notify_updated(call.arguments["uri"])
    return _text("updated")


def end_subscriptions(call: Call) -> Json:
    call.server.end_subscriptions()
    return _text("ended")


def log(call: Call) -> Json:
    """A log message of each level given."""
    for level in call.arguments.get("levels", ["info"]):
        call.log(level, {"said": level, "nested": [None, 1.5, "ü"]})
    return _text("logged")


def ask_url(call: Call) -> Json:
    params = {
        "mode": "url",
        "elicitationId": "elicitation-1",
        "url": "https://example.test/connect?a=1&b=ü",
        "message": "Please sign in.",
    }
    return _structured(call.ask_client("elicitation/create", params, "elicitation"))


def ask_all(call: Call) -> Json:
    """Everything at once, in the modern way; one after the other in the legacy way."""
    asked: dict[str, tuple[str, Json]] = {
        "form": ("elicitation/create", {"message": "Form?", "requestedSchema": {"type": "object", "properties": {}}}),
        "sample": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
        "roots": ("roots/list", {}),
    }
    return _structured(call.ask_together(asked))


def asked_at_start(call: Call) -> Json:
    """What the client answered to the question of `--ask-at-start`."""
    return _structured(call.server.answer_at_start.get(timeout=CANCELLED_WAIT))


def start_task(call: Call) -> Json:
    """A task, where the client knows tasks; else the result itself."""
    extensions = call.client_capabilities.get("extensions") or {}
    if "io.modelcontextprotocol/tasks" not in extensions:
        return _structured({"task": False})
    return call.server.tasks.start(call.arguments)


def count(call: Call) -> Json:
    return _structured({"count": call.server.increment()})


def cancelled(call: Call) -> Json:
    """Cancellations received so far; with `wait: N` only once there are N of them."""
    enough = int(call.arguments.get("wait", 0))
    return _structured({"cancelled": call.server.wait_for_cancellations(enough, CANCELLED_WAIT)})


def last_meta(call: Call) -> Json:
    return _structured({"meta": call.meta})


def stderr(call: Call) -> Json:
    sys.stderr.write(call.arguments.get("text", "") * int(call.arguments.get("times", 1)))
    sys.stderr.flush()
    return _text("written")


def write(call: Call) -> Json:
    """Raw text on stdout before the answer; `latin1` characters are bytes, so that any byte can be sent."""
    call.server.write(call.arguments["text"].encode("latin1"))
    return _text("written")


TOOLS: dict[str, Callable[[Call], Json]] = {
    "echo": echo,
    "fail": fail,
    "tool_error": tool_error,
    "answer": answer,
    "crash": crash,
    "hang": hang,
    "slow": slow,
    "big": big,
    "progress": progress,
    "ask": ask,
    "sample": sample,
    "roots": roots,
    "request": request,
    "notify": notify,
    "env": environment,
    "pid": pid,
    "all_content": all_content,
    "link": link,
    "change_tools": change_tools,
    "change_offers": change_offers,
    "update_resource": update_resource,
    "end_subscriptions": end_subscriptions,
    "log": log,
    "ask_url": ask_url,
    "ask_all": ask_all,
    "asked_at_start": asked_at_start,
    "start_task": start_task,
    "count": count,
    "cancelled": cancelled,
    "last_meta": last_meta,
    "stderr": stderr,
    "write": write,
}


def definition(name: str) -> Json:
    """A tool as `tools/list` shows it, with the parts that middlemen like to lose."""
    function = TOOLS.get(name, echo)
    reads = not name.startswith("delete_")
    output = {"outputSchema": {"type": "object", "$defs": {"x": {"$anchor": "x"}}}} if name in ("echo", "count") else {}
    return {
        "name": name,
        "title": name.replace("_", " ").title(),
        "description": (function.__doc__ or f"The tool {name}.").splitlines()[0],
        "inputSchema": {
            "type": "object",
            "properties": {"node": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"$anchor": "node", "type": ["object", "null"]}},
            "additionalProperties": True,
        },
        **({} if name.startswith("silent_") else {"annotations": {"readOnlyHint": reads, "x-unknown": 1}}),
        "icons": [{"src": "data:image/png;base64,aWNvbg==", "mimeType": "image/png"}],
        "x-unknown": {"kept": [1, None]},
        "_meta": {"example.test/tool": name, "ui": {"resourceUri": "ui://test/view.html"}},
        **output,
    }
