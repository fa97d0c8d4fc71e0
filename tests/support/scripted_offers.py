"""What the scripted server offers beside tools: prompts, resources, templates, completions, tasks.

Owns their definitions and what is answered about them. Refuses to know how messages travel: like a tool, an answer is a
result or an `RpcError`.
"""

from __future__ import annotations

import itertools
import re
import threading
from typing import TYPE_CHECKING, Any

from tests.support.scripted_tools import Json, RpcError

if TYPE_CHECKING:
    from tests.support.scripted_server import Call

RESOURCE_NOT_FOUND_LEGACY = -32002
INVALID_PARAMS = -32602
WORDS = ("apple", "apricot", "banana")
# The methods that list, and the member of the answer that the list is in.
LISTS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
ICON = {"src": "data:image/png;base64,aWNvbg==", "mimeType": "image/png"}


class Offers:
    """Prompts and resources whose URIs begin with `{scheme}:`, so that two servers can differ or collide."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.subscribed: set[str] = set()
        self._lists: dict[str, list[Json]] = {"prompts": [], "resources": [], "resourceTemplates": []}
        for name in ("greet", "ask_first"):
            self.add("prompts", name)
        for name in ("one", "two", "blob"):
            self.add("resources", name)
        for name in ("item", "file"):
            self.add("resourceTemplates", name)
        self._lists["resources"].append(
            {"uri": f"ui://{scheme}/view.html", "name": "view", "mimeType": "text/html;profile=mcp-app"}
        )

    def listed(self, kind: str) -> list[Json]:
        return self._lists[kind]

    def add(self, kind: str, name: str) -> None:
        """One more, with the parts that middlemen like to lose."""
        common: Json = {
            "name": name,
            "title": name.title(),
            "description": f"The {name} of {self.scheme}.",
            "icons": [ICON],
            "x-unknown": {"kept": [1, None]},
            "_meta": {"example.test/offer": name},
        }
        annotations = {"audience": ["user"], "priority": 0.5, "x-unknown": True}
        if kind == "prompts":
            arguments = [{"name": "who", "title": "Who", "description": "Whom to greet.", "required": True}]
            common["arguments"] = [*arguments, {"name": "tone", "required": False, "x-unknown": 1}]
        elif kind == "resources":
            uri = f"{self.scheme}:///{name}"
            common.update(uri=uri, mimeType="text/plain", size=3, annotations=annotations)
        else:
            uri = f"{self.scheme}:///{name}/{{id}}" if name == "item" else f"{self.scheme}:///{name}{{/path*}}"
            common.update(uriTemplate=uri, mimeType="text/plain", annotations=annotations)
        self._lists[kind].append(common)

    def prompt(self, call: Call) -> Json:
        name, arguments = call.params.get("name"), call.params.get("arguments") or {}
        if name not in [prompt["name"] for prompt in self._lists["prompts"]]:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        if "who" not in arguments:
            raise RpcError(INVALID_PARAMS, "Missing argument: who", {"argument": "who"})
        if name == "ask_first":
            schema = {"type": "object", "properties": {"mood": {"type": "string"}}}
            answer = call.ask_client(
                "elicitation/create", {"message": "Mood?", "requestedSchema": schema}, "elicitation"
            )
            arguments = {**arguments, "answer": answer}
        content = {"type": "text", "text": f"Greet {arguments}.", "annotations": {"priority": 1, "x-unknown": 0}}
        resource = {"uri": f"{self.scheme}:///one", "mimeType": "text/plain", "text": "one"}
        return {
            "description": f"Greets {arguments['who']}.",
            "messages": [
                {"role": "user", "content": content},
                {"role": "assistant", "content": {"type": "resource", "resource": resource}, "x-unknown": 1},
            ],
            "x-unknown": {"kept": [1]},
            "_meta": {"example.test/prompt": name, "received": _foreign(call.meta)},
        }

    def read(self, call: Call) -> Json:
        uri = call.params["uri"]
        path = re.fullmatch(rf"{re.escape(self.scheme)}:///(\w+)(/.*)?", uri)
        exact = uri in [resource["uri"] for resource in self._lists["resources"]]
        templated = path is not None and path[2] not in (None, "/missing") and path[1] in ("item", "file")
        if not exact and not templated and not uri.startswith("unlisted:"):
            code = INVALID_PARAMS if call.modern else RESOURCE_NOT_FOUND_LEGACY
            raise RpcError(code, "Resource not found", {"uri": uri, "x-unknown": 1})
        body: Json = {"blob": "AAEC"} if uri.endswith("blob") else {"text": f"{uri} of {self.scheme}"}
        contents = {"uri": uri, "mimeType": "text/plain", **body, "_meta": {"example.test/c": 1}, "x-unknown": 1}
        cache: Json = {"ttlMs": 1234, "cacheScope": "public"} if call.modern else {}
        return {"contents": [contents], "x-unknown": 2, "_meta": {"received": _foreign(call.meta)}, **cache}

    def subscribe(self, uri: str, wanted: bool) -> Json:
        if uri.endswith("/forbidden"):
            raise RpcError(-32000, "Not to be watched", {"uri": uri})
        (self.subscribed.add if wanted else self.subscribed.discard)(uri)
        return {}

    def complete(self, params: Json) -> Json:
        ref, argument = params["ref"], params["argument"]
        known = [prompt["name"] for prompt in self._lists["prompts"]]
        templates = [template["uriTemplate"] for template in self._lists["resourceTemplates"]]
        if ref.get("name", known[0]) not in known or ref.get("uri", templates[0]) not in templates:
            raise RpcError(INVALID_PARAMS, f"Unknown reference: {ref}")
        values = [word for word in WORDS if word.startswith(argument["value"])]
        more = {"ref": ref, "context": params.get("context"), "scheme": self.scheme}
        return {"completion": {"values": values, "total": len(values), "hasMore": False}, "_meta": more}


class ScriptedTasks:
    """The tasks extension, as small as it can be: a task is over as soon as somebody has answered its question."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._tasks: dict[str, Json] = {}
        self._lock = threading.Lock()

    def start(self, arguments: Json) -> Json:
        task_id = arguments.get("taskId") or f"task-{next(self._ids)}"
        request = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {}}}
        task: Json = {"taskId": task_id, "status": "working", "ttlMs": arguments.get("ttlMs", 60_000)}
        if arguments.get("ask"):
            task.update(status="input_required", inputRequests={"sure": request})
        with self._lock:
            self._tasks[task_id] = task
        return {"resultType": "task", **task, "x-unknown": 1}

    def answer(self, method: str, params: Json) -> Json:
        with self._lock:
            task = self._tasks.get(params.get("taskId", ""))
            if task is None:
                raise RpcError(INVALID_PARAMS, "Unknown task", {"taskId": params.get("taskId")})
            if method == "tasks/get":
                return dict(task)
            if method == "tasks/update":
                result = {"content": [], "structuredContent": params["inputResponses"]}
                task.pop("inputRequests", None)
                task.update(status="completed", result=result)
            elif method == "tasks/cancel":
                task.update(status="cancelled")
            else:
                raise RpcError(-32601, f"Method not found: {method}")
            return {}


def _foreign(meta: Json) -> dict[str, Any]:
    """What the client put into `_meta` itself."""
    return {key: value for key, value in meta.items() if not key.startswith("io.modelcontextprotocol/")}
