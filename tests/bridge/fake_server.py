"""A server that a test plays by hand (`ServerLink`): it introduces itself in its era, the rest is the test's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.traffic import Traffic
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.link import Receiver
from tests.support.parts import joined

Json = dict[str, Any]

SERVER_INFO = {"name": "fake-server", "version": "3"}
META = "io.modelcontextprotocol/"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}
LISTS: dict[str, Json] = {
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "warm_up")]},
    "prompts/list": {"prompts": [{"name": "write"}]},
    "resources/list": {"resources": [{"uri": "test:///one", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
}


LEGACY_REQUESTS = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")


class Clock:
    """An event loop that is ahead of its time."""

    def __init__(self, loop: Any, ahead: float) -> None:
        self._loop = loop
        self._ahead = ahead

    def time(self) -> float:
        now: float = self._loop.time() + self._ahead
        return now

    def call_later(self, delay: float, function: Any) -> Any:
        return self._loop.call_later(delay, function)


class FakeServer:
    """One start of a server of one era, or of `both`."""

    unsent_bytes = 0

    def __init__(
        self,
        era: str,
        connection: Connection,
        receiver: Receiver,
        versions: Sequence[str] = ("2026-07-28",),
        capabilities: Json | None = None,
    ) -> None:
        self.era = era
        # What it declares beside the usual.
        self.capabilities = {**CAPABILITIES, **(capabilities or {})}
        # The revisions without a handshake that it speaks.
        self.versions = list(versions)
        self.connection = connection
        assert isinstance(receiver, Traffic)
        self.traffic = receiver
        # Everything that came, and what the handshake or each modern request declared.
        self.received: list[Json] = []
        self.declared: Json = {}
        self.offers: dict[str, Json] = json.loads(json.dumps(LISTS))
        self.is_stopped = False
        # Methods that it answers with an error.
        self.refused: set[str] = set()
        self._answered: set[object] = set()
        self._asked = 0
        self._loop = asyncio.get_running_loop()

    # what the connection does with it

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        text = joined(parts)
        message = json.loads(text, object_pairs_hook=_without_repeats)
        self.received.append(message)
        if "method" in message and "id" in message:
            # In an iteration of its own, as over a pipe.
            self._loop.call_soon(self._answer_by_itself, message)

    async def stop(self) -> None:
        self.is_stopped = True

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return []

    # what it says by itself

    def _answer_by_itself(self, message: Json) -> None:
        method, params = message["method"], message.get("params", {})
        if self.era == "both":
            # As the SDK's servers do: the first request settles it.
            self.era = "legacy" if method == "initialize" else "modern"
        stamped = params.get("_meta", {}).get(META + "protocolVersion")
        if method in self.refused:
            self.fail(message, -32601, f"Method not found: {method}")
        elif self.era == "modern" and stamped is not None and stamped not in self.versions:
            self.fail(message, -32022, "Unsupported protocol version", {"supported": self.versions})
        elif method == "initialize" and self.era == "legacy":
            self.declared = params
            self.reply(message, {"protocolVersion": "2025-11-25", "serverInfo": SERVER_INFO, **self._welcome()})
        elif method == "server/discover" and self.era == "modern":
            self.declared = params["_meta"]
            meta = {META + "serverInfo": SERVER_INFO}
            self.reply(
                message,
                {
                    "resultType": "complete",
                    "supportedVersions": self.versions,
                    "capabilities": self.capabilities,
                    "_meta": meta,
                },
            )
        elif method in ("initialize", "server/discover"):
            self.fail(message, -32601, f"Method not found: {method}")
        elif method in self.offers:
            self.reply(message, self.offers[method])
        elif method == "subscriptions/listen" and self.era == "modern":
            meta = {META + "subscriptionId": message["id"]}
            granted = params["notifications"]
            self.notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": granted})
        elif method in LEGACY_REQUESTS and self.era == "legacy":
            self.reply(message, {})

    def _welcome(self) -> Json:
        return {"capabilities": self.capabilities, "instructions": "Played."}

    # what the test does with it

    def say(self, message: Json) -> None:
        assert not self.is_stopped
        self.traffic.on_message(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def requests(self, method: str) -> list[Json]:
        return [message for message in self.received if message.get("method") == method and "id" in message]

    def open_calls(self) -> list[Json]:
        """Requests about tools, prompts and resources that have no answer yet, oldest first."""
        methods = ("tools/call", "prompts/get", "resources/read", "completion/complete")
        return [
            message
            for message in self.received
            if message.get("method") in methods and message["id"] not in self._answered
        ]

    @property
    def call(self) -> Json:
        """The only call under way."""
        (only,) = self.open_calls()
        return only

    def reply(self, request: Json, result: object) -> None:
        self._answered.add(request["id"])
        self.say({"id": request["id"], "result": result})

    def fail(self, request: Json, code: int, message: str, data: object = None) -> None:
        self._answered.add(request["id"])
        error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        self.say({"id": request["id"], "error": error})

    def ask(self, method: str, params: Json | None = None) -> str:
        """A request to the client, in the legacy way; returns its id."""
        self._asked += 1
        id = f"ask-{self._asked}"
        self.say({"id": id, "method": method, **({} if params is None else {"params": params})})
        return id

    def ask_about(self, request: Json, method: str, params: Json) -> str:
        """The same on the stream of a request, as a server over HTTP does."""
        self._asked += 1
        id = f"ask-{self._asked}"
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.traffic.on_related_message(json.dumps(message).encode(), str(request["id"]).encode())
        return id

    def answer_to(self, id: str) -> Json | None:
        """What came back for a question, None while nothing did. Two answers are never right."""
        found = [message for message in self.received if message.get("id") == id and "method" not in message]
        assert len(found) <= 1, found
        return found[0] if found else None

    def withdraw(self, id: str) -> None:
        self.notify("notifications/cancelled", {"requestId": id, "reason": "the server changed its mind"})

    def notify(self, method: str, params: Json | None = None) -> None:
        self.say({"method": method, "params": params or {}})

    def told(self, method: str) -> list[Json]:
        return [m.get("params", {}) for m in self.received if m.get("method") == method and "id" not in m]

    def listening_to(self) -> Json:
        """The filter of the newest stream that has not been closed."""
        over = {each["requestId"] for each in self.told("notifications/cancelled")}
        streams = [each for each in self.requests("subscriptions/listen") if each["id"] not in over]
        filter: Json = streams[-1]["params"]["notifications"] if streams else {}
        return filter

    def advance(self, seconds: float) -> None:
        """Let time pass on this link, and deadlines with it."""
        loop = self.traffic.loop
        self.traffic.loop = self.traffic.deadlines._loop = Clock(loop, seconds)  # type: ignore[assignment]
        # It passes as it does for somebody who is awake: nobody was stopped meanwhile.
        self.traffic.deadlines.stop()
        self.traffic.deadlines.looked_at = self.traffic.loop.time()
        self.traffic.deadlines.look()

    def crash(self) -> None:
        self.traffic.on_closed("the server exited with status 9")


def _without_repeats(pairs: list[tuple[str, Any]]) -> Json:
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), f"a member appears twice: {names}"
    return dict(pairs)
